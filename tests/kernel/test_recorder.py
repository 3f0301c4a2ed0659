# SPDX-License-Identifier: GPL-2.0-only
"""The static recorder: what it records, what it refuses, and that nothing of it stays."""

import fcntl
import io
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tlstax import TlstaxError
from tlstax.__main__ import main
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Handshake, Ledger, Meta, Probe, Thread, Window
from tlstax.collectors.commands.recorder import recorder_path
from tlstax.collectors.placement.planning import plan_in_child
from tlstax.collectors.preflight.safety import Safety
from tlstax.collectors.recording.engine.native import Engine, Options
from tlstax.collectors.recording.stream.definition import definition
from tlstax.collectors.recording.stream.frames import Reading, read_frames, record
from tlstax.collectors.recording.stream.plan_file import plan_file_text
from tlstax.collectors.recording.stream_capture import import_stream

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

OK, USAGE, TARGET, IO = 0, 2, 4, 6
HANDSHAKES = 200
SIZE_MOST, GONE_SECONDS = 2 << 20, 3.0
Started = Callable[..., "subprocess.Popen[bytes]"]
Breakpoints = Callable[[int], int]
Leftover = Callable[[], set[tuple[str, int]]]
Record = Callable[..., "subprocess.Popen[bytes]"]
PROGRAM = Path(os.environ.get("TLSTAX_RECORDER") or recorder_path())
SANITIZED = "TLSTAX_RECORDER" in os.environ


def plan_text(pid: int, repository: Path) -> str:
    target, plan = plan_in_child(pid, extra=repository / "tests/testprogs")
    return plan_file_text(target, plan, Safety())


@pytest.fixture
def server(program: Path, started: Started) -> "subprocess.Popen[bytes]":
    """The truth program, which waits for a byte and then serves."""
    return started(program, "tls", "s" * HANDSHAKES)


@pytest.fixture
def plan_path(server: "subprocess.Popen[bytes]", repository: Path, tmp_path: Path) -> Path:
    path = tmp_path / "server.plan"
    path.write_text(plan_text(server.pid, repository))
    return path


@pytest.fixture
def record_it(
    server: "subprocess.Popen[bytes]", plan_path: Path, spawn: Record
) -> Callable[..., "subprocess.Popen[bytes]"]:
    """Start the recorder on the server; its stream goes to a pipe unless told otherwise."""

    def run(*more: object, stdout: Any = subprocess.PIPE) -> "subprocess.Popen[bytes]":
        command = [PROGRAM, "--plan", plan_path, "--pid", server.pid, "--window", "100ms", *more]
        return spawn([str(part) for part in command], stdout=stdout, stderr=subprocess.PIPE)

    return run


def await_attached(recorder: "subprocess.Popen[bytes]") -> None:
    """Until it says so."""
    assert recorder.stderr is not None
    line = recorder.stderr.readline()
    assert b"attached to" in line, line + recorder.stderr.read()


def serve(server: "subprocess.Popen[bytes]") -> None:
    """Let the server serve all of it; it then waits to be ended."""
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(b"g")
    while b'"done"' not in (line := server.stdout.readline()):
        assert line, "the server ended"


def frames_of(stream: bytes) -> tuple[Counter[int], Reading]:
    """How many frames of each type there are."""
    reading = Reading()
    return Counter(frame.type for frame in read_frames(io.BytesIO(stream), reading)), reading


def last_of(stream: bytes, kind: str) -> Any:
    """The structure of the last frame of a type."""
    wanted = definition().number(kind.upper())
    found = [f for f in read_frames(io.BytesIO(stream), Reading()) if f.type == wanted]
    return record(kind, found[-1].content)


def await_no_probes(breakpoints: Breakpoints, pid: int, seconds: float) -> float:
    """How long it takes until the process has none of the planned breakpoints."""
    before_s = time.monotonic()
    while breakpoints(pid) and time.monotonic() < before_s + 4 * seconds:
        time.sleep(0.05)
    return time.monotonic() - before_s


def rows_of(capture: Path, table: type[Any]) -> list[Any]:
    with CaptureReader.open(capture) as reader:
        return list(reader.rows(table))


@pytest.mark.skipif(SANITIZED, reason="the sanitizers need shared libraries")
def test_it_is_one_static_file() -> None:
    assert "statically linked" in subprocess.check_output(["file", PROGRAM], text=True)
    done = subprocess.run(["ldd", PROGRAM], capture_output=True, text=True, check=False)
    assert "not a dynamic executable" in done.stdout + done.stderr
    assert PROGRAM.stat().st_size <= SIZE_MOST


@pytest.fixture
def recorded(
    server: "subprocess.Popen[bytes]", record_it: Record, measured: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[int, bytes, Path]:  # fmt: skip
    """The server's pid, the stream of all that it served, and the capture of that."""

    def measure() -> tuple[int, bytes, Path]:
        recorder = record_it()
        await_attached(recorder)
        serve(server)
        time.sleep(0.3)
        recorder.send_signal(signal.SIGTERM)
        stream, errors = recorder.communicate(timeout=60)
        assert recorder.returncode == OK, errors
        capture = tmp_path_factory.mktemp("recorded") / "a.tlstax"
        import_stream(io.BytesIO(stream), "x.stream", capture, overwrite=False)
        return server.pid, stream, capture

    found: tuple[int, bytes, Path] = measured("recorded", measure)
    return found


def test_every_handshake_is_recorded(recorded: tuple[int, bytes, Path]) -> None:
    handshakes = rows_of(recorded[2], Handshake)
    assert [row.outcome for row in handshakes] == ["success"] * HANDSHAKES
    assert {row.tls_version for row in handshakes} == {"TLSv1.3"}
    assert all(row.end_ns > row.start_ns for row in handshakes)


def test_as_many_as_the_other_engine_records(
    program: Path, started: Started, repository: Path
) -> None:
    other = started(program, "tls", "s" * HANDSHAKES)
    _, plan = plan_in_child(other.pid, extra=repository / "tests/testprogs")
    engine = Engine(other.pid, plan, Options())
    try:
        engine.attach()
        serve(other)
        assert len(engine.maps.handshake_records()) == HANDSHAKES
    finally:
        engine.close()


def test_the_ledger_adds_up_to_the_windows(recorded: tuple[int, bytes, Path]) -> None:
    windows = {row.window_id: row.end_ns - row.start_ns for row in rows_of(recorded[2], Window)}
    threads = {row.thread_id: row for row in rows_of(recorded[2], Thread)}
    (first,) = (row for row in threads.values() if row.tid == recorded[0])
    spent: Counter[int] = Counter()
    for row in rows_of(recorded[2], Ledger):
        if row.thread_id == first.thread_id:
            spent[row.window_id] += row.time_ns
    assert len(windows) >= 3
    assert dict(spent) == windows, "the first thread lived in all of them"


def test_the_capture_has_what_a_report_needs(
    recorded: tuple[int, bytes, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    meta = {row.key: row.value for row in rows_of(recorded[2], Meta)}
    assert meta["engine"] == "native"
    assert meta["target_ending"] == "it was running"
    assert sum(row.hit_count for row in rows_of(recorded[2], Probe)) > HANDSHAKES
    assert main(["report", str(recorded[2])]) == OK
    text = capsys.readouterr().out
    assert "handshake" in text
    assert f"{HANDSHAKES}" in text


def test_the_stream_ends_in_order(recorded: tuple[int, bytes, Path]) -> None:
    counts, reading = frames_of(recorded[1])
    assert reading.why_ended == ""
    known = definition()
    assert counts[known.number("END")] == counts[known.number("START")] == 1
    assert counts[known.number("ERROR")] == 0
    assert b"password" not in recorded[1]


def test_nothing_stays(
    server: "subprocess.Popen[bytes]", record_it: Record, breakpoints: Breakpoints,
    leftover: Leftover,
) -> None:  # fmt: skip
    recorder = record_it("--for", "500ms")
    await_attached(recorder)
    assert breakpoints(server.pid) > 10
    _, errors = recorder.communicate(timeout=60)
    assert recorder.returncode == OK, errors
    assert breakpoints(server.pid) == 0
    assert leftover() == set()


def test_a_stopped_recorder_is_killed(
    server: "subprocess.Popen[bytes]", record_it: Record, breakpoints: Breakpoints
) -> None:
    recorder = record_it(stdout=subprocess.DEVNULL)
    await_attached(recorder)
    assert breakpoints(server.pid) > 10
    recorder.send_signal(signal.SIGSTOP)
    assert await_no_probes(breakpoints, server.pid, GONE_SECONDS) <= GONE_SECONDS
    assert recorder.wait(10) == -signal.SIGKILL
    assert recorder.stderr is not None
    assert b"did not run for 2 s and was killed" in recorder.stderr.read()


def test_ctrl_z_does_not_stop_it(record_it: Record) -> None:
    recorder = record_it("--for", "1s")
    await_attached(recorder)
    recorder.send_signal(signal.SIGTSTP)
    _, errors = recorder.communicate(timeout=60)
    assert recorder.returncode == OK, errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_signals_end_it_in_order(record_it: Record, number: signal.Signals) -> None:
    recorder = record_it()
    await_attached(recorder)
    recorder.send_signal(number)
    stream, errors = recorder.communicate(timeout=60)
    assert recorder.returncode == OK, errors
    assert frames_of(stream)[0][definition().number("END")] == 1


def test_a_pipe_that_nobody_reads(
    server: "subprocess.Popen[bytes]", record_it: Record, breakpoints: Breakpoints
) -> None:
    """It ends when pipe and queue are full, and the reader took nothing for two seconds."""
    recorder = record_it("--window", "10ms", "--queue", "256K", "--sample-hz", "999")
    await_attached(recorder)
    assert recorder.stdout is not None
    fcntl.fcntl(recorder.stdout, fcntl.F_SETPIPE_SZ, 4096)
    serve(server)
    assert recorder.stderr is not None
    said = recorder.stderr.read()
    assert recorder.wait(60) == IO, said
    assert b"took nothing for 2 s" in said
    assert breakpoints(server.pid) == 0


def test_a_reader_that_goes_away(
    server: "subprocess.Popen[bytes]", record_it: Record, breakpoints: Breakpoints
) -> None:
    recorder = record_it()
    await_attached(recorder)
    assert recorder.stdout is not None
    recorder.stdout.close()
    assert recorder.wait(GONE_SECONDS) == IO
    assert recorder.stderr is not None
    assert b"reader of the stream is gone" in recorder.stderr.read()
    assert breakpoints(server.pid) == 0


def test_a_slow_reader_costs_windows_and_no_record(
    server: "subprocess.Popen[bytes]", record_it: Record, tmp_path: Path
) -> None:
    recorder = record_it("--window", "10ms", "--queue", "256K", "--sample-hz", "999")
    await_attached(recorder)
    assert recorder.stdout is not None
    fcntl.fcntl(recorder.stdout, fcntl.F_SETPIPE_SZ, 4096)
    serve(server)
    time.sleep(1.0)
    recorder.send_signal(signal.SIGTERM)
    stream, errors = recorder.communicate(timeout=60)
    assert recorder.returncode == OK, errors
    import_stream(io.BytesIO(stream), "x", tmp_path / "a.tlstax", overwrite=False)
    assert len(rows_of(tmp_path / "a.tlstax", Handshake)) == HANDSHAKES


def test_a_full_disk_ends_it(record_it: Record) -> None:
    with open("/dev/full", "wb") as full:
        recorder = record_it(stdout=full)
        await_attached(recorder)
        assert recorder.wait(60) == IO
    assert recorder.stderr is not None
    assert b"No space left on device" in recorder.stderr.read()


def test_a_target_that_ends(server: "subprocess.Popen[bytes]", record_it: Record) -> None:
    recorder = record_it()
    await_attached(recorder)
    serve(server)
    assert server.stdin is not None
    server.stdin.write(b"x")
    stream, errors = recorder.communicate(timeout=60)
    assert recorder.returncode == TARGET
    assert b"it exited or was killed" in errors
    assert last_of(stream, "end").ending == b"it exited or was killed"
    assert frames_of(stream)[0][definition().number("ERROR")] == 1


def test_a_target_that_executes_another_program(
    program: Path, started: Started, repository: Path, tmp_path: Path, spawn: Record
) -> None:
    target = started(program, "execute", "/bin/sleep", "20")
    path = tmp_path / "x.plan"
    path.write_text(plan_text(target.pid, repository))
    command = [PROGRAM, "--plan", path, "--pid", str(target.pid)]
    recorder = spawn(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    await_attached(recorder)
    assert target.stdin is not None
    target.stdin.write(b"g")
    stream, errors = recorder.communicate(timeout=60)
    assert recorder.returncode == TARGET
    assert b"it executed /" in errors
    assert last_of(stream, "window").executed_ns > 0


def refused(recorder: "subprocess.Popen[bytes]", code: int) -> str:
    """What it says when it refuses; nothing was attached, and no window recorded."""
    stream, errors = recorder.communicate(timeout=60)
    assert recorder.returncode == code, errors
    assert frames_of(stream)[0][definition().number("WINDOW")] == 0
    text = errors.decode()
    with pytest.raises(TlstaxError, match=re.escape(text.partition(": ")[2].strip()[:60])):
        import_stream(io.BytesIO(stream), "x.stream", Path("/nowhere/a.tlstax"), overwrite=False)
    return text


def test_another_build_is_refused_by_name(record_it: Record, plan_path: Path) -> None:
    text = plan_path.read_text()
    (line,) = (ln for ln in text.splitlines() if ln.startswith("file ") and ln.endswith("/truth"))
    found = line.split("build-id=")[1].split()[0]
    plan_path.write_text(text.replace(f"build-id={found}", f"build-id={'ab' * 20}"))
    said = refused(record_it(), TARGET)
    assert "truth cannot be probed" in said
    assert found in said
    assert "ab" * 20 in said


def test_other_code_at_a_site_is_refused_by_name(record_it: Record, plan_path: Path) -> None:
    text = plan_path.read_text()
    (line,) = (line for line in text.splitlines() if line.startswith("site 3 "))
    code = line.split(" bytes=")[1].split()[0]
    other = f"{int(code, 16) ^ 1:0{len(code)}x}"
    plan_path.write_text(text.replace(line, line.replace(f" bytes={code}", f" bytes={other}")))
    assert "the code at site 3 " in refused(record_it(), TARGET)


def test_a_process_without_the_file_is_refused(plan_path: Path, spawn: Record) -> None:
    other = spawn(["/bin/sleep", "60"])
    command = [PROGRAM, "--plan", plan_path, "--pid", str(other.pid)]
    recorder = spawn(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert "has no file with build-id" in refused(recorder, TARGET)


@pytest.mark.parametrize("level", ["handshake", "sample"])
def test_a_lower_level_records_less(
    server: "subprocess.Popen[bytes]", record_it: Record, level: str, tmp_path: Path
) -> None:
    recorder = record_it("--level", level)
    await_attached(recorder)
    serve(server)
    recorder.send_signal(signal.SIGTERM)
    stream, errors = recorder.communicate(timeout=60)
    assert recorder.returncode == OK, errors
    capture = tmp_path / "a.tlstax"
    import_stream(io.BytesIO(stream), "x.stream", capture, overwrite=False)
    expected = HANDSHAKES if level == "handshake" else 0
    assert len(rows_of(capture, Handshake)) == expected
    assert rows_of(capture, Ledger) == []
    assert {row.level for row in rows_of(capture, Window)} == {level}
