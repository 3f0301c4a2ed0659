# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax attach` through the static recorder: as whole as by the engine, and sturdier."""

import os
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.writer import write_whole
from tlstax.collectors.host.clock import cpu_used_ns
from tlstax.collectors.recording.by_recorder.recorder import Recorder
from tlstax.collectors.recording.by_recorder.session import RecorderSession
from tlstax.collectors.recording.request import Request
from tlstax.probes.model import Level
from tlstax.tests.kernel.recorder_runs import (
    GONE_SECONDS,
    HANDSHAKES,
    Breakpoints,
    Leftover,
    Started,
    await_no_probes,
    rows_of,
    serve,
)
from tlstax.tests.patience import COMMAND_S
from tlstax.tests.processes import children_of

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]
CGROUPS = Path("/sys/fs/cgroup")
WINDOW_S = 0.2
BUSY_NS = 2_000_000_000
STOPPED_S = 2.5
LATER_MS = 3500
Spawn = Callable[..., "subprocess.Popen[Any]"]


@pytest.fixture
def server(program: Path, started: Started) -> "subprocess.Popen[bytes]":
    """A server that waits for its go byte, then serves all handshakes."""
    return started(program, "tls", "s" * HANDSHAKES)


def request_for(pid: int, repository: Path, capture: Path, **more: Any) -> Request:
    definitions = repository / "tests/testprogs"
    return Request(pid, capture, window_s=WINDOW_S, definitions=definitions, **more)


def poll_for(recording: Recorder, seconds: float) -> None:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        recording.poll(0.1)


def test_a_recording_has_what_reports_need(
    program: Path, started: Started, repository: Path, tmp_path: Path
) -> None:
    server = started(program, "tls", "s" * HANDSHAKES)
    capture = tmp_path / "a.tlstax"
    with Recorder(request_for(server.pid, repository, capture)) as recording:
        serve(server)
        poll_for(recording, 3 * WINDOW_S)
    systems = rows_of(capture, schema.System)
    assert systems
    assert all(row.delayed_ack_count is not None for row in systems)
    assert all(row.listen_drop_count is not None for row in systems)
    assert Counter(row.outcome for row in rows_of(capture, schema.Handshake)) == {
        "success": HANDSHAKES
    }
    ended: Counter[str] = Counter()
    for row in rows_of(capture, schema.PhaseCount):
        ended[row.phase] += row.ended_count
    assert ended["handshake"] == HANDSHAKES
    assert rows_of(capture, schema.Calibration)
    assert rows_of(capture, schema.Probe)


@pytest.mark.parametrize("level", [Level.HANDSHAKE, Level.SAMPLE])
def test_a_lower_level_records_less(
    server: "subprocess.Popen[bytes]", repository: Path, tmp_path: Path, level: Level
) -> None:
    capture = tmp_path / "a.tlstax"
    with Recorder(request_for(server.pid, repository, capture, level=level)) as recording:
        serve(server)
        poll_for(recording, 2 * WINDOW_S)
    expected = HANDSHAKES if level == Level.HANDSHAKE else 0
    assert len(rows_of(capture, schema.Handshake)) == expected
    assert rows_of(capture, schema.Ledger) == []


def test_windows_go_on_while_tlstax_itself_is_stopped(
    server: "subprocess.Popen[bytes]", tlstax: list[str], repository: Path, spawn: Spawn,
    tmp_path: Path,
) -> None:  # fmt: skip
    """No Python process looks at the measured side: without it the ledger has no gap."""
    capture = tmp_path / "a.tlstax"
    options = ["--budget", "none", "--window", "200ms", "--quiet", "-o", capture]
    options += ["--definitions", repository / "tests/testprogs"]
    recorder = spawn([*tlstax, "attach", str(server.pid), *options], stderr=subprocess.PIPE)
    assert recorder.stderr is not None
    assert b"attached to" in recorder.stderr.readline()
    recorder.send_signal(signal.SIGSTOP)
    serve(server)
    time.sleep(STOPPED_S)
    recorder.send_signal(signal.SIGCONT)
    time.sleep(1)
    recorder.send_signal(signal.SIGINT)
    _, errors = recorder.communicate(timeout=COMMAND_S)
    assert recorder.returncode == 0, errors
    lengths_s = [(row.end_ns - row.start_ns) / 1e9 for row in rows_of(capture, schema.Window)]
    assert len(lengths_s) >= 0.7 * STOPPED_S / WINDOW_S
    assert max(lengths_s) < STOPPED_S / 2, lengths_s
    assert len(rows_of(capture, schema.Handshake)) == HANDSHAKES


def test_a_reader_of_the_capture_delays_nothing(
    server: "subprocess.Popen[bytes]", repository: Path, tmp_path: Path
) -> None:
    """The windows of that time are kept, and written when the reader is gone."""
    capture = tmp_path / "a.tlstax"
    with Recorder(request_for(server.pid, repository, capture)) as recording:
        reader = sqlite3.connect(capture, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM meta").fetchone()
        serve(server)
        before_s = time.monotonic()
        recording.poll(2)
        assert time.monotonic() - before_s < 2 + 3 * WINDOW_S
        assert recording.last is not None
        assert recording.last.end_ns > time.monotonic_ns() - 1_000_000_000
        reader.close()
    windows = rows_of(capture, schema.Window)
    assert [row.start_ns for row in windows[1:]] == [row.end_ns for row in windows[:-1]]
    assert len(rows_of(capture, schema.Handshake)) == HANDSHAKES


def recorder_of(pid: int) -> int:
    """The recorder that a process started."""
    children = children_of(pid).items()
    (found,) = (child for child, name in children if name.startswith("tlstax-recorder"))
    return found


def test_a_full_disk_at_the_start_keeps_the_earlier_capture(
    server: "subprocess.Popen[bytes]", repository: Path, tmp_path: Path, leftover: Leftover,
    breakpoints: Breakpoints, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """With a budget its trial is stored at once, which may fail."""

    def full(_: RecorderSession) -> Iterator[Any]:
        raise TlstaxError("cannot write", "database or disk is full", "", ExitCode.IO)

    capture = tmp_path / "a.tlstax"
    write_whole(capture, [schema.Meta("earlier", "")])
    before = capture.read_bytes()
    monkeypatch.setattr(RecorderSession, "windows", full)
    with pytest.raises(TlstaxError, match="disk is full"):
        Recorder(request_for(server.pid, repository, capture, overwrite=True))
    assert capture.read_bytes() == before
    assert list(tmp_path.iterdir()) == [capture]
    assert breakpoints(server.pid) == 0
    assert leftover() == set()


def test_own_cpu_time_is_counted_once(
    server: "subprocess.Popen[bytes]", repository: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """What is spent while the budget is tried belongs to the first window, not to the start."""
    await_choice = RecorderSession._await_choice

    def busy(session: RecorderSession) -> None:
        await_choice(session)
        until_ns = cpu_used_ns() + BUSY_NS
        while cpu_used_ns() < until_ns:
            pass

    monkeypatch.setattr(RecorderSession, "_await_choice", busy)
    capture = tmp_path / "a.tlstax"
    before_ns = cpu_used_ns()
    with Recorder(request_for(server.pid, repository, capture, budget=0.05)) as recording:
        poll_for(recording, 3 * WINDOW_S)
    used_ns = cpu_used_ns() - before_ns  # the recorder has ended: it is in there
    meta = {row.key: row.value for row in rows_of(capture, schema.Meta)}
    in_windows_ns = sum(row.engine_cpu_ns for row in rows_of(capture, schema.System))
    told_ns = int(meta["start_cpu_ns"]) + in_windows_ns
    assert BUSY_NS < told_ns < told_ns + int(meta["end_cpu_ns"]) <= used_ns


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_recorder_that_is_killed_or_hangs_is_one_error(
    server: "subprocess.Popen[bytes]", repository: Path, tmp_path: Path, number: signal.Signals,
    breakpoints: Breakpoints, leftover: Leftover,
) -> None:  # fmt: skip
    capture = tmp_path / "a.tlstax"
    with Recorder(request_for(server.pid, repository, capture)) as recording:
        poll_for(recording, 5 * WINDOW_S)
        os.kill(recorder_of(os.getpid()), number)
        recording.poll(5)
        assert recording.ending
        assert await_no_probes(breakpoints, server.pid, GONE_SECONDS) < GONE_SECONDS
    error = recording.ended()
    assert isinstance(error, TlstaxError)
    assert str(capture) in error.do
    assert len(rows_of(capture, schema.Window)) >= 3
    assert leftover() == set()


def test_code_that_is_mapped_later_gets_its_table(
    repository: Path, spawn: Spawn, tmp_path: Path
) -> None:
    """A plugin, or a library of the name service that is opened at the first connection."""
    program = repository / "tests/testprogs/bin/stacks"
    process = spawn(
        [program, "later", str(LATER_MS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    capture = tmp_path / "a.tlstax"
    with Recorder(request_for(process.pid, repository, capture, sample_hz=499)) as recording:
        process.stdin.write(b"g")
        process.stdin.flush()
        # The mapping is noticed a second after the first walk that met it; then comes the table.
        poll_for(recording, LATER_MS / 1000)
        assert process.stdout.readline() == b"opened\n"
        opened_ns = time.monotonic_ns()
        process.stdin.write(b"g")
        process.stdin.flush()
        poll_for(recording, LATER_MS / 1000)
        assert process.stdout.readline() == b"done\n"
    names = {row.frame_id: row.symbol for row in rows_of(capture, schema.Frame)}
    stacks = {
        row.stack_id: [names[int(frame)] for frame in row.frame_ids.split()]
        for row in rows_of(capture, schema.Stack)
    }
    later = {row.window_id for row in rows_of(capture, schema.Window) if row.start_ns > opened_ns}
    whole: Counter[bool] = Counter()
    for row in rows_of(capture, schema.SampleStack):
        stack = stacks.get(row.user_stack_id or 0, [])
        if stack[:1] == ["st_spin"] and row.window_id in later:
            whole["st_later" in stack] += row.sample_count
    assert whole[True] > 50
    assert whole[True] > 10 * whole[False], whole
    assert not any("unwind tables" in str(row) for row in rows_of(capture, schema.Gap))


@contextmanager
def limited(pid: int) -> Iterator[Callable[[], int]]:
    """The process may use a fifth of a CPU, by a control group of the test's own.

    A function that says how often it was throttled.
    """
    is_old = (CGROUPS / "cpu").is_dir()
    parent = CGROUPS / "cpu" if is_old else CGROUPS
    if not is_old:
        with (parent / "cgroup.subtree_control").open("w") as file:
            file.write("+cpu")
    group = parent / f"tlstax-test-{os.getpid()}"
    group.mkdir()
    (group / ("cpu.cfs_quota_us" if is_old else "cpu.max")).write_text("20000")
    (group / "cgroup.procs").write_text(str(pid))

    def throttled_count() -> int:
        values = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
        return int(values["nr_throttled"])

    try:
        yield throttled_count
    finally:
        (parent / "cgroup.procs").write_text(str(pid))
        group.rmdir()


def test_throttling_by_a_quota_is_counted(repository: Path, spawn: Spawn, tmp_path: Path) -> None:
    """Else time that the server may not use a CPU is called something else."""
    program = repository / "tests/testprogs/bin/stacks"
    process = spawn([program, "plain", "1000"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    capture = tmp_path / "a.tlstax"
    with limited(process.pid) as counted:
        before = counted()
        with Recorder(request_for(process.pid, repository, capture)) as recording:
            process.stdin.write(b"g")
            process.stdin.flush()
            poll_for(recording, 1.5)
            least = counted() - before
        most = counted() - before
    rows = rows_of(capture, schema.System)
    throttled = sum(row.throttled_period_count for row in rows)
    assert least > 3
    assert least <= throttled <= most
    assert sum(row.quota_period_count for row in rows) >= throttled
