# SPDX-License-Identifier: GPL-2.0-only
"""The recorder under a budget: what is on when, that windows join, and what is refused."""

import io
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Effect, Handshake, Ledger, Thread, Window
from tlstax.collectors.recording.stream.definition import definition
from tlstax.collectors.recording.stream.frames import Reading, read_frames, record
from tlstax.collectors.recording.stream.replay import Replay
from tlstax.collectors.recording.stream_recording import import_stream
from tlstax.tests import least_budget
from tlstax.tests.kernel.recorder_runs import (
    HANDSHAKES,
    OK,
    PROGRAM,
    SANITIZED,
    Breakpoints,
    Leftover,
    Record,
    Started,
    await_attached,
    frames_named,
    frames_of,
    last_of,
    plan_text,
    rows_of,
    serve,
)
from tlstax.tests.patience import COMMAND_S

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]
BUDGET = 7
LOAD_MS, WORK_US = 90_000, 5
DENSE_LEAST, PATIENCE_S = 3, 40.0
# Traps are dear on an emulated CPU: whether 5 % suffice to alternate, or 50 % for everything,
# depends on the kernel. Tests of that are of `timing`.
EVERYTHING_PERCENT = 50
DETAILED, MANY = ("handshake", "connection"), 6000
BUDGETS = ("6%", "5%", "4%", "7%", "3%", "8%", "2%")  # what each suffices for is the host's
ROUND_NS = 2_000_000  # a window ends where its accounts are read, one after another
Run = Callable[..., tuple[int, str, Path]]


@pytest.fixture
def run(record_it: Record, recorded_server: "subprocess.Popen[bytes]", tmp_path: Path) -> Run:
    """Record all that the server serves: exit status, what was said, the stream."""

    def measure(*options: str, idle_s: float = 0) -> tuple[int, str, Path]:
        path = tmp_path / "a.stream"
        with path.open("wb") as stream:
            recorder = record_it(*options, stdout=stream)
            await_attached(recorder)
            time.sleep(idle_s)
            serve(recorded_server)
            if "--for" not in options:
                recorder.send_signal(signal.SIGINT)
            _, said = recorder.communicate(timeout=COMMAND_S)
        return recorder.returncode, said.decode(), path

    return measure


def capture_of(stream: Path) -> Path:
    capture = stream.with_suffix(".tlstax")
    with stream.open("rb") as file:
        import_stream(file, stream.name, capture, overwrite=False)
    return capture


def meta_of(capture: Path) -> dict[str, str]:
    with CaptureReader.open(capture) as reader:
        return reader.meta()


@pytest.mark.timing
def test_everything_that_fits_is_recorded_all_the_time(run: Run, leftover: Leftover) -> None:
    code, said, stream = run("--budget", f"{EVERYTHING_PERCENT}%")
    assert code == OK, said
    capture = capture_of(stream)
    windows = rows_of(capture, Window)
    assert {row.level for row in windows} == {"full"}
    assert all(a.end_ns == b.start_ns for a, b in pairwise(windows))
    assert Counter(row.outcome for row in rows_of(capture, Handshake)) == {"success": HANDSHAKES}
    meta = meta_of(capture)
    assert float(meta["budget_share"]) == EVERYTHING_PERCENT / 100
    assert "everything, all the time" in meta["budget_choice"]
    assert float(meta["predicted_share"]) <= EVERYTHING_PERCENT / 100
    effects = rows_of(capture, Effect)
    assert len(effects) == len(windows)
    assert sum(row.probe_ns for row in effects) > HANDSHAKES * 1000
    assert leftover() == set()


@pytest.mark.timing
@pytest.mark.parametrize("options", [(), ("--or-everything",)])
def test_a_budget_that_nothing_fits(
    run: Run, options: tuple[str, ...], leftover: Leftover, breakpoints: Breakpoints,
    recorded_server: "subprocess.Popen[bytes]",
) -> None:  # fmt: skip
    """It is refused in words; the default budget does not prevent a recording.

    The server is idle in the trial.

    Not ended by an interrupt, which may come before the trial is over.
    """
    words = (*least_budget.OPTIONS, *least_budget.FLOOR, "--for", "3s", *options)
    code, said, stream = run(*words, idle_s=1)
    assert leftover() == set()
    assert breakpoints(recorded_server.pid) == 0
    if not options:
        assert code == BUDGET
        assert "nothing can be recorded for 0.1%" in said
        assert last_of(stream.read_bytes(), "error").exit_code == BUDGET
        assert last_of(stream.read_bytes(), "window").level != b"record"
        return
    assert code == OK, said
    capture = capture_of(stream)
    # It was tried what turning the ledger off costs; handshakes were recorded meanwhile, too.
    assert rows_of(capture, Window)[-1].level == "full"
    assert Counter(row.outcome for row in rows_of(capture, Handshake)) == {"success": HANDSHAKES}
    assert "budget_share" not in meta_of(capture)


def dense_count(stream: Path) -> int:
    """Windows in which everything was on, so far."""
    window = definition().number("WINDOW")
    frames = read_frames(io.BytesIO(stream.read_bytes()), Reading())
    return sum(f.type == window and record("window", f.content).level == b"record" for f in frames)


class Alternated(NamedTuple):
    """A recording in which the level changed often."""

    stream: bytes
    sizes_kb: list[int]
    """Of the recorder's data, at times of the recording."""
    breakpoints: list[int]
    """In the target, at these times."""
    often: list[bool]
    """Of each site of the plan, whether every command crosses it."""


def data_kb(pid: int) -> int:
    """The size of what a process has mapped for data, heap and stacks."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmData"))


@pytest.fixture
def alternated(
    program: Path, started: Started, spawn: Record, repository: Path, tmp_path: Path,
    measured: Callable[..., Alternated], leftover: Leftover, breakpoints: Breakpoints,
) -> Alternated:  # fmt: skip
    """The recording of threads that wake each other all the time, for 5 % of their CPU time."""

    def measure() -> Alternated:
        target = started(program, "load", 4, LOAD_MS, WORK_US)
        plan, path = tmp_path / "load.plan", tmp_path / "load.stream"
        plan.write_text(plan_text(target.pid, repository))
        assert target.stdin is not None
        target.stdin.write(b"g")
        command = [PROGRAM, "--plan", plan, "--pid", target.pid, "--budget", "5%"]
        command.append("--measure-cost")  # what that turns on in light windows is in none
        with path.open("wb") as stream:
            recorder = spawn([str(part) for part in command], stdout=stream, stderr=subprocess.PIPE)
            await_attached(recorder)
            until_s = time.monotonic() + PATIENCE_S
            sizes_kb: list[int] = []
            counts: list[int] = []
            while len(sizes_kb) < 2 or (  # an emulated CPU takes long to look once
                dense_count(path) < DENSE_LEAST + 2 and time.monotonic() < until_s
            ):
                time.sleep(0.5)
                assert recorder.poll() is None, "it has seen too few dense windows"
                sizes_kb.append(data_kb(recorder.pid))
                counts.append(breakpoints(target.pid))
            recorder.send_signal(signal.SIGINT)
            _, said = recorder.communicate(timeout=COMMAND_S)
        assert recorder.returncode == OK, said
        assert leftover() == set()
        sites = [line for line in plan.read_text().splitlines() if line.startswith("site ")]
        often = [" from=ledger " in line for line in sites]
        return Alternated(path.read_bytes(), sizes_kb, counts, often)

    return measured("alternated by recorder", measure)


@pytest.fixture
def capture(alternated: Alternated, tmp_path: Path) -> Path:
    path = tmp_path / "b.stream"
    path.write_bytes(alternated.stream)
    return capture_of(path)


@pytest.mark.timing
def test_windows_alternate_and_join(capture: Path) -> None:
    windows = rows_of(capture, Window)
    assert all(a.end_ns == b.start_ns for a, b in pairwise(windows))
    levels = [row.level for row in windows]
    assert levels[0] == "full", "the trial"
    assert levels.count("full") >= DENSE_LEAST
    assert set(levels) - {"full"}
    assert not any(a == b == "full" for a, b in pairwise(levels))
    full_ns = sum(row.end_ns - row.start_ns for row in windows if row.level == "full")
    assert full_ns < 0.5 * (windows[-1].end_ns - windows[0].start_ns)
    assert "in windows of" in meta_of(capture)["budget_choice"]


@pytest.mark.timing
def test_the_ledger_of_a_window_is_that_of_its_time(capture: Path) -> None:
    """What was charged before it began, or while it was off, is in no window."""
    windows = {row.window_id: row for row in rows_of(capture, Window)}
    threads = {row.thread_id: row for row in rows_of(capture, Thread)}
    spent: defaultdict[tuple[int, int], int] = defaultdict(int)
    for row in rows_of(capture, Ledger):
        assert windows[row.window_id].level == "full"
        spent[row.window_id, row.thread_id] += row.time_ns
    assert len({window_id for window_id, _ in spent}) >= DENSE_LEAST
    for (window_id, thread_id), time_ns in spent.items():
        window, thread = windows[window_id], threads[thread_id]
        if thread.end_ns is None and thread.start_ns < window.start_ns:
            length_ns = window.end_ns - window.start_ns
            assert abs(time_ns - length_ns) < ROUND_NS, (window, thread)


@pytest.mark.timing
def test_what_is_off_is_not_attached(alternated: Alternated) -> None:
    """Most of the time only those probes are there that connections and handshakes cross."""
    assert any(alternated.often)
    assert min(alternated.breakpoints) <= alternated.often.count(False), alternated.breakpoints


@pytest.mark.timing
@pytest.mark.skipif(SANITIZED, reason="the sanitizers keep what was freed")
def test_changing_levels_takes_no_memory(alternated: Alternated) -> None:
    assert len(alternated.sizes_kb) > 1
    assert len(set(alternated.sizes_kb)) == 1, alternated.sizes_kb


@pytest.mark.timing
def test_the_budget_is_in_the_stream_behind_the_trial(alternated: Alternated) -> None:
    _, reading = frames_of(alternated.stream)
    assert reading.why_ended == ""
    budget = last_of(alternated.stream, "budget")
    assert budget.share_ppm == 50_000
    assert budget.dense == b"record"
    assert budget.cycle_ns > budget.dense_ns


KNOWN_RUNS = 2000
"""Of the programs at entries and at exits: then their mean run time is known."""


def light_windows(stream: bytes) -> list[tuple[bytes, bool, bool]]:
    """Windows with probes between dense ones: level, whether timed, whether times were known."""
    replay = Replay(io.BytesIO(stream))
    found: list[tuple[bytes, bool, bool]] = []
    while True:
        runs = [replay.programs.get(name, (0, 0))[1] for name in ("on_enter", "on_leave")]
        if not replay.next_window():
            return found
        level = bytes(replay.window.level)
        if level not in (b"record", b"sample", b"none"):
            found.append((level, bool(replay.window.timed), min(runs) >= KNOWN_RUNS))


@pytest.mark.timing
def test_light_time_is_timed_until_the_cost_of_a_hit_is_known(
    run: Run, alternated: Alternated
) -> None:
    """A trial of 0.2 s meets some dozen hits of few handshakes, and thousands of a busy server."""
    code, said, stream = run("--budget", "3%")
    assert code == OK, said
    # On some hosts samples alone fit for so few handshakes, or nothing, or everything does.
    few = light_windows(stream.read_bytes())
    assert all(is_timed != is_known for _, is_timed, is_known in few[:1]), few
    long = light_windows(alternated.stream)
    assert long[-1][1:] == (False, True), long


@pytest.mark.timing
def test_samples_cost_the_same_with_and_without_a_ledger(alternated: Alternated) -> None:
    """What was timed at the end of light time only tells nothing of all its samples."""
    spent_ns: Counter[bool] = Counter()
    length_ns: Counter[bool] = Counter()
    windows = frames_named("window", alternated.stream)
    for before, window in pairwise(windows):
        is_dense = window.level == b"record"
        spent_ns[is_dense] += window.samples_ns
        length_ns[is_dense] += window.end_ns - before.end_ns
    with_ledger, without = (spent_ns[one] / length_ns[one] for one in (True, False))
    assert 0.3 < without / with_ledger < 3, (without, with_ledger)


@pytest.mark.timing
def test_handshakes_have_all_operations_where_a_window_says_so(
    program: Path, started: Started, spawn: Record, repository: Path, tmp_path: Path
) -> None:
    """What the level between dense windows has more is attached before its window begins."""
    for budget in BUDGETS:
        server = started(program, "tls", "s" * MANY)
        plan, stream = tmp_path / "tls.plan", tmp_path / f"{budget}.stream"
        plan.write_text(plan_text(server.pid, repository))
        assert server.stdin is not None
        server.stdin.write(b"g")
        command = [PROGRAM, "--plan", plan, "--pid", server.pid, "--budget", budget, "--for", "2s"]
        with stream.open("wb") as to:
            recorder = spawn([str(part) for part in command], stdout=to, stderr=subprocess.PIPE)
            _, said = recorder.communicate(timeout=COMMAND_S)
        server.kill()
        if recorder.returncode == BUDGET:
            continue
        assert recorder.returncode == OK, said
        capture = capture_of(stream)
        light = {row.window_id for row in rows_of(capture, Window) if row.level in DETAILED}
        if light:
            break
    else:
        pytest.fail("no budget has all operations of handshakes between dense windows")
    detailed = [row for row in rows_of(capture, Handshake) if row.verify_ns >= 0]
    assert any(row.window_id in light for row in detailed)
    assert all(row.keygen_ns > 0 and row.derive_ns > 0 for row in detailed)
