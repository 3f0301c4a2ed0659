# SPDX-License-Identifier: GPL-2.0-only
"""The processes of a session of ssh on this side, and how a command ended."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tlstax.tests.processes import children_of

GONE_SECONDS = 5.0
Attach = Callable[..., "subprocess.Popen[str]"]


def children(pid: int) -> Iterator[tuple[int, str]]:
    """Pid and command line of the processes that a process started, and of theirs."""
    for child in children_of(pid):
        with suppress(OSError):  # it has ended since
            yield child, Path(f"/proc/{child}/cmdline").read_text()
            yield from children(child)


def line_of(process: "subprocess.Popen[str]") -> int:
    """What carries the bytes between ssh and sshd."""
    return next(pid for pid, command in children(process.pid) if "line.py" in command)


def await_line(process: "subprocess.Popen[str]") -> int:
    """The same of an ssh that has yet to start it."""
    while process.poll() is None:
        with suppress(StopIteration, OSError):
            return line_of(process)
    pytest.fail("tlstax ended before ssh had started")


def ssh_of(process: "subprocess.Popen[str]") -> int:
    return next(pid for pid, command in children(process.pid) if "/ssh_config" in command)


def said(process: "subprocess.Popen[str]", code: int, seconds: float = 60) -> str:
    _, text = process.communicate(timeout=seconds)
    assert process.returncode == code, text
    return str(text)


def await_attached(process: "subprocess.Popen[str]") -> str:
    """Until it says so; what it said before."""
    assert process.stderr is not None
    said = ""
    while "attached to" not in (line := process.stderr.readline()):
        said += line
        assert line, said
    return said
