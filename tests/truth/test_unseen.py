# SPDX-License-Identifier: GPL-2.0-only
"""A connection that ends while its boundaries are detached has no time of what comes after it.

Between dense windows of a busy server only handshakes are probed: a thread that was being set up,
did a handshake or was parked may serve another connection when the ledger comes back. It is
`unknown` from there to its next boundary, whatever it did before.
"""

import platform
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Ledger, Thread, Window
from tlstax.collectors.host.clock import monotonic_ns
from tlstax.collectors.placement.planning import plan_in_child
from tlstax.collectors.preflight.safety import Safety
from tlstax.collectors.recording.programs.site_cookies import lowest_level
from tlstax.collectors.recording.programs.views import SlotView
from tlstax.collectors.recording.stream.plan_file import plan_file_text
from tlstax.collectors.recording.stream_recording import import_stream
from tlstax.tests.figures import note
from tlstax.tests.loader.native import Engine, Options
from tlstax.tests.safe_programs import is_guarded, safe_programs
from tlstax.tests.truth.books import view
from tlstax.tests.truth.by_recorder import record
from tlstax.tests.truth.conftest import lines_until, running

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

Process = Any
WINDOW_S, LOOKS = 0.1, 50
WAYS = {"connect": "connect", "bound": "handshake", "park": None, "born": None}
"""The phase of the thread before nothing looks; None: it sleeps, or there is none yet."""
STALE = {
    "connect": {"connect"},
    "bound": {"handshake"},
    "park": {"idle", "connect"},
    "born": {"background"},
}
"""What the time after it would be counted as without that."""
BUDGET, DEAR_NS, BEFORE_S, AFTER_S, DENSE_LEAST = "50%", 300_000, 2.0, 4.0, 2
LEAST_NS = 10_000_000


def go(process: Process) -> None:
    """End a stage of the program, and wait for the next one."""
    process.stdin.write(b"g")
    lines_until(process, "stage")


def tid_of(pid: int) -> int:
    """The thread."""
    names = Path(f"/proc/{pid}/task").glob("*/comm")
    (tid,) = (int(file.parent.name) for file in names if file.read_text().strip() == "tt-unseen")
    return tid


def thread_of(engine: Engine) -> SlotView:
    """The account of the thread."""
    tid = tid_of(engine.pid)
    (found,) = (slot for slot in engine.maps.slots() if slot.tid == tid and not slot.exited)
    return found


def phases(before: SlotView, after: SlotView) -> Counter[str]:
    """What was charged between two looks at an account, by phase."""
    told: Counter[str] = Counter()
    for slot, sign in ((after, 1), (before, -1)):
        for cell, ns in view(slot).cells.items():
            told[cell.partition("/")[0]] += sign * ns
    return +told


def watch(engine: Engine) -> Counter[str]:
    """The phases of the thread for a while, which lasts until it was charged for enough."""
    before = thread_of(engine)
    for _ in range(LOOKS):
        time.sleep(WINDOW_S)
        after = thread_of(engine)
        found = phases(before, after)
        if sum(found.values()) >= LEAST_NS:
            assert sum(found.values()) == after.last_ns - before.last_ns
            return found
    raise AssertionError("nothing was charged to the thread")


@contextmanager
def attached(process: Process, repository: Path, mutant: str = "") -> Iterator[Engine]:
    """The engine with everything attached; its programs may have a fault."""
    _, plan = plan_in_child(process.pid, extra=repository / "tests/testprogs")
    programs = safe_programs()
    if mutant:
        kind = "-guarded" if programs else ""
        programs = repository / f"tests/truth/mutants/bin/{mutant}{kind}.bpf.o"
    engine = Engine(process.pid, plan, Options(programs=programs))
    try:
        engine.attach()
        yield engine
    finally:
        engine.close()


def afterwards(
    program: Path, repository: Path, way: str, mutant: str = ""
) -> tuple[Counter[str], Counter[str]]:
    """The phases of the thread when the ledger is back, and after its next boundary."""
    with running(program, "unseen", way) as process:
        lines_until(process, "ready")
        with attached(process, repository, mutant) as engine:
            go(process)
            if phase := WAYS[way]:
                assert set(watch(engine)) == {phase}
            engine.detach_dense()
            engine.detach_connections()
            go(process)  # nothing sees that
            engine.attach_dense()
            found = watch(engine)
            go(process)
            watch(engine)  # the rest of the other stage is in it
            later = watch(engine)
            assert process.stdin is not None
            process.stdin.write(b"g")
            lines_until(process, "done")
    return found, later


@pytest.mark.parametrize("way", WAYS)
def test_what_a_thread_did_before_is_forgotten_with_its_connection(
    truth_program: Path, repository: Path, way: str
) -> None:
    found, later = afterwards(truth_program, repository, way)
    note("unknown, ns", sum(found.values()), found["unknown"])
    assert set(found) == {"unknown"}
    assert set(later) == {"connect"}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="mutants are built for x86-64")
@pytest.mark.parametrize("way", WAYS)
def test_a_ledger_that_forgets_nothing_has_it_in_a_phase_that_is_over(
    truth_program: Path, repository: Path, way: str
) -> None:
    found, _ = afterwards(truth_program, repository, way, "KEEP_CONNECTION-1")
    assert "unknown" not in found
    assert set(found) <= STALE[way]


def test_what_a_thread_did_before_is_known_where_connections_are_seen(
    truth_program: Path, repository: Path
) -> None:
    """At level `connection` its boundaries are seen all the time: it is what it was."""
    with running(truth_program, "unseen", "connect") as process:
        lines_until(process, "ready")
        with attached(process, repository) as engine:
            go(process)
            engine.detach_dense()
            engine.attach_dense()
            assert set(watch(engine)) == {"connect"}
            for _ in range(3):
                assert process.stdin is not None
                process.stdin.write(b"g")
            lines_until(process, "done")


@pytest.fixture
def windows(truth_program: Path, repository: Path, tmp_path: Path) -> dict[int, dict[str, int]]:
    """The thread's phases in each dense window, by its start, under a budget for handshakes only.

    Key 0: when the thread had left its connection.
    """
    with running(truth_program, "unseen", "connect", "churn") as process:
        lines_until(process, "ready")
        assert process.stdin is not None
        target, plan = plan_in_child(process.pid, extra=repository / "tests/testprogs")
        sites = tuple(
            replace(site, cost_ns=DEAR_NS) if lowest_level(site) == "connection" else site
            for site in plan.sites
        )
        text = plan_file_text(target, replace(plan, sites=sites), Safety(guarded=is_guarded()))
        left: list[int] = []
        tids: list[int] = []

        def run() -> None:
            go(process)
            time.sleep(BEFORE_S)
            go(process)
            left.append(monotonic_ns())
            tids.append(tid_of(process.pid))
            time.sleep(AFTER_S)

        recorded = record(process.pid, text, tmp_path, run, ("--budget", BUDGET))
        for _ in range(2):
            process.stdin.write(b"g")
        lines_until(process, "done")
    assert recorded.budget.light == b"handshake"
    capture = tmp_path / "a.tlstax"
    with (tmp_path / "truth.stream").open("rb") as stream:
        import_stream(stream, "truth", capture, overwrite=False)
    with CaptureReader.open(capture) as reader:
        threads = {row.thread_id for row in reader.rows(Thread) if row.tid in tids}
        starts = {row.window_id: row.start_ns for row in reader.rows(Window)}
        found: dict[int, dict[str, int]] = defaultdict(Counter)
        for row in reader.rows(Ledger):
            if row.thread_id in threads:
                found[starts[row.window_id]][row.phase] += row.time_ns
    return {0: {"left": left[0]}, **found}


@pytest.mark.timing
def test_the_recorder_tells_that_boundaries_were_not_seen(
    windows: dict[int, dict[str, int]],
) -> None:
    left_ns = windows.pop(0)["left"]
    assert "connect" in windows[min(windows)], "the trial"
    later = [phases for start_ns, phases in windows.items() if start_ns > left_ns]
    assert len(later) >= DENSE_LEAST
    assert {phase for phases in later for phase in phases} == {"unknown"}
