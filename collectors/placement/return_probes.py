# SPDX-License-Identifier: GPL-2.0-only
"""Where a return probe may be put: the one place that decides it.

A return probe replaces the return address on the thread's stack. A C++ exception that passes such a
function finds no unwind information there and ends the process; pthread_exit() and pthread_cancel()
skip the destructors above it (tests/truth/test_unwinding.py shows both). So none is put on server
code, on anything that calls back into it, or on a function that stays open for long.
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


def return_probe_refused(what: str) -> TlstaxError:
    """The error for a tool that sees the end of the server's functions by return probes only."""
    return TlstaxError(
        f"{what} puts return probes on functions of the server",
        "a C++ exception that passes such a function ends the server, and a thread that ends in it"
        " skips destructors",
        f"Leave it out, use tlstax's own engine (--collect native), or give --accept {ACCEPT}",
        ExitCode.USAGE,
    )
