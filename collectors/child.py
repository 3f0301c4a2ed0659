# SPDX-License-Identifier: GPL-2.0-only
"""Children: something costly in a forked one, so that its memory is gone with it; how tools end."""

import ctypes
import os
import pickle
import re
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from tlstax import ExitCode, TlstaxError

Result = TypeVar("Result")
_PDEATHSIG = 1  # PR_SET_PDEATHSIG, prctl(2)


def die_with_parent() -> None:
    """For `preexec_fn`: no tool outlives a tlstax that was killed."""
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGTERM)


def start_with_us(command: Sequence[str], **how: Any) -> "subprocess.Popen[str]":
    """Start a program in a session of its own that ends with us; `how` as for subprocess.Popen."""
    return subprocess.Popen(
        command, start_new_session=True, preexec_fn=die_with_parent, text=True, **how
    )


_LAST_WORDS_MAX: Final = 200
# Files of the system may be named; where somebody keeps data is nobody's business.
_FOLDERS: Final = re.compile(
    r"""(?<![\w./…])/(?!(?:proc|sys|dev|usr|lib\w*|s?bin)/)(?:[^\s/:'"]+/)+"""
)


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
    """The last line that a tool said, fit for a capture: bounded, and no folders of private data."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    shown = "".join(one if one.isprintable() else "?" for one in lines[-1]) if lines else "nothing"
    return _FOLDERS.sub("…/", shown)[:_LAST_WORDS_MAX]


@dataclass(frozen=True)
class Failure:
    """A TlstaxError on its way out of the child."""

    what: str
    why: str
    do: str
    exit_code: ExitCode


def run_in_child(what: str, function: Callable[[], Result]) -> Result:
    """Call the function in a forked child and return its (picklable) result.

    A TlstaxError of the function is raised again here. If the child dies otherwise, TlstaxError
    says that `what` failed. Call it while this process has one thread.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _answer(writing, function)
    os.close(writing)
    with open(reading, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if status or not answer:
        raise TlstaxError(
            f"{what} failed",
            f"the child process that does it ended with wait status {status}",
            "Check that memory is left, and report this",
        )
    result: Result | Failure = pickle.loads(answer)  # written by our own child
    if isinstance(result, Failure):
        raise TlstaxError(result.what, result.why, result.do, result.exit_code)
    return result


def _answer(writing: int, function: Callable[[], object]) -> None:
    """The child's whole life: it never returns to the caller's code."""
    status = 1
    try:
        try:
            result = function()
        except TlstaxError as error:
            result = Failure(error.what, error.why, error.do, error.exit_code)
        with open(writing, "wb") as pipe:
            pickle.dump(result, pipe)
        status = 0
    except KeyboardInterrupt:
        status = int(ExitCode.INTERRUPTED)  # the parent got the signal, too, and says so
    finally:
        os._exit(status)
