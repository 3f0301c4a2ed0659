# SPDX-License-Identifier: GPL-2.0-only
"""Several starts of a server: the order of runs, the restarts, and starts as units of bounds."""

import io
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import numpy as np
import pytest
from rich.console import Console

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.compare import rounds as compared_rounds
from tlstax.analysis.compare import server_cost
from tlstax.analysis.experiment import (
    client_figures,
    matrix,
    matrix_costs,
    matrix_results,
    matrix_sides,
)
from tlstax.analysis.experiment.matrix_costs import RunCost
from tlstax.analysis.experiment.matrix_results import Row
from tlstax.analysis.model.tables import Ratio
from tlstax.analysis.statistics import medians
from tlstax.collectors.capture.schema import Run
from tlstax.workloads.drivers.model import DriveResult, Latencies
from tlstax.workloads.matrix import experiment as experiment_module
from tlstax.workloads.matrix.cells import SERVERS_MAX, Cell, PlannedRun, ServerKey, plan
from tlstax.workloads.matrix.duration import Clock
from tlstax.workloads.matrix.experiment import Experiment
from tlstax.workloads.matrix.outline import outline
from tlstax.workloads.matrix.recipe import Recipe
from tlstax.workloads.matrix.recipe_file import load_recipe
from tlstax.workloads.matrix.store import NAME, CellRow, Outcome, Store
from tlstax.workloads.resources import Resources
from tlstax.workloads.stages import Stages

RECIPE = """\
kind = "matrix"
[matrix]
servers = ["mariadb", "mysql97"]
scenarios = ["connect"]
[scale.smoke]
starts = 3
rounds = 2
"""


def load(folder: Path, text: str = RECIPE) -> Recipe:
    path = folder / "mine.toml"
    path.write_text(text)
    return load_recipe(path)


# ---- the plan ----


def test_all_rounds_of_a_start_come_before_the_next_start(tmp_path: Path) -> None:
    recipe = load(tmp_path)
    runs = plan(recipe.cells, 2, 8, 1, recipe.scale.starts_count)
    assert {run.round: run.server_start for run in runs} == {0: 0, 1: 0, 2: 1, 3: 1, 4: 2, 5: 2}
    assert [run.round for run in runs if run.cell_id == 1] == list(range(6))
    by_turn: dict[int, set[tuple[str, int]]] = {}
    for run in runs:
        server = recipe.cells[run.cell_id - 1].server
        by_turn.setdefault(run.turn, set()).add((server, run.server_start))
    assert len(by_turn) == 6, "two servers, three starts; eight rounds in turn do not cross them"
    assert all(len(members) == 1 for members in by_turn.values()), "a turn is of one start"
    one = [replace(run, server_start=0) for run in runs if run.server_start == 0]
    assert plan(recipe.cells, 2, 8, 1) == one, "as without starts"


def test_servers_that_do_not_run_together_start_for_each_turn() -> None:
    cells = [
        Cell(f"s{number}", "rsa:2048", "off", "on", "tcp", "sysbench", "connect", 1)
        for number in range(SERVERS_MAX + 1)
    ]
    runs = plan(cells, 2, 1, 1, 2)
    assert {run.round: run.server_start for run in runs} == {0: 0, 1: 1, 2: 2, 3: 3}
    few = plan(cells[1:], 2, 1, 1, 2)
    assert {run.round: run.server_start for run in few} == {0: 0, 1: 0, 2: 1, 3: 1}


def test_starts_are_asked_for_by_the_recipe_or_the_command(tmp_path: Path) -> None:
    recipe = load(tmp_path)
    assert recipe.scale.starts_count == 3
    assert recipe.with_changes(starts_count=5).scale.starts_count == 5
    assert recipe.with_changes(rounds_count=1).scale.starts_count == 3
    lines = outline(recipe)
    assert "starts   3 of each server" in lines
    assert "runs     24" in lines, "4 cells, 3 starts, 2 rounds"
    assert load(tmp_path, RECIPE.replace("starts = 3\n", "")).scale.starts_count == 1
    with pytest.raises(TlstaxError, match=r"starts = 0, .* within 1\.\.") as caught:
        load(tmp_path, RECIPE.replace("starts = 3", "starts = 0"))
    assert caught.value.exit_code == ExitCode.USAGE


def test_each_start_takes_time(tmp_path: Path) -> None:
    recipe = load(tmp_path)
    by_id = dict(enumerate(recipe.cells, start=1))
    seconds = [
        Clock(recipe, plan(recipe.cells, 6 // starts, 6, 1, starts), by_id).remaining_s()
        for starts in (1, 3)
    ]
    assert seconds[1] - seconds[0] > 4 * 8, "four more starts"


# ---- the restarts ----


class FakeSession:
    """A server that only says which of its starts it is."""

    opened: ClassVar[list[tuple[str, bool]]] = []

    def __init__(self, key: ServerKey, *unused: object, **named: object) -> None:
        self.key, self.is_alive, self.agreed, self.negotiated = key, True, None, None
        self.routes: dict[str, Any] = {}
        self.facts: dict[str, str] = {}

    def open(self) -> None:
        self.number = len(FakeSession.opened)
        self.server = SimpleNamespace(pid=100 + self.number, port=1, program=Path("mariadbd"))
        FakeSession.opened.append((self.key.server, True))

    def close(self) -> None:
        FakeSession.opened[self.number] = (self.key.server, False)

    def why_not(self, cell: Cell) -> None:
        return None


def ran(run: PlannedRun) -> Outcome:
    """A run of a second with a thousand operations."""
    latencies = Latencies(10, 20, 30)
    driven = DriveResult(1000, 10**9, latencies, 100, 5, (1,))
    row = Run(run.run_id, "sysbench", "connect", "tls", run.round, 1, 2, 1, 1, 1000, 1, 2, 3, 4, "")
    return Outcome(row._replace(server_start=run.server_start), driven, "", "", None)


def drive(folder: Path, store: Store, recipe: Recipe, pids: dict[int, int]) -> None:
    """All planned runs, on fake servers; `pids` says which process each run had."""

    @contextmanager
    def record(pid: int, capture: Path, collect: Sequence[str] = ()) -> Iterator[int]:
        yield pid

    def run_cell(session: FakeSession, cell: Cell, run: PlannedRun, recorder: int) -> Outcome:
        assert recorder == session.server.pid, "the recorder watches the process that runs"
        assert FakeSession.opened[session.number][1], "it is not closed yet"
        pids[run.run_id] = recorder
        return ran(run)

    def unused(*values: object) -> Any:
        raise AssertionError(values)

    stages = Stages(cast(Any, record), unused, unused, unused, unused)
    with pytest.MonkeyPatch.context() as patch, Resources() as resources:
        patch.setattr(experiment_module, "ServerSession", FakeSession)
        patch.setattr(experiment_module, "run_cell", run_cell)
        console = Console(file=io.StringIO())
        path = folder / "x.tlstax"
        Experiment(recipe, store, stages, console, resources, folder, lambda *unused: path).run()


def test_a_server_starts_again_between_groups_of_rounds(tmp_path: Path) -> None:
    recipe, pids = load(tmp_path), dict[int, int]()
    FakeSession.opened = []
    rows = [CellRow(cell, "connect", True, None) for cell in recipe.cells]
    with Store.create(tmp_path) as store:
        store.write_plan({"baseline": "{}"}, rows, plan(recipe.cells, 2, 1, 1, 3))
        planned = store.runs("planned")
        drive(tmp_path, store, recipe, pids)
        assert store.counts() == {"done": 24}
    processes = {
        (recipe.cells[run.cell_id - 1].server, run.server_start, pids[run.run_id])
        for run in planned
    }
    assert len(processes) == 6, "one process for each start of each server"
    assert len({pid for _, _, pid in processes}) == 6
    assert [is_open for _, is_open in FakeSession.opened] == [False] * 6
    found = matrix_results.read(tmp_path)
    for runs in found.runs.values():
        assert [run["server_start"] for run in runs] == [0, 0, 1, 1, 2, 2]


def test_results_of_an_earlier_version_are_of_one_start(tmp_path: Path) -> None:
    recipe = load(tmp_path)
    rows = [CellRow(cell, "connect", True, None) for cell in recipe.cells]
    with Store.create(tmp_path) as store:
        store.write_plan({"baseline": "{}"}, rows, plan(recipe.cells, 2, 1, 1))
        for run in store.runs("planned"):
            store.finish(run.run_id, "x.tlstax", ran(run))
    with sqlite3.connect(tmp_path / NAME) as connection:
        connection.execute("ALTER TABLE run DROP COLUMN server_start")
        connection.execute("PRAGMA user_version = 2")
    found = matrix_results.read(tmp_path)
    assert {run["server_start"] for runs in found.runs.values() for run in runs} == {0}
    with pytest.raises(TlstaxError, match="was not written by this version"):
        Store.open(tmp_path)


# ---- the units ----


def client_runs(starts: int, rounds: int) -> list[Row]:
    """Starts that differ by 100 operations/s, and rounds by 1."""
    return [
        {
            "run_id": start * rounds + number,
            "server_start": start,
            "operations_count": 1000 + 100 * start + number,
            "elapsed_ns": 10**9,
            "mean_ns": 500 + 10 * start,
            "p95_ns": 900 + 10 * start,
        }
        for start in range(starts)
        for number in range(rounds)
    ]


@pytest.mark.parametrize("starts", [5, 8])
def test_the_clients_figures_have_bounds_of_starts(starts: int) -> None:
    runs = client_runs(starts, 8)
    rate, mean = client_figures.rate(runs, "operations_count"), client_figures.mean(runs)
    empty = matrix_results.Results(Path(), {}, {}, {}, [], [], {}, {}, {}, {}, {})
    p95 = client_figures.p95(empty, runs)
    assert rate.unit_count == mean.unit_count == p95.unit_count == starts
    middle = (starts - 1) / 2
    assert rate.value == pytest.approx(1003.5 + 100 * middle)
    assert mean.value_ns == pytest.approx(500 + 10 * middle)
    if starts == 5:
        assert (rate.low, rate.high) == (1003.5, 1403.5), "a range of starts, not of rounds"


def run_costs(starts: int, rounds: int) -> list[RunCost]:
    """The client computes 10 ns more for an operation on each start."""
    found = []
    for start in range(starts):
        for _ in range(rounds):
            arm = compared_rounds.empty(1)
            arm.operations[0], arm.latency_ns[0] = 1000, 1000.0 * (500 + 10 * start)
            cost = RunCost(arm, server_cpu_ns=1000 * (100 + start))
            cost.lanes["client", "own", "cpu"] = 1000 * (100 + 10 * start)
            cost.lanes["server", "connect", "cpu"] = 1000 * 50
            found.append(cost)
    return found


def test_costs_of_a_matrix_are_summed_up_by_start() -> None:
    of = client_figures.units_of(client_runs(5, 8))
    arm = matrix_costs.together(run_costs(5, 8), of)
    assert arm.operations.tolist() == [8000.0] * 5
    assert (arm.latency_ns / arm.operations).tolist() == [500.0, 510.0, 520.0, 530.0, 540.0]
    both = matrix_sides.both_sides(run_costs(5, 8), run_costs(5, 8), of, "connection")
    assert both is not None
    client = next(part for part in both.parts if part.name == "client_own_cpu")
    assert client.after.unit_count == 5
    assert (client.after.low_ns, client.after.high_ns) == (100.0, 140.0)
    assert np.isclose(client.after.value_ns, 120.0)


def test_a_wait_of_one_arm_whose_median_difference_is_0_is_a_part_of_both() -> None:
    of = client_figures.units_of(client_runs(3, 8))
    arms = []
    for waits in ((0, 2, 3), (0, 0, 5)):  # their medians are 2 and 0, that of -2, 0 and 2 is 0
        runs = run_costs(3, 8)
        for number, cost in enumerate(runs):
            cost.lanes["server", "own", "wait"] = 1000 * waits[number // 8]
        arms.append(runs)
    both = matrix_sides.both_sides(arms[0], arms[1], of, "connection")
    assert both is not None
    wait = next(part for part in both.parts if part.name == "server_wait")
    assert (wait.before.value_ns, wait.after.value_ns, wait.difference.value_ns) == (2.0, 0.0, 0.0)


# ---- the sentence of a matrix ----


def sentence(added_ns: float, cpu_ns: float) -> str:
    """Of five starts: `added_ns` of latency and `cpu_ns` of the server's CPU time, and noise."""
    of = client_figures.units_of(client_runs(5, 8))
    noise = np.array([0.0, -2.0, -1.0, 0.0, 1.0, 2.0])
    found = medians.difference(
        1000 + 0 * noise, 1000 + added_ns + noise, (of.units, of.units), is_paired=True
    )
    calm, done = np.full(5, 8000.0), np.full(5, 8.0)
    cpu = server_cost.of_sums((calm, done), (calm + 8 * (cpu_ns + noise[1:]), done), of.units)
    place = {"tls": "on"}
    cell = cast(Any, SimpleNamespace(operation="connection", place=place))
    base = cast(Any, SimpleNamespace(place={"tls": "off"}))
    return matrix._sentence(cell, base, Ratio(0.5), found, [], cpu)


def test_a_matrix_leads_with_the_cpu_time_and_then_the_latency() -> None:
    text = sentence(500, 1000)
    assert text.startswith("Each connection takes 2 times the server CPU (+1.00 µs) and 500 ns lon")
    assert "of the throughput with TLS off" in text


def test_a_range_of_starts_that_spans_zero_is_no_difference() -> None:
    assert "server CPU (+1.00 µs); no difference seen in its time (" in sentence(0, 1000)
    assert sentence(0, 0).startswith("Each connection: no difference seen in its time (")
