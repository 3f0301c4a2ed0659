# SPDX-License-Identifier: GPL-2.0-only
"""TOML that a user wrote: read from a regular file of moderate size, parsed without surprises."""

import os
import stat
from pathlib import Path
from typing import Any, Final

BYTES_MAX: Final = 1 << 20
"""Size of a file; the largest that tlstax ships has 20 KB."""


class UnusableError(ValueError):
    """Why a file is not used, as part of a sentence."""


def read_content(path: Path) -> bytes:
    """The content of a file. Raises UnusableError, also for directories, devices and pipes."""
    try:
        # A pipe that nobody writes to must not block.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise UnusableError((error.strerror or str(error)).lower()) from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UnusableError("it is not a regular file")
        content = os.read(descriptor, BYTES_MAX + 1)
    finally:
        os.close(descriptor)
    if len(content) > BYTES_MAX:
        raise UnusableError(f"it has more than {BYTES_MAX >> 20} MiB")
    return content


def parse(content: bytes) -> dict[str, Any]:
    """The table in it. Raises UnusableError if it is not TOML, or nested too deeply."""
    import tomllib  # here: an attached process saves its memory

    try:
        return tomllib.loads(content.decode())
    except ValueError as error:  # not UTF-8, not TOML, or an integer of thousands of digits
        raise UnusableError(f"it is not TOML ({error})") from None
    except RecursionError:
        raise UnusableError("its values are nested too deeply") from None
