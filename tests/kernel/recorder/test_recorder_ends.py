# SPDX-License-Identifier: GPL-2.0-only
"""How recordings of the static recorder end, and that nothing of it stays."""

import fcntl
import io
import os
import resource
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tlstax.collectors.capture.schema import Handshake
from tlstax.collectors.recording.stream.definition import definition
from tlstax.collectors.recording.stream_recording import import_stream
from tlstax.tests.freezing import frozen_processes
from tlstax.tests.kernel.recorder_runs import (
    GONE_SECONDS,
    HANDSHAKES,
    IO,
    OK,
    PROGRAM,
    TARGET,
    Breakpoints,
    Leftover,
    Record,
    Started,
    await_attached,
    await_no_probes,
    dumped,
    frames_of,
    last_of,
    maps_of,
    plan_text,
    queue_bytes,
    rows_of,
    serve,
)
from tlstax.tests.patience import COMMAND_S

FAILED, IDLE_SECONDS = 1, 2.2
QUEUE_BYTES = 256 << 10
DENSE = ("--window", "10ms", "--queue", "256K", "--sample-hz", "999")  # fills pipes
FULL_SECONDS = 3.0  # more than the windows of a server without work need to fill the queue
pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]


def test_nothing_stays(
    recorded_server: "subprocess.Popen[bytes]", record_it: Record, breakpoints: Breakpoints,
    leftover: Leftover,
) -> None:  # fmt: skip
    recorder = record_it()
    await_attached(recorder)
    assert breakpoints(recorded_server.pid) > 10
    recorder.terminate()
    _, errors = recorder.communicate(timeout=COMMAND_S)
    assert recorder.returncode == OK, errors
    assert breakpoints(recorded_server.pid) == 0
    assert leftover() == set()


def test_a_target_that_ends_as_the_recorder_is_asked_to_has_ended(
    recorded_server: "subprocess.Popen[bytes]", record_it: Record
) -> None:
    """As one Ctrl-C for both does, or a container that stops."""
    recorder = record_it()
    await_attached(recorder)
    recorder.send_signal(signal.SIGSTOP)  # so that it meets both at once
    recorded_server.kill()
    recorded_server.wait()
    recorder.terminate()
    recorder.send_signal(signal.SIGCONT)
    stream, errors = recorder.communicate(timeout=COMMAND_S)
    assert recorder.returncode == TARGET, errors
    assert last_of(stream, "end").ending == b"it exited or was killed"


@pytest.mark.timing
def test_a_stopped_recorder_is_killed(
    recorded_server: "subprocess.Popen[bytes]", record_it: Record, breakpoints: Breakpoints
) -> None:
    recorder = record_it(stdout=subprocess.DEVNULL)
    await_attached(recorder)
    assert breakpoints(recorded_server.pid) > 10
    recorder.send_signal(signal.SIGSTOP)
    assert await_no_probes(breakpoints, recorded_server.pid, GONE_SECONDS) <= GONE_SECONDS
    assert recorder.wait(10) == -signal.SIGKILL
    assert recorder.stderr is not None
    assert b"did not run for 2 s and is killed" in recorder.stderr.read()


@contextmanager
def stopped_processes(*pids: int) -> Iterator[None]:
    """Each by itself: the watchdog first, or it would notice."""
    for pid in reversed(pids):
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pids[0], signal.SIGCONT)


@pytest.mark.timing
@pytest.mark.skipif(shutil.which("bpftool") is None, reason="bpftool reads the map")
@pytest.mark.parametrize("halted", [stopped_processes, frozen_processes])
def test_programs_are_idle_while_recorder_and_watchdog_are_frozen(
    recorded_server: "subprocess.Popen[bytes]", record_it: Record, breakpoints: Breakpoints,
    halted: Callable[..., AbstractContextManager[None]],
) -> None:  # fmt: skip
    """A frozen process cannot be killed: its probes must cost next to nothing until it thaws."""
    recorder = record_it()
    await_attached(recorder)
    (hits,) = maps_of(recorder.pid, "hits")
    children = Path(f"/proc/{recorder.pid}/task/{recorder.pid}/children").read_text().split()
    (watchdog,) = map(int, children)
    with halted(recorder.pid, watchdog):
        time.sleep(IDLE_SECONDS)
        assert breakpoints(recorded_server.pid) > 10
        counted = dumped(hits)
        serve(recorded_server)
        assert dumped(hits) == counted
    assert await_no_probes(breakpoints, recorded_server.pid, GONE_SECONDS) <= GONE_SECONDS
    stream, errors = recorder.communicate(timeout=COMMAND_S)
    if halted is frozen_processes:  # both thaw, and either may be the first to notice
        assert recorder.returncode in (FAILED, -signal.SIGKILL), errors
    else:
        assert recorder.returncode == FAILED, errors
    assert b"did not run for 2 s" in errors
    if recorder.returncode == FAILED:
        # What the programs did not see is in no window.
        assert last_of(stream, "window").end_ns < last_of(stream, "end").time_ns - 2 * 10**9


def test_ctrl_z_does_not_stop_it(record_it: Record) -> None:
    recorder = record_it("--for", "1s")
    await_attached(recorder)
    recorder.send_signal(signal.SIGTSTP)
    _, errors = recorder.communicate(timeout=COMMAND_S)
    assert recorder.returncode == OK, errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_signals_end_it_in_order(record_it: Record, number: signal.Signals) -> None:
    recorder = record_it()
    await_attached(recorder)
    recorder.send_signal(number)
    stream, errors = recorder.communicate(timeout=COMMAND_S)
    assert recorder.returncode == OK, errors
    assert frames_of(stream)[0][definition().number("END")] == 1


@pytest.mark.timing
@pytest.mark.parametrize("blocks", [True, False], ids=["", "a descriptor that does not block"])
def test_a_pipe_that_nobody_reads(
    recorded_server: "subprocess.Popen[bytes]", record_it: Record, breakpoints: Breakpoints,
    blocks: bool, request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    """Probes are gone within three seconds from when pipe and queue are full."""
    assert breakpoints(recorded_server.pid) == 0  # plans, which takes long
    reading, writing = os.pipe()
    request.addfinalizer(lambda: os.close(reading))
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writing, blocks)
    recorder = record_it(*DENSE, stdout=writing)
    os.close(writing)
    await_attached(recorder)
    serving = threading.Thread(target=serve, args=(recorded_server,))
    serving.start()
    begin_s = full_s = time.monotonic()
    used_bytes = 0
    while breakpoints(recorded_server.pid):
        now_s = time.monotonic()
        if (now_bytes := queue_bytes(recorder.pid)) != used_bytes:
            used_bytes, full_s = now_bytes, now_s
        assert now_s < begin_s + COMMAND_S, used_bytes
        time.sleep(0.02)
    assert time.monotonic() <= full_s + GONE_SECONDS
    assert used_bytes > 0.75 * QUEUE_BYTES
    serving.join(COMMAND_S)
    assert recorder.stderr is not None
    said = recorder.stderr.read()
    assert recorder.wait(60) == IO, said
    assert b"took nothing for 2 s" in said


@pytest.mark.timing
def test_a_reader_that_takes_no_more(
    recorded_server: "subprocess.Popen[bytes]", record_it: Record, breakpoints: Breakpoints
) -> None:
    """Probes are gone within three seconds from the last byte that was taken of a full queue."""
    assert breakpoints(recorded_server.pid) == 0  # plans, which takes long
    recorder = record_it(*DENSE, pipe_bytes=4096)
    await_attached(recorder)
    assert recorder.stdout is not None
    serving = threading.Thread(target=serve, args=(recorded_server,))
    serving.start()
    # It reads more slowly than windows come. A queue that was used to its end has room for what
    # was read until then, which windows need less than FULL_SECONDS for.
    used_s, begin_s = 0.0, time.monotonic()
    while not used_s or time.monotonic() < used_s + FULL_SECONDS:
        assert os.read(recorder.stdout.fileno(), 4096), recorder.communicate()
        taken_s = time.monotonic()
        if not used_s and queue_bytes(recorder.pid) >= QUEUE_BYTES:
            used_s = taken_s
        assert taken_s < begin_s + COMMAND_S
        time.sleep(0.2)
    assert breakpoints(recorded_server.pid) > 10
    await_no_probes(breakpoints, recorded_server.pid, GONE_SECONDS)
    assert time.monotonic() <= taken_s + GONE_SECONDS
    serving.join(COMMAND_S)
    assert recorder.stderr is not None
    said = recorder.stderr.read()
    assert recorder.wait(60) == IO, said
    assert b"took nothing for 2 s" in said


def test_a_reader_that_goes_away(
    recorded_server: "subprocess.Popen[bytes]", record_it: Record, breakpoints: Breakpoints
) -> None:
    """Noticed at once, not only when something is written."""
    recorder = record_it("--window", "1m", pipe_bytes=1 << 20)
    await_attached(recorder)
    time.sleep(0.5)  # all that it has to write is in the pipe
    assert recorder.stdout is not None
    recorder.stdout.close()
    assert recorder.wait(GONE_SECONDS) == IO
    assert recorder.stderr is not None
    assert b"reader of the stream is gone" in recorder.stderr.read()
    assert breakpoints(recorded_server.pid) == 0


def test_a_slow_reader_costs_windows_and_no_record(
    recorded_server: "subprocess.Popen[bytes]", record_it: Record, tmp_path: Path
) -> None:
    recorder = record_it(*DENSE, pipe_bytes=4096)
    await_attached(recorder)
    parts: list[bytes] = []
    is_served = threading.Event()

    def read_slowly() -> None:
        assert recorder.stdout is not None
        while not is_served.wait(0.2):
            parts.append(os.read(recorder.stdout.fileno(), 4096))
        parts.append(recorder.stdout.read())

    reader = threading.Thread(target=read_slowly)
    reader.start()
    serve(recorded_server)
    time.sleep(FULL_SECONDS)
    recorder.send_signal(signal.SIGTERM)
    is_served.set()
    reader.join(60)
    assert recorder.stderr is not None
    said = recorder.stderr.read()
    assert recorder.wait(60) == OK, said
    stream = b"".join(parts)
    assert last_of(stream, "end").merged_count > 0
    import_stream(io.BytesIO(stream), "x", tmp_path / "a.tlstax", overwrite=False)
    assert len(rows_of(tmp_path / "a.tlstax", Handshake)) == HANDSHAKES


@pytest.mark.timing
def test_a_full_disk_ends_it(
    recorded_server: "subprocess.Popen[bytes]", record_it: Record, breakpoints: Breakpoints
) -> None:
    """No write succeeds: it is noticed at the first one."""
    assert breakpoints(recorded_server.pid) == 0  # plans, which takes long
    with open("/dev/full", "wb") as full:
        recorder = record_it(stdout=full)
        await_attached(recorder)
        assert await_no_probes(breakpoints, recorded_server.pid, GONE_SECONDS) <= GONE_SECONDS
        assert recorder.wait(60) == IO
    assert recorder.stderr is not None
    assert b"No space left on device" in recorder.stderr.read()


@pytest.mark.timing
def test_a_write_that_fails_later_ends_it(
    recorded_server: "subprocess.Popen[bytes]", record_it: Record, breakpoints: Breakpoints,
    tmp_path: Path,
) -> None:  # fmt: skip
    """Here by a limit of the size of files, which is set while probes are attached."""
    with open(tmp_path / "a.stream", "wb") as stream:
        recorder = record_it(stdout=stream)
        await_attached(recorder)
        assert breakpoints(recorded_server.pid) > 10
        resource.prlimit(recorder.pid, resource.RLIMIT_FSIZE, (1, 1))
        assert await_no_probes(breakpoints, recorded_server.pid, GONE_SECONDS) <= GONE_SECONDS
        assert recorder.wait(60) == IO
    assert recorder.stderr is not None
    assert b"File too large" in recorder.stderr.read()


def test_messages_do_not_get_into_the_stream(
    recorded_server: "subprocess.Popen[bytes]", plan_path: Path, spawn: Record, tmp_path: Path
) -> None:
    """With standard streams closed, the stream's file would get the number of stderr."""
    stream = tmp_path / "x.stream"
    words = [PROGRAM, "--plan", plan_path, "--pid", recorded_server.pid, "--for", "1s"]
    command = ["bash", "-c", 'exec "$@" <&- 2>&-', "bash", *map(str, words)]
    assert spawn([*command, "--output", str(stream)]).wait(60) == OK
    counts, reading = frames_of(stream.read_bytes())
    assert counts[definition().number("END")] == 1
    assert reading.why_ended == ""


def test_a_target_that_ends(recorded_server: "subprocess.Popen[bytes]", record_it: Record) -> None:
    recorder = record_it()
    await_attached(recorder)
    serve(recorded_server)
    assert recorded_server.stdin is not None
    recorded_server.stdin.write(b"x")
    stream, errors = recorder.communicate(timeout=COMMAND_S)
    assert recorder.returncode == TARGET
    assert b"it exited or was killed" in errors
    assert last_of(stream, "end").ending == b"it exited or was killed"
    assert frames_of(stream)[0][definition().number("ERROR")] == 1


def test_a_target_that_executes_another_program(
    program: Path, started: Started, repository: Path, tmp_path: Path, spawn: Record
) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    script.chmod(0o755)
    target = started(program, "execute", script, "20")
    path = tmp_path / "x.plan"
    path.write_text(plan_text(target.pid, repository))
    command = [PROGRAM, "--plan", path, "--pid", str(target.pid)]
    recorder = spawn(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    await_attached(recorder)
    assert target.stdin is not None
    target.stdin.write(b"g")
    stream, errors = recorder.communicate(timeout=COMMAND_S)
    assert recorder.returncode == TARGET
    assert b"it executed /" in errors
    assert last_of(stream, "window").executed_ns > 0
