# SPDX-License-Identifier: GPL-2.0-only
"""A recorder that gets no CPU for seconds, on a host that is busier than it: it goes on."""

import io
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tlstax.collectors.capture.schema import Handshake, Loss, PrimitiveTime, Window
from tlstax.collectors.placement.planning import plan_functions_in_child, plan_in_child
from tlstax.collectors.preflight.safety import Safety
from tlstax.collectors.recording.stream.plan_file import plan_file_text
from tlstax.collectors.recording.stream_recording import import_stream
from tlstax.probes.model import CATEGORIES, Level
from tlstax.tests.kernel.recorder_runs import (
    GONE_SECONDS,
    HANDSHAKES,
    OK,
    Breakpoints,
    Record,
    await_attached,
    await_no_probes,
    rows_of,
    serve,
)
from tlstax.tests.patience import COMMAND_S
from tlstax.tests.processes import children_of
from tlstax.tests.truth.by_recorder import record
from tlstax.tests.truth.test_functions import skip_where_refused

STARVED_SECONDS, RECOVERY_SECONDS, STOPPED_SECONDS = 5.0, 2.0, 2.2
LONG_ROUNDS, LONG_UNIT_US, LONGEST_UNITS = 7, 20_000, 32  # 1.4 s a round, half of it one function
LOOPS, AHEAD = 3, -10
pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]


def tasks_of(pid: int) -> list[int]:
    return [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]


@contextmanager
def starving(pid: int) -> Iterator[None]:
    """All threads of a process on a CPU that loops want, which weigh 3,000 times as much each.

    In one session and control group with them: the scheduler weighs these as a whole first.
    """
    cpu = max(os.sched_getaffinity(0))
    loops = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(LOOPS)]
    tasks = tasks_of(pid)
    try:
        for loop in loops:
            os.sched_setaffinity(loop.pid, {cpu})
            os.setpriority(os.PRIO_PROCESS, loop.pid, AHEAD)
        for task in tasks:
            os.sched_setscheduler(task, os.SCHED_IDLE, os.sched_param(0))
            os.sched_setaffinity(task, {cpu})
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
        for task in tasks:
            with suppress(ProcessLookupError):  # it was killed
                os.sched_setscheduler(task, os.SCHED_OTHER, os.sched_param(0))


@pytest.mark.timing
@pytest.mark.parametrize("more", [(), ("--budget", "5%")], ids=["all the time", "budget"])
def test_it_goes_on_when_it_gets_a_cpu_again(
    recorded_server: "subprocess.Popen[bytes]", record_it: Record, breakpoints: Breakpoints,
    tmp_path: Path, more: tuple[str, ...],
) -> None:  # fmt: skip
    """The programs are idle meanwhile, and what they hold is in no window."""
    recorder = record_it(*more)
    await_attached(recorder)
    with starving(recorder.pid):
        time.sleep(STARVED_SECONDS)
        idle_ns = time.monotonic_ns()
        assert recorder.poll() is None
        assert breakpoints(recorded_server.pid) > 0
    time.sleep(RECOVERY_SECONDS)
    serve(recorded_server)
    recorder.send_signal(signal.SIGTERM)
    stream, errors = recorder.communicate(timeout=COMMAND_S)
    assert recorder.returncode == OK, errors
    capture = tmp_path / "a.tlstax"
    import_stream(io.BytesIO(stream), "x", capture, overwrite=False)
    windows = rows_of(capture, Window)
    (lapse,) = (w for w in windows if w.start_ns < idle_ns <= w.end_ns)
    assert lapse.level == "none"
    assert max(w.end_ns for w in windows if w.level == "full") > lapse.end_ns
    losses = [row for row in rows_of(capture, Loss) if row.kind == "recorder_starved"]
    assert sum(row.lost_count for row in losses) >= 1
    if not more:
        assert len(rows_of(capture, Handshake)) == HANDSHAKES


@pytest.mark.timing
def test_it_is_killed_at_once_if_it_is_stopped_while_it_starves(
    recorded_server: "subprocess.Popen[bytes]", record_it: Record, breakpoints: Breakpoints
) -> None:
    recorder = record_it(stdout=subprocess.DEVNULL)
    await_attached(recorder)
    recorder.send_signal(signal.SIGSTOP)
    with starving(recorder.pid):
        time.sleep(STOPPED_SECONDS)
    assert await_no_probes(breakpoints, recorded_server.pid, GONE_SECONDS) <= GONE_SECONDS
    assert recorder.wait(10) == -signal.SIGKILL


@pytest.mark.timing
def test_a_call_that_was_open_when_the_recorder_starved_is_not_timed(
    repository: Path, tmp_path: Path
) -> None:
    """Meanwhile the thread left it unseen, and was in another call at the same place later."""
    skip_where_refused()
    program, definitions = (
        repository / "tests/testprogs/bin/functions",
        repository / "tests/testprogs",
    )
    with subprocess.Popen(
        [program, str(LONG_ROUNDS), str(LONG_UNIT_US)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        functions = plan_functions_in_child(process.pid, tuple(CATEGORIES), definitions)
        target, plan = plan_in_child(process.pid, Level.SAMPLE, definitions)
        text = plan_file_text(target, plan, Safety(), functions)

        def run() -> None:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"g")
            time.sleep(0.5)
            found = children_of(os.getpid()).items()
            (recorder,) = (pid for pid, name in found if name.startswith("tlstax-rec"))
            with starving(recorder):
                time.sleep(STARVED_SECONDS)
            process.stdout.readline()

        try:
            recorded = record(process.pid, text, tmp_path, run)
        finally:
            process.kill()
    assert recorded.function_rows is not None
    rows = recorded.function_rows.cut(1)
    longest_ns = max(row.low_ns for row in rows if isinstance(row, PrimitiveTime))
    assert longest_ns < 2 * LONGEST_UNITS * LONG_UNIT_US * 1000
    assert recorded.functions.losses["function_healed"] >= 1
