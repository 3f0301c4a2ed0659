# SPDX-License-Identifier: GPL-2.0-only
"""Signals of the terminal while another host is recorded, for tlstax and for ssh."""

import os
import signal
import subprocess
import sys

from tlstax.collectors.remote.connection import LifeLine, _ignore_interrupts

ASK = "import signal; print([signal.getsignal(n) is signal.SIG_IGN for n in (1, 2, 15, 20)])"


def test_the_terminal_reaches_no_ssh() -> None:
    """SIGHUP, SIGINT and SIGTSTP; SIGTERM ends it."""
    command = [sys.executable, "-c", ASK]
    said = subprocess.check_output(command, text=True, preexec_fn=_ignore_interrupts)
    assert said == "[True, True, False, True]\n"


def test_ctrl_z_does_not_silence_the_life_line() -> None:
    """The recorder detaches after 20 s of silence."""
    reading, writing = os.pipe()
    before = signal.getsignal(signal.SIGTSTP)
    with LifeLine(writing):
        assert signal.getsignal(signal.SIGTSTP) == signal.SIG_IGN
        os.kill(os.getpid(), signal.SIGINT)  # ends it in order
    assert signal.getsignal(signal.SIGTSTP) == before
    os.close(writing)
    assert os.read(reading, 100).strip(b".") == b"s"
    os.close(reading)
