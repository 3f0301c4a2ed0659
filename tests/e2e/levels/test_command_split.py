# SPDX-License-Identifier: GPL-2.0-only
"""Level `flow` with calibration stretches on a MariaDB: the split of commands against probes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tlstax import ExitCode
from tlstax.__main__ import main
from tlstax.analysis.document.explain import explain
from tlstax.analysis.model.command_split import CommandSplit
from tlstax.analysis.rows.tables import Tables, load
from tlstax.analysis.statistics.calibrated import LEAST_STRETCHES
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.host.clock import monotonic_ns
from tlstax.collectors.host.features import HOST
from tlstax.collectors.placement.planning import plan_in_child
from tlstax.collectors.recording.by_recorder.recorder import Recorder
from tlstax.collectors.recording.by_recorder.stretch_times import STRETCH_MS
from tlstax.collectors.recording.request import Request
from tlstax.probes.model import Level
from tlstax.tests.background_load import in_background
from tlstax.tests.e2e.levels.both_levels import Watcher
from tlstax.tests.loader.native import Engine, Options
from tlstax.tests.safe_programs import safe_programs
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.results import Arm
from tlstax.workloads.servers.mariadb import PrivateServer

pytestmark = [
    pytest.mark.root,
    pytest.mark.needs("btf", "uprobes"),
    pytest.mark.skipif(not HOST.socket_events, reason="this kernel lacks events of sockets"),
]

TABLE_ROWS: Final = 1000
OFTEN_S: Final = 0.4
RECORDED_S: Final = 10.0
LOAD_MOST_S: Final = 120
TWICE_TRAPPED: Final = 0.02
"""Of the commands' CPU time: in a stretch their boundaries have the traps of two engines, the one
whose estimate is tested and the one that knows; see docs/measurements/flow.md."""


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateServer]:
    """A MariaDB with a table, at rest."""
    with PrivateServer() as running:
        Sysbench.of_server(running, table_rows=TABLE_ROWS).prepare()
        yield running


@contextmanager
def point_selects(server: PrivateServer, arm: Arm) -> Iterator[None]:
    """In the background, for as long as the block lasts."""
    driver = Sysbench.of_server(server, table_rows=TABLE_ROWS)
    with in_background(driver, Load(SCENARIOS["point_select"], 2, LOAD_MOST_S), arm):
        yield


def recorded(server: PrivateServer, arm: Arm, capture: Path) -> tuple[Tables, dict[str, int]]:
    """A recording with stretches, and the parts by probes that were on all the time."""
    _, plan = plan_in_child(server.pid, Level.RECORD)
    engine = Engine(server.pid, plan, Options(sample_hz=0, programs=safe_programs()))
    try:
        request = Request(server.pid, capture, level=Level.FLOW, calibration_s=OFTEN_S)
        with Recorder(request) as recorder:
            engine.attach()
            probes = Watcher(engine)
            with point_selects(server, arm):
                time.sleep(0.5)
                recorder.poll(0.5)
                probes.begin(monotonic_ns())
                recorder.poll(RECORDED_S)
                seen = probes.end(monotonic_ns(), probes.serving(), {})
    finally:
        engine.close()
    with CaptureReader.open(capture) as reader:
        rows = load(reader)
    return rows, {phase: ns for (phase, state), ns in seen.cells.items() if state == "on_cpu"}


def split_of(rows: Tables) -> CommandSplit:
    (found,) = explain(rows).splits
    return found


@pytest.mark.timing
@pytest.mark.parametrize("arm", ["tls", "plaintext"])
def test_the_estimate_is_what_probes_tell_all_the_time(
    server: PrivateServer, tmp_path: Path, arm: Arm, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, exact = recorded(server, arm, tmp_path / "capture")
    found = split_of(rows)
    assert found.refusal == ""
    assert found.stretch_count >= LEAST_STRETCHES
    whole_ns = sum(exact.get(line.phase, 0) for line in found.lines)
    for line in found.lines:
        assert line.time.low_ns is not None
        assert line.time.high_ns is not None
        true_share = exact[line.phase] / whole_ns
        true_ns = true_share * found.on_cpu_ns
        more_ns = TWICE_TRAPPED * found.on_cpu_ns
        is_held = line.time.low_ns - more_ns <= true_ns <= line.time.high_ns + more_ns
        assert is_held, (line, true_share)
        assert abs(line.exact_share - true_share) <= 0.05
    windows = {window.window_id: window for window in rows.windows}
    stretches = {part.window_id for part in rows.command_parts}
    commands_ns = dict.fromkeys(stretches, 0)
    for row in rows.ledger:
        if row.window_id in stretches and (row.phase, row.state) == ("command", "on_cpu"):
            commands_ns[row.window_id] += row.time_ns
    parts_ns = sum(part.on_cpu_ns for part in rows.command_parts)
    assert parts_ns == pytest.approx(sum(commands_ns.values()), rel=0.05), "the same commands"
    for one in stretches:
        window = windows[one]
        assert window.level == "flow", "its ledger goes on"
        assert window.end_ns - window.start_ns >= STRETCH_MS * 1_000_000
    assert main(["report", str(tmp_path / "capture")]) == ExitCode.OK
    text = capsys.readouterr().out
    assert "CPU time of commands" in text
    assert "answering   ≈" in text


def test_attach_takes_stretches(server: PrivateServer, tmp_path: Path) -> None:
    capture = tmp_path / "capture"
    with point_selects(server, "tls"):
        words = ["attach", str(server.pid), "--level", "flow", "--calibrate", "--for", "9s"]
        words += ["--budget", "none"]
        assert main([*words, "--quiet", "-o", str(capture)]) == ExitCode.OK
    with CaptureReader.open(capture) as reader:
        rows = load(reader)
    stretches = {part.window_id for part in rows.command_parts}
    assert 1 <= len(stretches) <= 9
    costs = {row.window_id: row.probe_ns or 0 for row in rows.effects}
    assert all(costs[one] > 10 * costs[one - 1] for one in stretches), "their probes are charged"
    assert "calibration stretches, and an estimate needs" in split_of(rows).refusal


@pytest.mark.parametrize(("budget", "most"), [("50%", 12), ("0.2%", 0)])
def test_stretches_are_taken_as_far_as_the_budget_allows(
    server: PrivateServer, tmp_path: Path, budget: str, most: int
) -> None:
    capture = tmp_path / "capture"
    with point_selects(server, "tls"):
        words = ["attach", str(server.pid), "--level", "flow", "--calibrate", "--for", "12s"]
        words += ["--budget", budget]
        assert main([*words, "--quiet", "-o", str(capture)]) in (ExitCode.OK, ExitCode.BUDGET)
    if not capture.exists():
        assert not most, "nothing fits such a budget"
        return
    with CaptureReader.open(capture) as reader:
        rows = load(reader)
    stretches = {part.window_id for part in rows.command_parts}
    assert min(1, most) <= len(stretches) <= most
    windows = [row for row in rows.effects if row.target_cpu_ns]
    spent_ns = sum(sum(e.costs_ns) for e in windows)
    assert spent_ns <= float(budget.rstrip("%")) / 100 * 1.1 * sum(
        e.target_cpu_ns or 0 for e in windows
    )
