# SPDX-License-Identifier: GPL-2.0-only
"""The static recorder: what it records, and what it refuses."""

import io
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tlstax import TlstaxError
from tlstax.__main__ import main
from tlstax.collectors.capture.schema import Gap, Handshake, Ledger, Meta, Probe, Thread, Window
from tlstax.collectors.recording.stream.definition import definition
from tlstax.collectors.recording.stream.frames import Reading, read_frames, record
from tlstax.collectors.recording.stream.tables_file import process_tables, write_tables
from tlstax.collectors.recording.stream.totals import Totals
from tlstax.collectors.recording.stream_recording import import_stream
from tlstax.tests.kernel.recorder_runs import (
    HANDSHAKES,
    OK,
    PROGRAM,
    SANITIZED,
    SIZE_MOST,
    TARGET,
    USAGE,
    Record,
    await_attached,
    frames_of,
    rows_of,
    serve,
)
from tlstax.tests.kernel.tracing import traced
from tlstax.tests.patience import COMMAND_S

FIRST_COUNT = 128  # cell of an account: see struct stream_cell
LATE_MOST = 5  # instances that end while a window is read
# Linux builds the vDSO of arm64 without call frame information.
WITHOUT_TABLE = ["[vdso]"] if os.uname().machine == "aarch64" else []
pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]


@pytest.mark.skipif(SANITIZED, reason="the sanitizers need shared libraries")
def test_it_is_one_static_file() -> None:
    assert "statically linked" in subprocess.check_output(["file", PROGRAM], text=True)
    done = subprocess.run(["ldd", PROGRAM], capture_output=True, text=True, check=False)
    assert "not a dynamic executable" in done.stdout + done.stderr
    assert PROGRAM.stat().st_size <= SIZE_MOST


def test_it_comes_before_the_threads_that_it_records(record_it: Record) -> None:
    recorder = record_it()
    await_attached(recorder)
    niceness = os.getpriority(os.PRIO_PROCESS, recorder.pid)
    recorder.send_signal(signal.SIGTERM)
    recorder.communicate(timeout=COMMAND_S)
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    assert niceness == (ours or -10)


@pytest.fixture
def recorded(
    recorded_server: "subprocess.Popen[bytes]", record_it: Record, measured: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[int, bytes, Path]:  # fmt: skip
    """The server's pid, the stream of all that it served, and the capture of that."""

    def measure() -> tuple[int, bytes, Path]:
        recorder = record_it()
        await_attached(recorder)
        serve(recorded_server)
        time.sleep(0.3)
        recorder.send_signal(signal.SIGTERM)
        stream, errors = recorder.communicate(timeout=COMMAND_S)
        assert recorder.returncode == OK, errors
        capture = tmp_path_factory.mktemp("recorded") / "a.tlstax"
        import_stream(io.BytesIO(stream), "x.stream", capture, overwrite=False)
        return recorded_server.pid, stream, capture

    found: tuple[int, bytes, Path] = measured("recorded", measure)
    return found


def test_every_handshake_is_recorded(recorded: tuple[int, bytes, Path]) -> None:
    handshakes = rows_of(recorded[2], Handshake)
    assert [row.outcome for row in handshakes] == ["success"] * HANDSHAKES
    assert {row.tls_version for row in handshakes} == {"TLSv1.3"}
    assert all(row.end_ns > row.start_ns for row in handshakes)


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
    assert sum(row.hits_count for row in rows_of(recorded[2], Probe)) > HANDSHAKES
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


def refused(recorder: "subprocess.Popen[bytes]", code: int) -> str:
    """What it says when it refuses; nothing was attached, and no window recorded."""
    stream, errors = recorder.communicate(timeout=COMMAND_S)
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


def test_a_traced_process_is_refused_until_that_is_accepted(
    recorded_server: "subprocess.Popen[bytes]", record_it: Record
) -> None:
    with traced(recorded_server.pid):
        assert f"process {os.getpid()} traces it" in refused(record_it(), TARGET)
        accepted = record_it("--traced", "--for", "200ms")
        _, errors = accepted.communicate(timeout=COMMAND_S)
    assert accepted.returncode == OK, errors


def test_a_tracer_of_a_single_thread_is_refused(plan_path: Path, spawn: Record) -> None:
    """`strace -p TID` follows a connection, and not the first thread of the server."""
    code = "import threading, time; threading.Thread(target=time.sleep, args=(60,)).start()"
    other = spawn([sys.executable, "-c", f"{code}; print(flush=True)"], stdout=subprocess.PIPE)
    assert other.stdout is not None
    other.stdout.readline()
    (tid,) = {int(name) for name in os.listdir(f"/proc/{other.pid}/task")} - {other.pid}
    command = [PROGRAM, "--plan", plan_path, "--pid", str(other.pid)]
    with traced(tid):
        recorder = spawn(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert f"process {os.getpid()} traces it" in refused(recorder, TARGET)


def captured(
    recorder: "subprocess.Popen[bytes]", server: "subprocess.Popen[bytes]", capture: Path
) -> Path:
    """The capture of all that the server serves."""
    await_attached(recorder)
    serve(server)
    recorder.send_signal(signal.SIGTERM)
    stream, errors = recorder.communicate(timeout=COMMAND_S)
    assert recorder.returncode == OK, errors
    import_stream(io.BytesIO(stream), "x.stream", capture, overwrite=False)
    return capture


@pytest.mark.parametrize("level", ["handshake", "signature", "sample"])
def test_a_lower_level_records_less(
    recorded_server: "subprocess.Popen[bytes]", record_it: Record, level: str, tmp_path: Path
) -> None:
    recorder = record_it("--level", level)
    capture = captured(recorder, recorded_server, tmp_path / "a.tlstax")
    shakes = rows_of(capture, Handshake)
    assert len(shakes) == (0 if level == "sample" else HANDSHAKES)
    assert all(row.sign_ns > 0 for row in shakes)
    assert {row.derive_ns > 0 for row in shakes} <= {level == "handshake"}
    assert {row.certificate_ns >= 0 for row in shakes} <= {level == "handshake"}
    hits = {row.boundary for row in rows_of(capture, Probe) if row.hits_count}
    assert ("certificate" in hits) == (level == "handshake")
    assert rows_of(capture, Ledger) == []
    assert {row.level for row in rows_of(capture, Window)} == {level}


@pytest.mark.skipif(SANITIZED, reason="the sanitizers need shared libraries")
def test_it_runs_in_an_empty_directory(
    recorded_server: "subprocess.Popen[bytes]", plan_path: Path, spawn: Record, tmp_path: Path
) -> None:
    """With /proc and /sys alone, which are mounted where only this test sees them."""
    root = tmp_path / "root"
    for name in ("proc", "sys"):
        (root / name).mkdir(parents=True)
    shutil.copy(PROGRAM, root / "recorder")
    shutil.copy(plan_path, root / "plan")
    script = """
        set -e
        mount --rbind /proc "$1/proc"
        mount --rbind /sys "$1/sys"
        exec chroot "$1" /recorder --plan /plan --pid "$2" --window 100ms
    """
    command = ["unshare", "--mount", "sh", "-c", script, "sh", root, str(recorded_server.pid)]
    recorder = spawn(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    capture = captured(recorder, recorded_server, tmp_path / "a.tlstax")
    assert len(rows_of(capture, Handshake)) == HANDSHAKES


def test_stacks_are_walked_by_tables_beside_the_plan(
    recorded_server: "subprocess.Popen[bytes]", record_it: Record, plan_path: Path, tmp_path: Path
) -> None:
    """Else callers in libssl and libcrypto are missing, which have no frame pointers."""
    write_tables(plan_path, process_tables(recorded_server.pid), overwrite=False)
    recorder = record_it("--sample-hz", "999")
    capture = captured(recorder, recorded_server, tmp_path / "a.tlstax")
    meta = {row.key: row.value for row in rows_of(capture, Meta)}
    assert meta["user_stacks"] == "unwind tables"
    walks, whole = int(meta["stack_walk_count"]), int(meta["stack_whole_count"])
    assert walks > 50
    assert whole >= 0.9 * walks
    gaps = [row.consequence for row in rows_of(capture, Gap) if "unwind tables" in str(row)]
    assert [text.partition(":")[0] for text in gaps] == WITHOUT_TABLE


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda raw: raw[:-4], "counts do not fit"),
        (lambda raw: b"x" + raw[1:], "no file of unwind tables"),
        (lambda raw: raw[:8] + b"\2" + raw[9:], "another version"),
        (lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]), "checksum"),
        (lambda raw: b"", "it is empty"),
    ],
)
def test_damaged_tables_are_refused(
    recorded_server: "subprocess.Popen[bytes]", record_it: Record, plan_path: Path,
    change: Callable[[bytes], bytes], why: str,
) -> None:  # fmt: skip
    path = write_tables(plan_path, process_tables(recorded_server.pid), overwrite=True)
    assert path is not None
    path.write_bytes(change(path.read_bytes()))
    assert why in refused(record_it(), USAGE)


def test_it_sleeps_while_nothing_happens(record_it: Record) -> None:
    """Between windows it looks for ended threads and handshakes, every 500 ms if there are none."""
    recorder = record_it("--window", "1m", "--sample-hz", "0")
    await_attached(recorder)
    status = Path(f"/proc/{recorder.pid}/status")

    def wakeups_count() -> int:
        return int(status.read_text().partition("\nvoluntary_ctxt_switches:")[2].split()[0])

    time.sleep(1)
    before = wakeups_count()
    time.sleep(3)
    assert wakeups_count() - before <= 3 / 0.5 + 2
    recorder.terminate()
    recorder.communicate(timeout=COMMAND_S)
    assert recorder.returncode == OK


def test_latencies_come_with_their_window(
    recorded_server: "subprocess.Popen[bytes]", record_it: Record
) -> None:
    """Those of a phase are looked for where an account shows that an instance of it ended."""
    recorder = record_it("--window", "100ms")
    await_attached(recorder)
    serve(recorded_server)
    recorder.terminate()
    stream, errors = recorder.communicate(timeout=COMMAND_S)
    assert recorder.returncode == OK, errors
    assert frames_of(stream)[0][definition().number("CHANGE")], "accounts that were told before"
    totals = Totals(io.BytesIO(stream))
    late: list[int] = []  # that are in an account, and in no bucket
    while totals.next_window():
        accounts = [*totals.accounts.live.values(), *totals.accounts.ended.values()]
        ended = sum(sum(one.cells[FIRST_COUNT:]) for one in accounts)
        late.append(abs(ended - sum(map(sum, totals.latency.values()))))
    assert late[-1] == 0 < ended
    assert max(late) <= LATE_MOST, late


def test_the_kernels_counts_are_read_at_both_ends_and_seldom_between(record_it: Record) -> None:
    """Soon at first: after 0.25, 0.5, 1 and 2.5 s. With thousands of threads they are the cost."""
    recorder = record_it("--window", "250ms", "--for", "4s")
    stream, errors = recorder.communicate(timeout=COMMAND_S)
    assert recorder.returncode == OK, errors
    wanted = definition().number("WINDOW")
    windows = [
        record("window", frame.content)
        for frame in read_frames(io.BytesIO(stream), Reading())
        if frame.type == wanted
    ]
    read = [window.has_counts for window in windows]
    assert (read[0], read[1], read[-1]) == (1, 1, 1)
    assert sum(read) <= 7 < len(read)
    assert all(window.thread_count for window in windows)
