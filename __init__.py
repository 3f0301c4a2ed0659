# SPDX-License-Identifier: GPL-2.0-only
"""tlstax: where does the time go when a MySQL-family server speaks TLS?"""

import os
from enum import IntEnum
from pathlib import Path

__version__ = "0.1.0"


class ExitCode(IntEnum):
    """Exit status of every tlstax command (documented in docs/exit-codes.md)."""

    OK = 0
    FAILED = 1  # a measurement failed its own checks
    USAGE = 2  # wrong arguments
    HOST = 3  # this host lacks a feature or a privilege
    TARGET = 4  # the process or its binary cannot be measured
    CAPTURE = 5  # a capture file cannot be used
    IO = 6  # disk full, unwritable file
    BUDGET = 7  # nothing can be measured for the budget that was given
    INTERRUPTED = 130  # Ctrl-C


class TlstaxError(Exception):
    """The only error that users see: what happened, why, and what to do about it.

    Raised anywhere, printed in one place (`tlstax.__main__`), which exits with `exit_code`.
    Each part is one sentence without its full stop.
    """

    def __init__(self, what: str, why: str, do: str, exit_code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(f"{what}: {why}. {do}.")
        self.what = what
        self.why = why
        self.do = do
        self.exit_code = exit_code


def cache_directory() -> Path:
    """What tlstax keeps between runs: $XDG_CACHE_HOME/tlstax.

    Without that variable, or where it is no absolute path (which its specification says to
    ignore), below /var/cache for root, because the account that a server runs as must be able to
    read what is unpacked there and /root is closed to it, else below ~/.cache.
    """
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not named.is_absolute():
        try:
            named = Path("/var/cache") if os.geteuid() == 0 else Path.home() / ".cache"
        except RuntimeError:  # no HOME and no entry in passwd: Debian's name of a home that is none
            named = Path("/nonexistent")
    return named / "tlstax"
