# SPDX-License-Identifier: GPL-2.0-only
"""Programs that record beside tlstax: they end with it, and say how they ended and why."""

import re
import signal
import subprocess
from collections.abc import Sequence
from typing import Any, Final

from tlstax.workloads.servers import supervisor

_LAST_WORDS_MAX: Final = 200
# Files of the system may be named; where somebody keeps data is nobody's business.
_FOLDERS: Final = re.compile(
    r"""(?<![\w./…])/(?!(?:proc|sys|dev|usr|lib\w*|s?bin)/)(?:[^\s/:'"]+/)+"""
)


def die_with_parent() -> None:
    """For `preexec_fn`: no tool outlives a tlstax that was killed, and each may clean up."""
    supervisor.die_with_parent(signal.SIGTERM)


def start_with_us(command: Sequence[str], **how: Any) -> "subprocess.Popen[str]":
    """Start a program in a session of its own that ends with us; `how` as for subprocess.Popen."""
    return subprocess.Popen(
        command, start_new_session=True, preexec_fn=die_with_parent, text=True, **how
    )


def reap(process: "subprocess.Popen[bytes]") -> None:
    """Kill it if it runs still, and wait until it is gone."""
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
    """The last line that a tool said, fit for a capture: cut, and without folders of data."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    shown = "".join(one if one.isprintable() else "?" for one in lines[-1]) if lines else "nothing"
    return _FOLDERS.sub("…/", shown)[:_LAST_WORDS_MAX]
