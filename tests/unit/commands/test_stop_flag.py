# SPDX-License-Identifier: GPL-2.0-only
"""What signals do to a command that records: Ctrl-C ends it, Ctrl-Z does not stop it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tlstax.tests.patience import COMMAND_S

Spawn = Callable[..., "subprocess.Popen[Any]"]
WAIT = """
import select, subprocess, sys
from tlstax.collectors.commands.stop_flag import StopFlag

stop = StopFlag()
child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print("ready", flush=True)
for line in sys.stdin:
    print(line.strip(), stop.requested, flush=True)
select.select([stop.fd], [], [])
assert stop.requested
print("child", child.communicate(b"runs")[0].decode())
"""


@pytest.fixture
def waiting(spawn: Spawn) -> "subprocess.Popen[str]":
    """A command with a child, in a process group of its own, as a shell starts it."""
    process = spawn(
        [sys.executable, "-c", WAIT],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, bufsize=1, process_group=0,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    """Exit status and output."""
    said, errors = process.communicate(timeout=COMMAND_S)
    return process.returncode, said, errors


def ask(process: "subprocess.Popen[str]") -> str:
    """Whether it is to end, as it sees it now."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("asked\n")
    return process.stdout.readline()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_wait(waiting: "subprocess.Popen[str]", number: signal.Signals) -> None:
    assert ask(waiting) == "asked False\n"
    waiting.send_signal(number)
    assert ended(waiting) == (0, "child runs\n", "")


@pytest.mark.timeout(60)  # what is stopped answers nothing
def test_ctrl_z_stops_neither_it_nor_a_child_and_is_told_once(
    waiting: "subprocess.Popen[str]",
) -> None:
    for _ in range(3):
        os.killpg(waiting.pid, signal.SIGTSTP)  # as the terminal does
        assert ask(waiting) == "asked False\n"
    waiting.send_signal(signal.SIGTERM)
    code, said, errors = ended(waiting)
    assert (code, said) == (0, "child runs\n")
    assert errors.startswith("tlstax: Ctrl-Z is ignored")
    assert errors.count("\n") == 1
