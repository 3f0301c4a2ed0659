# SPDX-License-Identifier: GPL-2.0-only
"""Where results go: names by the time, and one clear error where nothing can be written."""

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tlstax import ExitCode, TlstaxError


def stamp() -> str:
    """The time as part of a file's name, in the time zone of this host."""
    return datetime.datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")


@contextmanager
def writing_to(directory: Path) -> Iterator[None]:
    """Raises TlstaxError (IO) when what is done below that directory fails."""
    try:
        yield
    except OSError as error:
        raise TlstaxError(
            f"cannot write to {directory}",
            str(error.strerror or error),
            "Choose another directory with -o",
            ExitCode.IO,
        ) from error
