# SPDX-License-Identifier: GPL-2.0-only
"""Do something that needs much memory in a forked child, and keep only its result.

A recorder that stays attached for hours should stay small, but reading binaries takes tens of
megabytes for a moment.
"""

import os
import pickle
from collections.abc import Callable
from typing import TypeVar, cast

from tlstax import ExitCode, TlstaxError

Result = TypeVar("Result")


def in_child(work: Callable[[], Result], what: str) -> Result:
    """The result of `work`, done in a child process that is gone on return.

    A TlstaxError of `work` is raised here. `what` says in an error what could not be done. Call it
    while no other thread runs.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _answer(writing, work)
    os.close(writing)
    with open(reading, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if status or not answer:
        raise TlstaxError(
            what,
            f"the child process that does it ended with status {status}",
            "check that memory is left, and that the target's binaries are not being replaced",
            ExitCode.TARGET,
        )
    result = pickle.loads(answer)  # written by our own child
    if isinstance(result, _Failure):
        raise TlstaxError(*result.parts)
    return cast(Result, result)


class _Failure:
    """A TlstaxError on its way out of the child."""

    def __init__(self, error: TlstaxError) -> None:
        self.parts = (error.what, error.why, error.do, error.exit_code)


def _answer(writing: int, work: Callable[[], object]) -> None:
    """The child's whole life: it never returns to the caller's code."""
    status = 1
    try:
        try:
            result = work()
        except TlstaxError as error:
            result = _Failure(error)
        with open(writing, "wb") as pipe:
            pickle.dump(result, pipe)
        status = 0
    finally:
        os._exit(status)
