# SPDX-License-Identifier: GPL-2.0-only
"""One experiment on many servers: all run all the time and take turns, round by round.

A turn is every load in both arms on one server, recorded with the probes on that server only. The
order of the servers is turned round in every other round, and so is that of the arms, so that a
drift of the machine falls on all alike. A server that cannot be had, or that fails, is one line;
the others go on.
"""

import json
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from tlstax import ExitCode, TlstaxError
from tlstax.workloads.drivers.sysbench import Sysbench
from tlstax.workloads.experiment import WARM_UP_S, Experiment, PlannedRun, plan
from tlstax.workloads.negotiation import Negotiated, negotiate
from tlstax.workloads.output import stamp, writing_to
from tlstax.workloads.recipe import Recipe
from tlstax.workloads.results import ARMS, Recorder
from tlstax.workloads.servers.catalogue import ServerKind, find_kind
from tlstax.workloads.servers.lab_server import open_server
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.request import ServerRequest
from tlstax.workloads.stages import ServerOutcome, Stages

FACTS = "facts.json"
START_S, ATTACH_S, BESIDE_RUN_S = 7, 3, 0.6  # what a server, a turn and a run cost beside driving


@dataclass
class Lane:
    """One server in the comparison."""

    kind: ServerKind
    negotiated: Negotiated | None = None
    instructions: dict[str, bool] = field(default_factory=dict)
    experiment: Experiment | None = None  # None: it takes no part
    parts: list[Path] = field(default_factory=list)
    failure: str = ""

    def fail(self, error: TlstaxError, console: Console) -> None:
        """Take no further part, and say why."""
        self.experiment, self.failure = None, f"{error.what}: {error.why}"
        console.print(f"{self.kind.name:12} left out: {self.failure}", soft_wrap=True)


class ServerOnly:
    """A recorder that leaves the drivers alone: probes in them would slow down what is compared."""

    def __init__(self, recorder: Recorder) -> None:
        self.poll, self.add = recorder.poll, recorder.add
        self.begin_run, self.end_run = recorder.begin_run, recorder.end_run

    def add_client(self, pid: int) -> None:
        """Do nothing."""

    def add_peer(self, pid: int, role: str, label: str = "") -> None:
        """Do nothing either."""


def measure(recipe: Recipe, output: Path, stages: Stages) -> Path:
    """Run the recipe; the page of the comparison, beside which lie its captures and data.

    Raises TlstaxError: USAGE for a server that is not known, IO where nothing can be written,
    FAILED when no server could be measured.
    """
    console = Console()
    started_s = time.monotonic()
    lanes = [Lane(find_kind(name)) for name in recipe.servers]
    _announce(recipe, console)
    folder = _new_folder(output, recipe.name)
    with ExitStack() as resources:
        for lane in lanes:
            try:
                _open(lane, recipe, stages, resources, console)
            except TlstaxError as error:
                lane.fail(error, console)
        _take_turns(lanes, recipe, folder, stages, console)
    outcomes = [_outcome(lane, folder, stages) for lane in lanes]
    if not any(outcome.capture for outcome in outcomes):
        raise TlstaxError(
            "no server could be measured",
            "each of them failed, for the reasons above",
            "Correct the first one; `tlstax doctor` tells what this host lacks",
            ExitCode.FAILED,
        )
    _write_facts(folder, recipe, outcomes)
    page = stages.render_folder(folder)
    took_s = time.monotonic() - started_s
    console.print(f"took     {took_s / 60:.1f} minutes in all; captures and data are in {folder}")
    return page


def _announce(recipe: Recipe, console: Console) -> None:
    count, runs = len(recipe.servers), len(recipe.loads) * len(ARMS)
    total_s = recipe.driving_s + recipe.rounds_count * (ATTACH_S + runs * BESIDE_RUN_S)
    total_s += START_S + runs * (WARM_UP_S + BESIDE_RUN_S)
    names = ", ".join(load.scenario.name for load in recipe.loads)
    console.print(f"{recipe.title}" if recipe.title else recipe.name)
    console.print(
        f"loads    {names}; plaintext and TLS; {recipe.rounds_count} rounds; {recipe.key}"
    )
    console.print(f"time     about {total_s * count / 60:.0f} minutes for {count} servers")


def _new_folder(output: Path, name: str) -> Path:
    folder = output / f"{name}-{stamp()}"
    with writing_to(output):
        folder.mkdir(parents=True)
    return folder


def _open(
    lane: Lane, recipe: Recipe, stages: Stages, resources: ExitStack, console: Console
) -> None:
    """Start a server, ask what its TLS is, warm it up in both arms."""
    request = ServerRequest(key=recipe.key, tls=recipe.tls)

    def say(line: str) -> None:
        console.print(f"{lane.kind.name:12} {line}", soft_wrap=True)

    with ExitStack() as mine:
        server: PrivateServer = mine.enter_context(open_server(lane.kind, request, say))
        lane.negotiated = negotiate(server)
        lane.instructions = dict(stages.crypto_instructions(server.pid))
        status = mine.enter_context(server.open_status())
        driver = Sysbench.of_server(server, table_rows=recipe.table_rows)
        if any(load.scenario.needs_table for load in recipe.loads):
            driver.prepare()
        experiment = Experiment(server, driver, status, recipe.loads, recipe.rounds_count)
        experiment.warm_up()
        resources.push(mine.pop_all())
    lane.experiment = experiment
    agreed = lane.negotiated.driver
    say(f"{lane.kind.server}: {agreed.version} {agreed.cipher}")


def _take_turns(
    lanes: Sequence[Lane], recipe: Recipe, folder: Path, stages: Stages, console: Console
) -> None:
    runs = plan(recipe.loads, recipe.rounds_count)
    for round_number in range(recipe.rounds_count):
        started_s = time.monotonic()
        for lane in lanes if round_number % 2 == 0 else reversed(lanes):
            if lane.experiment is None:
                continue
            part = folder / f".{lane.kind.name}-{round_number}.tlstax"
            try:
                _turn(lane, [run for run in runs if run.round == round_number], part, stages)
            except TlstaxError as error:
                lane.fail(error, console)
                part.unlink(missing_ok=True)
        took_s = time.monotonic() - started_s
        console.print(f"round    {round_number + 1} of {recipe.rounds_count} took {took_s:.0f} s")


def _turn(lane: Lane, runs: Sequence[PlannedRun], part: Path, stages: Stages) -> None:
    """One server's part of a round, in a recording of its own."""
    if lane.experiment is None:
        return
    with stages.open_recorder(lane.experiment.server.pid, part) as recorder:
        for run in runs:
            lane.experiment.run_one(run, ServerOnly(recorder))
    lane.parts.append(part)


def _outcome(lane: Lane, folder: Path, stages: Stages) -> ServerOutcome:
    """Join the recordings of a server; rounds before it failed still count."""
    capture = folder / f"{lane.kind.name}.tlstax" if lane.parts else None
    if capture:
        stages.join_captures(lane.parts, capture)
        for part in lane.parts:
            part.unlink()
    name, found = lane.kind.name, lane.instructions or None
    return ServerOutcome(name, capture, lane.failure, lane.negotiated, found)


def _write_facts(folder: Path, recipe: Recipe, outcomes: Sequence[ServerOutcome]) -> None:
    facts = {
        "title": recipe.title,
        "recipe": recipe.name,
        "key": str(recipe.key),
        "rounds": recipe.rounds_count,
        "servers": [outcome.as_json() for outcome in outcomes],
    }
    (folder / FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
