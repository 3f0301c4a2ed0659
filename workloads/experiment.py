# SPDX-License-Identifier: GPL-2.0-only
"""An experiment: both arms of each load, interleaved, each run proven, nothing left running.

A round is one run of each arm. Their order alternates (A B, B A, A B, ...), so that a drift of
the machine falls on both arms alike, and every round gives one plaintext-to-TLS difference.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tlstax.workloads.drivers.sysbench import SCENARIOS, DriverResult, Load, Sysbench
from tlstax.workloads.proof import Evidence
from tlstax.workloads.results import (
    ARMS,
    Arm,
    Recorder,
    RunResult,
    RunTotals,
    StatusSample,
)
from tlstax.workloads.servers.connections import await_quiet, socket_count
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.status import Status, StatusSession

WARM_UP_S = 1
NS_PER_S = 1_000_000_000


@dataclass(frozen=True)
class PlannedRun:
    """One run to come."""

    run_id: int
    load: Load
    arm: Arm
    round: int

    @property
    def label(self) -> str:
        """How people call it."""
        return f"{self.load.scenario.name} {self.arm}, round {self.round + 1}"


@dataclass(frozen=True)
class Progress:
    """Told before each run, and once at the end with `run` None."""

    run: PlannedRun | None
    done_count: int
    total_count: int
    remaining_s: float  # an estimate from what runs really took so far


class NullRecorder:
    """Watches nothing, for drivers on their own and for runs without probes."""

    def __init__(self) -> None:
        self._start_ns = 0

    def poll(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)

    def add_client(self, pid: int) -> None:
        """Not watched either."""

    def add_peer(self, pid: int, role: str, label: str = "") -> None:
        """Nor is this."""

    def begin_run(self, run_id: int) -> None:
        """Remember the time."""
        self._start_ns = time.monotonic_ns()

    def end_run(self) -> RunTotals:
        """The interval, and no counts."""
        return RunTotals(self._start_ns, time.monotonic_ns(), handshake_count=None)

    def add(self, rows: Iterable[RunResult | StatusSample]) -> None:
        """Forget them."""


def plan(loads: Sequence[Load], rounds_count: int) -> list[PlannedRun]:
    """Every run in its order; run ids count from 1."""
    order = [
        (load, arm, round_number)
        for load in loads
        for round_number in range(rounds_count)
        for arm in (ARMS if round_number % 2 == 0 else ARMS[::-1])
    ]
    return [PlannedRun(run_id, *run) for run_id, run in enumerate(order, start=1)]


@dataclass
class Experiment:
    """Loads on one server. Warm up first, then run with a recorder that is attached."""

    server: PrivateServer
    driver: Sysbench
    status: StatusSession
    loads: Sequence[Load]
    rounds_count: int
    _overhead_s: list[float] = field(default_factory=list)
    _server_counts: bool = True

    def __post_init__(self) -> None:
        self._baseline_socket_count = socket_count(self.server.pid)

    def warm_up(self) -> None:
        """A short run of each load and arm, proven like the others: caches, threads, estimate."""
        self._server_counts = self._see_whether_server_counts()
        for number, planned in enumerate(plan(self.loads, 1)):
            load = Load(planned.load.scenario, planned.load.threads_count, WARM_UP_S)
            self.run_one(PlannedRun(-number, load, planned.arm, 0), NullRecorder())

    def _see_whether_server_counts(self) -> bool:
        """Whether the server's counter knows of a handshake that there must have been.

        The account of the TLS arm is refused without TLS, so a connection of it proves one.
        """
        before = self.status.read()
        self.driver.run(Load(SCENARIOS["connect"], 1, 1, operation_count=1), "tls")
        await_quiet(self.server.pid, self._baseline_socket_count)
        return self.status.read().since(before, "Ssl_finished_accepts") > 0

    def run(
        self, recorder: Recorder, on_progress: Callable[[Progress], None] = lambda _: None
    ) -> Iterator[RunResult]:
        """Do every run in turn; each is yielded once it is proven and kept by the recorder.

        TlstaxError (FAILED) at the first run that did something else than it was asked to.
        """
        planned = plan(self.loads, self.rounds_count)
        for done_count, run in enumerate(planned):
            on_progress(
                Progress(run, done_count, len(planned), self.estimate_s(planned[done_count:]))
            )
            yield self.run_one(run, recorder)
        on_progress(Progress(None, len(planned), len(planned), 0.0))

    def estimate_s(self, runs: Sequence[PlannedRun] | None = None) -> float:
        """How long `runs` (None: all) will take: their own time and what each costs beside it."""
        runs = plan(self.loads, self.rounds_count) if runs is None else runs
        overhead_s = sum(self._overhead_s) / max(1, len(self._overhead_s))
        return sum(run.load.seconds + overhead_s for run in runs)

    def run_one(self, run: PlannedRun, recorder: Recorder) -> RunResult:
        """One run from quiet to quiet."""
        started_ns = time.monotonic_ns()
        before = self.status.read()

        def at_gate(pid: int) -> None:
            recorder.add_client(pid)
            recorder.begin_run(run.run_id)

        driven = self.driver.run(run.load, run.arm, recorder.poll, at_gate)
        await_quiet(self.server.pid, self._baseline_socket_count, recorder.poll)
        totals = recorder.end_run()
        after = self.status.read()
        choice = self.server.request.choice
        evidence = Evidence(
            run.label, run.arm, choice, driven, before, after, totals, self._server_counts
        )
        proof = evidence.prove()
        result = _result(run, driven, totals, proof)
        recorder.add([result, *_samples(run.run_id, before), *_samples(run.run_id, after)])
        self._overhead_s.append((time.monotonic_ns() - started_ns) / NS_PER_S - run.load.seconds)
        return result


def _result(run: PlannedRun, driven: DriverResult, totals: RunTotals, proof: str) -> RunResult:
    return RunResult(
        run_id=run.run_id,
        driver=run.load.scenario.driver,
        scenario=run.load.scenario.name,
        arm=run.arm,
        round=run.round,
        start_ns=totals.start_ns,
        end_ns=totals.end_ns,
        threads_count=run.load.threads_count,
        connection_count=driven.connection_count,
        operation_count=driven.operation_count,
        client_mean_ns=driven.mean_ns,
        client_p95_ns=driven.p95_ns,
        client_max_ns=driven.max_ns,
        client_cpu_ns=driven.cpu_ns,
        proof=proof,
    )


def _samples(run_id: int, status: Status) -> list[StatusSample]:
    return [
        StatusSample(status.time_ns, run_id, name, value)
        for name, value in sorted(status.values.items())
    ]
