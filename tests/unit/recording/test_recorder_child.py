# SPDX-License-Identifier: GPL-2.0-only
"""The static recorder as a child: what stays open if it cannot be started; several servers."""

import errno
import os
from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.placement.model import Plan
from tlstax.collectors.preflight.safety import Safety
from tlstax.collectors.process.target import Target
from tlstax.collectors.recording.by_recorder import child
from tlstax.collectors.recording.by_recorder.asked import Recorded
from tlstax.collectors.recording.by_recorder.child import ChildTarget, RecorderChild, ServerPart
from tlstax.collectors.recording.by_recorder.session import RecorderSession
from tlstax.collectors.recording.by_recorder.several import CpuTurns
from tlstax.tests.unit.recording.streams import frame, struct, window


def open_files() -> set[str]:
    """What the descriptors of this process lead to."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        path = Path("/proc/self/fd") / name
        if path.is_symlink():
            found.add(os.readlink(path))
    return found


def test_nothing_stays_open_when_it_cannot_be_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`tlstax top` and experiments go on in the same process, and try again."""
    monkeypatch.setattr(child, "recorder_path", lambda: tmp_path / "absent")
    with pytest.raises(FileNotFoundError):
        RecorderChild("plan", b"tables", [], others=[ChildTarget("other", b"tables", [])])
    assert not {path for path in open_files() if "tlstax-" in path}


def test_nothing_stays_open_when_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tlstax watch` tries again and again."""
    made = os.memfd_create

    def create(name: str, flags: int) -> int:
        if "unwind" in name:
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        return made(name, flags)

    monkeypatch.setattr(os, "memfd_create", create)
    with pytest.raises(OSError, match="Cannot allocate"):
        RecorderChild("plan", b"tables", [])
    assert not {path for path in open_files() if "tlstax-" in path}


class Clock:
    """One that is put forward by hand."""

    def __init__(self) -> None:
        self.now_ns = 1000

    def __call__(self) -> int:
        return self.now_ns


def test_cpu_time_is_that_of_whose_turn_it_is() -> None:
    clock = Clock()
    turns = CpuTurns(0, clock)
    for number, spent_ns in ((None, 5), (1, 10), (0, 20), (2, 40), (1, 80)):
        if number is not None:
            turns.turn(number)
        clock.now_ns += spent_ns
    found = [turns.used_ns(number) for number in range(3)]
    assert found == [25, 90, 40]
    assert sum(found) == clock.now_ns - 1000
    clock.now_ns += 1
    assert turns.used_ns(1) == 91, "to ask changes no turn"

    def act() -> None:
        clock.now_ns += 500

    turns.leave_out(act)
    assert turns.used_ns(1) == 91


REFUSED = frame(0, "ERROR", struct("error", exit_code=4, text=b"no such process"))
FIRST = frame(0, "START", struct("start", pid=7), target=1) + frame(1, *window(1, 9), target=1)
LAST = frame(2, "END", struct("end", windows_count=1), target=1)


@pytest.mark.parametrize(
    ("content", "ending", "statuses"),
    [
        (REFUSED + FIRST + LAST, "exit 0", (ExitCode.TARGET, ExitCode.OK)),
        (REFUSED + FIRST + LAST, "exit 3", (ExitCode.TARGET, ExitCode.OK)),
        (FIRST, "kill -9 $$", (-9, -9)),
        (FIRST, "exit 0", (ExitCode.FAILED, ExitCode.FAILED)),
    ],
    ids=["one refused", "its status is of all", "killed", "without an end"],
)
def test_each_has_the_exit_status_that_it_would_have_alone(
    tmp_path: Path, content: bytes, ending: str, statuses: tuple[int, int]
) -> None:
    (stream := tmp_path / "stream").write_bytes(content)
    (program := tmp_path / "recorder").write_text(f"#!/bin/sh\ncat {stream}\n{ending}\n")
    program.chmod(0o700)
    recorder = RecorderChild("a", None, [], program, [ChildTarget("b", None, [])])
    parts = [ServerPart(recorder, number) for number in range(2)]
    while not recorder.is_read:
        recorder.wait(500)
    recorder.close()
    assert tuple(part.close() for part in parts) == statuses
    if content is not FIRST:
        assert parts[0].said == "no such process"


ATTACHED = frame(0, "START", struct("start", pid=6)) + frame(1, *window(0, 9))
NOT_ATTACHED = struct("error", exit_code=3, text=b"process 7: no memory for a link")


def test_a_client_that_fails_while_it_is_attached_has_the_exit_code_of_that(
    tmp_path: Path, tls_target: Target, tls_plan: Plan
) -> None:
    """The server was attached to before; then nothing is recorded."""
    content = ATTACHED + frame(2, "ERROR", NOT_ATTACHED) + frame(0, "ERROR", NOT_ATTACHED, target=1)
    (stream := tmp_path / "stream").write_bytes(content)
    (program := tmp_path / "recorder").write_text(f"#!/bin/sh\ncat {stream}\nexit 3\n")
    program.chmod(0o700)
    recorder = RecorderChild("a", None, [], program, [ChildTarget("b", None, [])])
    recorded = Recorded(tls_target, tls_plan, Safety())
    with pytest.raises(TlstaxError, match="process 7: no memory for a link") as raised:
        RecorderSession(recorded, [], child=recorder.parts[0])
    recorder.close()
    assert raised.value.exit_code == ExitCode.HOST
