# SPDX-License-Identifier: GPL-2.0-only
"""Runs expensive work in a forked child, so that its memory is freed when the child ends."""

import os
import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from tlstax import ExitCode, TlstaxError

Result = TypeVar("Result")


@dataclass(frozen=True)
class Failure:
    """A TlstaxError, as passed from the child to the parent."""

    what: str
    why: str
    do: str
    exit_code: ExitCode


class _Spent:
    """CPU time of all children that have ended."""

    ns = 0


_spent: Final = _Spent()


def own_cpu_ns() -> int:
    """CPU time of this process and of what it ran in children so far, without other programs."""
    return time.process_time_ns() + _spent.ns


def run_in_child(what: str, function: Callable[[], Result]) -> Result:
    """Call the function in a forked child and return its (picklable) result.

    A TlstaxError of the function is raised again here. If the child ends in any other way,
    TlstaxError says that `what` failed. Call it while this process has one thread.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _answer(writing, function)
    os.close(writing)
    with open(reading, "rb") as pipe:
        answer = pipe.read()
    _, status, usage = os.wait4(child, 0)
    _spent.ns += round((usage.ru_utime + usage.ru_stime) * 1e9)
    if status or not answer:
        raise TlstaxError(
            f"{what} failed",
            f"its child process ended with wait status {status}",
            "Check that memory is available, and report this",
        )
    result: Result | Failure = pickle.loads(answer)  # written by our own child
    if isinstance(result, Failure):
        raise TlstaxError(result.what, result.why, result.do, result.exit_code)
    return result


def _answer(writing: int, function: Callable[[], object]) -> None:
    """Run the function in the child and exit; never returns to the caller."""
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
        status = int(ExitCode.INTERRUPTED)  # the parent got the signal, too, and reports it
    finally:
        os._exit(status)
