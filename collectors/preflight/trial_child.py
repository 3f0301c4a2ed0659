# SPDX-License-Identifier: GPL-2.0-only
"""Runs a trial in a child process that it may kill, and says what became of it.

The child attaches its probes to itself by perf events without a program: nothing of it reaches
another process, and nothing stays when it is dead. It leaves no core file. A child that answered is
not waited for, because the kernel takes about 70 ms to remove a probe: run trials in a process that
ends afterwards (`tlstax.collectors.host.child`).
"""

import ctypes
import os
import resource
import select
import signal
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Final, NamedTuple

DEADLINE_S: Final = 3.0
_PR_SET_DUMPABLE: Final = 4  # linux/prctl.h
_COUNT_BYTES: Final = 8


class State(StrEnum):
    """What a trial or a reading showed."""

    SAFE = "safe"
    HARMFUL = "harmful"
    ABSENT = "absent"  # what it is about does not exist here
    UNKNOWN = "unknown"


class Outcome(NamedTuple):
    """The result of a trial or of a reading, and what was seen, as one clause."""

    state: State
    found: str


Trial = Callable[[], Outcome]


class RunningTrial:
    """A trial in a child process."""

    def __init__(self, trial: Trial) -> None:
        """Fork; call it while this process has one thread."""
        self._start_s = time.monotonic()
        self._reading, writing = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._reading)
            _run(trial, writing)
        os.close(writing)

    def outcome(self) -> Outcome:
        """Wait for the answer or the death of the child."""
        answer = self._answer()
        if "\n" not in answer:
            _, status = os.waitpid(self._pid, 0)
            code = os.waitstatus_to_exitcode(status)
            if code == -signal.SIGKILL:
                return Outcome(State.UNKNOWN, f"no answer within {DEADLINE_S:.0f} s")
            if code < 0:
                name = signal.Signals(-code).name
                return Outcome(State.HARMFUL, f"a process of our own died by {name}")
            return Outcome(State.UNKNOWN, f"the trial ended with status {code}")
        state, _, found = answer.rstrip("\n").partition(" ")
        return Outcome(State(state), found)

    def _answer(self) -> str:
        """What the child wrote until its line was complete or it ended; kills one that hangs."""
        received = b""
        ready = select.poll()
        ready.register(self._reading, select.POLLIN)
        try:
            while b"\n" not in received:
                left_s = self._start_s + DEADLINE_S - time.monotonic()
                if left_s <= 0 or not ready.poll(left_s * 1000):
                    os.kill(self._pid, signal.SIGKILL)
                    break
                chunk = os.read(self._reading, 4096)
                if not chunk:
                    break
                received += chunk
        finally:
            os.close(self._reading)
        return received.decode(errors="replace")


def _run(trial: Trial, writing: int) -> None:
    """Run the trial in the child; never returns."""
    status = 1
    try:
        _leave_files(writing)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        try:
            outcome = trial()
        except OSError as error:
            outcome = Outcome(State.UNKNOWN, f"refused: {error.strerror or error}")
        os.write(writing, f"{outcome.state} {outcome.found}\n".encode())
        status = 0
    finally:
        os._exit(status)


def _leave_files(kept: int) -> None:
    """Close every file but one, so that nobody waits for the end of this process to read on."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(null, standard)
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))


def hits(event: int) -> int:
    """How often a probe was hit."""
    return int.from_bytes(os.read(event, _COUNT_BYTES), "little")
