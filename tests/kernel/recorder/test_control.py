# SPDX-License-Identifier: GPL-2.0-only
"""--control: whoever started the recorder says when windows end, and that the recording is over."""

import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tlstax.collectors.host.clock import monotonic_ns
from tlstax.collectors.recording.stream.replay import Replay
from tlstax.tests.kernel.recorder_runs import (
    IO,
    OK,
    PROGRAM,
    TARGET,
    USAGE,
    Breakpoints,
    await_attached,
    last_of,
    plan_text,
)
from tlstax.tests.patience import COMMAND_S

CUTS, PAUSE_S = 3, 0.2
MANY, SELDOM, SHORT_S, LATER_S = 640, 40, 0.002, 2.0
PIPE_BYTES, BUSY_S = 1 << 16, 3.0
WRITE_BYTES = 1 << 14  # WRITE_MOST of output.c; who takes that much is not given up
pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]


@pytest.fixture
def plan(recorded_server: "subprocess.Popen[bytes]", repository: Path, tmp_path: Path) -> Path:
    path = tmp_path / "a.plan"
    path.write_text(plan_text(recorded_server.pid, repository))
    return path


def command_of(server: "subprocess.Popen[bytes]", plan: Path, *more: str) -> list[str]:
    return [str(PROGRAM), "--plan", str(plan), "--pid", str(server.pid), "--control", *more]


def ends_of(path: Path) -> list[int]:
    """The ends of all windows, that of the first totals first."""
    with path.open("rb") as stream:
        replay = Replay(stream)
        ends = [int(replay.window.end_ns)]
        while replay.next_window():
            ends.append(int(replay.window.end_ns))
    assert replay.end is not None
    return ends


def test_windows_end_at_the_times_that_are_given(
    recorded_server: "subprocess.Popen[bytes]", plan: Path, tmp_path: Path,
    breakpoints: Breakpoints,
) -> None:  # fmt: skip
    out = tmp_path / "a.stream"
    command = command_of(recorded_server, plan, "--window", "10m", "--output", str(out))
    asked_ns = []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    ) as recorder:
        await_attached(recorder)
        assert recorder.stdin is not None
        assert recorder.stderr is not None
        for _ in range(CUTS):
            time.sleep(PAUSE_S)
            asked_ns.append(monotonic_ns())
            line = f"cut {asked_ns[-1]}\n".encode()
            recorder.stdin.write(line[:3])  # in two parts
            recorder.stdin.write(line[3:])
        time.sleep(PAUSE_S)
        recorder.stdin.write(f"cut {asked_ns[0]}\n".encode())  # it ended since
        time.sleep(PAUSE_S)
        recorder.stdin.close()
        errors = recorder.stderr.read()
        assert recorder.wait(COMMAND_S) == OK, errors
    assert breakpoints(recorded_server.pid) == 0
    first_ns, *told_ns, last_ns = ends_of(out)
    assert told_ns == asked_ns
    assert first_ns < asked_ns[0]
    assert last_ns > asked_ns[-1]


@pytest.mark.parametrize("line", [b"cut\n", b"cut x\n", b"cut -1\n", b"stop\n", b"c" * 40])
def test_what_is_no_command_ends_it_with_a_sentence(
    recorded_server: "subprocess.Popen[bytes]", plan: Path, tmp_path: Path, line: bytes
) -> None:
    command = command_of(recorded_server, plan, "--output", str(tmp_path / "a.stream"))
    done = subprocess.run(command, input=line, capture_output=True, timeout=COMMAND_S, check=False)
    assert done.returncode == USAGE
    assert b"standard input has a line that is no command" in done.stderr


def test_a_budget_chooses_its_windows_itself(
    recorded_server: "subprocess.Popen[bytes]", plan: Path
) -> None:
    done = subprocess.run(
        command_of(recorded_server, plan, "--budget", "5%"),
        stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_S, check=False,
    )  # fmt: skip
    assert done.returncode == USAGE
    assert b"--control" in done.stderr


def test_standard_input_that_cannot_be_read_is_no_end_in_order(
    recorded_server: "subprocess.Popen[bytes]", plan: Path, tmp_path: Path,
    breakpoints: Breakpoints,
) -> None:  # fmt: skip
    command = command_of(recorded_server, plan, "--output", str(tmp_path / "a.stream"))
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        done = subprocess.run(
            command, stdin=folder, capture_output=True, timeout=COMMAND_S, check=False
        )
    finally:
        os.close(folder)
    assert done.returncode == IO
    assert b"standard input cannot be read: Is a directory" in done.stderr
    assert breakpoints(recorded_server.pid) == 0


def test_a_window_without_room_ends_as_soon_as_there_is(
    recorded_server: "subprocess.Popen[bytes]", plan: Path, tmp_path: Path
) -> None:
    """Not when the next one would, which may be minutes later: somebody waits for it."""
    out = tmp_path / "a.stream"
    command = command_of(recorded_server, plan, "--window", "10m", "--queue", "256K")
    with (
        out.open("wb") as kept,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            bufsize=0,
        ) as recorder,
    ):  # fmt: skip
        await_attached(recorder)
        assert recorder.stdin is not None
        assert recorder.stdout is not None
        assert recorder.stderr is not None
        for count in range(MANY):  # faster than they are read
            recorder.stdin.write(f"cut {monotonic_ns()}\n".encode())
            time.sleep(SHORT_S)
            if count % SELDOM == 0:
                kept.write(recorder.stdout.read(WRITE_BYTES))
        asked_ns = monotonic_ns()
        recorder.stdin.write(f"cut {asked_ns}\n".encode())
        time.sleep(PAUSE_S)
        reader = threading.Thread(target=shutil.copyfileobj, args=(recorder.stdout, kept))
        reader.start()
        time.sleep(LATER_S)
        recorder.stdin.close()
        reader.join(COMMAND_S)
        errors = recorder.stderr.read()
        assert recorder.wait(COMMAND_S) == OK, errors
    assert last_of(out.read_bytes(), "end").merged_count > 0, "there was room"
    *_, told_ns, last_ns = ends_of(out)
    assert told_ns == asked_ns < last_ns


def test_who_is_busy_when_the_process_ends_still_gets_the_stream(
    recorded_server: "subprocess.Popen[bytes]", plan: Path, tmp_path: Path
) -> None:
    """Nothing is attached any more, and who reads several streams comes to each when it can."""
    out = tmp_path / "a.stream"
    with subprocess.Popen(
        command_of(recorded_server, plan, "--window", "10m"),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
    ) as recorder:  # fmt: skip
        await_attached(recorder)
        assert recorder.stdin is not None
        for _ in range(MANY):
            recorder.stdin.write(f"cut {monotonic_ns()}\n".encode())
            time.sleep(SHORT_S)
        recorded_server.kill()
        time.sleep(BUSY_S)
        content, errors = recorder.communicate(timeout=COMMAND_S)
    out.write_bytes(content)
    assert recorder.returncode == TARGET, errors
    assert len(content) > PIPE_BYTES
    assert len(ends_of(out)) > 1


def test_a_stream_that_lost_its_end_is_not_called_complete(
    recorded_server: "subprocess.Popen[bytes]", plan: Path
) -> None:
    with subprocess.Popen(
        command_of(recorded_server, plan, "--window", "10m"),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
    ) as recorder:  # fmt: skip
        await_attached(recorder)
        assert recorder.stdin is not None
        assert recorder.stdout is not None
        assert recorder.stderr is not None
        for _ in range(MANY):  # more than a pipe holds
            recorder.stdin.write(f"cut {monotonic_ns()}\n".encode())
            time.sleep(SHORT_S)
        recorded_server.kill()
        time.sleep(LATER_S)
        recorder.stdout.close()
        errors = recorder.stderr.read()
        assert recorder.wait(COMMAND_S) == IO, errors
    assert b"bytes are lost" in errors
    assert b"complete" not in errors
