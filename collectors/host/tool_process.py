# SPDX-License-Identifier: GPL-2.0-only
"""Other recorders that tlstax runs: they end with tlstax; how and why they ended is reported."""

import re
import signal
import subprocess
from collections.abc import Sequence
from typing import Any, Final

from tlstax.workloads.servers import supervisor

_LAST_WORDS_MAX: Final = 200
# Captures may contain system paths, but no paths of a user's data.
_FOLDERS: Final = re.compile(
    r"""(?<![\w./…])/(?!(?:proc|sys|dev|usr|lib\w*|s?bin)/)(?:[^\s/:'"]+/)+"""
)


def die_with_parent() -> None:
    """For `preexec_fn`: the tool gets a signal when tlstax is killed, so that it can clean up."""
    supervisor.die_with_parent(signal.SIGTERM)


def start_with_us(
    command: Sequence[str], *, own_session: bool = True, **how: Any
) -> "subprocess.Popen[str]":
    """Start a program that ends with tlstax; `how` as for subprocess.Popen.

    In a session of its own the terminal's Ctrl-C does not reach it, nor can it ask there.
    """
    return subprocess.Popen(
        command, start_new_session=own_session, preexec_fn=die_with_parent, text=True, **how
    )


def reap(process: "subprocess.Popen[bytes]") -> None:
    """Kill it if it still runs, and wait until it has ended."""
    if process.poll() is None:
        process.kill()
    process.wait()


def how_it_ended(process: "subprocess.Popen[bytes]") -> str:
    """`with status 1` or `by SIGKILL`, of a process that has ended."""
    code = process.returncode
    if code is None or code >= 0:
        return f"with status {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:  # the real-time signals have no names
        return f"by signal {-code}"


def last_words(text: str) -> str:
    """The last line that a tool printed, for a capture: truncated, without data folders."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    shown = "".join(one if one.isprintable() else "?" for one in lines[-1]) if lines else "nothing"
    return _FOLDERS.sub("…/", shown)[:_LAST_WORDS_MAX]
