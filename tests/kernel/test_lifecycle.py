# SPDX-License-Identifier: GPL-2.0-only
"""What becomes of a target while it is recorded: it executes, forks, ends; the capture says so."""

import json
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Handshake, Ledger, Meta, System, Window
from tlstax.tests.patience import COMMAND_S

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

TARGET = 4
Breakpoints = Callable[[int], int]


@contextmanager
def started(*command: object) -> Iterator["subprocess.Popen[bytes]"]:
    """A truth program that waits for its go byte; killed at the end."""
    process = subprocess.Popen(
        [str(part) for part in command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )
    try:
        await_line(process, "ready")
        yield process
    finally:
        process.kill()
        process.communicate()


def await_line(process: "subprocess.Popen[bytes]", kind: str) -> None:
    """Read until the program says this; it says `done` and `ready` when it waits for a byte."""
    assert process.stdout is not None
    while line := process.stdout.readline():
        if json.loads(line)["kind"] == kind:
            return
    raise AssertionError(f"the program ended before it said {kind!r}")


def say(process: "subprocess.Popen[bytes]", text: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(text)


@contextmanager
def attached(
    pid: int, capture: Path, repository: Path, *more: str
) -> Iterator["subprocess.Popen[str]"]:
    """`tlstax attach`, from when it says that it is attached."""
    definitions = str(repository / "tests/testprogs")
    command = [sys.executable, "-m", "tlstax", "attach", str(pid), "-o", str(capture), "--quiet"]
    with subprocess.Popen(
        [*command, "--definitions", definitions, "--window", "100ms", *more],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "attached to" in line, line + process.stderr.read()
        try:
            yield process
        finally:
            process.kill()


def children_cpu_s() -> float:
    """CPU time of all child processes that have ended, and theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def on_cpu_ns(capture: Path, phase: str) -> int:
    with CaptureReader.open(capture) as reader:
        rows = [row for row in reader.rows(Ledger) if (row.phase, row.state) == (phase, "on_cpu")]
    return sum(row.time_ns for row in rows)


@pytest.fixture
def executed(
    program: Path, repository: Path, breakpoints: Breakpoints, tmp_path: Path,
    measured: Callable[..., Path],
) -> Path:  # fmt: skip
    """A recording of a target that executes itself."""
    return measured("executed", lambda: record_it(program, repository, breakpoints, tmp_path))


def record_it(program: Path, repository: Path, breakpoints: Breakpoints, tmp_path: Path) -> Path:
    capture = tmp_path / "a.tlstax"
    with started(program, "execute", program, "200") as target:
        with attached(target.pid, capture, repository) as recorder:
            say(target, b"g")
            await_line(target, "ready")  # the second one: it is another program now
            say(target, b"g")  # which makes four handshakes of its own
            _, errors = recorder.communicate(timeout=COMMAND_S)
        assert recorder.returncode == TARGET, errors
        assert "ended while it was recorded: it executed" in errors
        assert program.name in errors
        assert f"{capture} is complete until then" in errors
        assert breakpoints(target.pid) == 0
        await_line(target, "done")
        say(target, b"x")
        assert target.wait(120) == 0
    return capture


def test_a_target_that_executes_itself_is_over(executed: Path) -> None:
    with CaptureReader.open(executed) as reader:
        assert not list(reader.rows(Handshake)), "they were the next program's"
        windows = list(reader.rows(Window))
        meta = {row.key: row.value for row in reader.rows(Meta)}
    assert windows
    assert all(window.start_ns < window.end_ns for window in windows)
    assert meta["target_ending"].startswith("it executed ")


@pytest.mark.timing(emulated=True)
def test_the_phase_in_which_it_executed_is_there_to_its_end(executed: Path) -> None:
    # And nothing behind it.
    assert on_cpu_ns(executed, "command") == pytest.approx(200e6, rel=0.15)


def test_a_target_that_executes_another_program_is_over(
    program: Path, repository: Path, tmp_path: Path
) -> None:
    capture = tmp_path / "a.tlstax"
    other = tmp_path / "another\nprogram"
    other.write_bytes(Path("/bin/sleep").read_bytes())
    other.chmod(0o755)
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\nexec '{other}' 60\n")
    script.chmod(0o755)
    with (
        started(program, "execute", script, "20") as target,
        attached(target.pid, capture, repository) as recorder,
    ):
        say(target, b"g")
        _, errors = recorder.communicate(timeout=COMMAND_S)
    assert recorder.returncode == TARGET
    assert len(errors.splitlines()) == 1, errors
    assert "in the same process" in errors


def test_a_killed_target_leaves_a_whole_capture(
    program: Path, repository: Path, tmp_path: Path
) -> None:
    capture = tmp_path / "a.tlstax"
    with (
        started(program, "tls", "ss") as target,
        attached(target.pid, capture, repository) as recorder,
    ):
        say(target, b"g")
        await_line(target, "done")
        target.send_signal(signal.SIGKILL)
        _, errors = recorder.communicate(timeout=COMMAND_S)
    assert recorder.returncode == TARGET
    assert "it exited or was killed" in errors
    with CaptureReader.open(capture) as reader:
        assert len(list(reader.rows(Handshake))) == 2


def test_what_it_takes_to_begin_is_in_the_capture(
    program: Path, repository: Path, tmp_path: Path
) -> None:
    """And nothing of it twice: a recording's windows have the CPU time of what comes after."""
    capture = tmp_path / "a.tlstax"
    with started(program, "tls", "ss") as target:
        before_s = children_cpu_s()
        with attached(target.pid, capture, repository) as recorder:
            recorder.send_signal(signal.SIGINT)
            _, errors = recorder.communicate(timeout=COMMAND_S)
        used_s = children_cpu_s() - before_s  # the target still runs
    assert recorder.returncode == 0, errors
    with CaptureReader.open(capture) as reader:
        meta = {row.key: row.value for row in reader.rows(Meta)}
        windows_s = sum(row.engine_cpu_ns for row in reader.rows(System)) / 1e9
    start_s, end_s = (int(meta[name]) / 1e9 for name in ("start_cpu_ns", "end_cpu_ns"))
    assert windows_s > 0
    told_s = start_s + windows_s + end_s
    assert 0.75 * used_s < told_s < used_s + 0.02, (start_s, windows_s, end_s, used_s)
    # The rest is the report's one line at the end, and to end Python.
