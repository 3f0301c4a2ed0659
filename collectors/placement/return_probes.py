# SPDX-License-Identifier: GPL-2.0-only
"""Where a return probe may be put: the one place that decides it.

A return probe replaces the return address on the thread's stack. A C++ exception, pthread_exit() or
pthread_cancel() that passes such a function finds no unwind information there and ends the process
(tests/truth/test_unwinding.py shows it). So none is put on server code, on anything that calls back
into it, or on a function that stays open for long.
"""

from typing import Final

from tlstax import ExitCode, TlstaxError

ACCEPT: Final = "return-probes"
"""What `--accept` takes from somebody who knows that nothing unwinds through the functions."""


def return_probe_allowed(kind: str, leaf: bool, accepted: bool = False) -> bool:
    """Whether a function of a definition may have a return probe.

    `kind`: of its definition, such as "tls" or "server"; `leaf`: whether the function calls no code
    but the library's own; `accepted`: whether the user accepts the danger.
    """
    return accepted or (kind == "tls" and leaf)


def refused(what: str, functions: str) -> TlstaxError:
    """The error for a tool that has only return probes for a function, USAGE."""
    return TlstaxError(
        f"{what} needs a return probe on {functions}",
        "a C++ exception or the end of a thread that passes a function with a return probe ends the"
        " server",
        f"Leave it out, use tlstax's own engine, or give --accept {ACCEPT}",
        ExitCode.USAGE,
    )
