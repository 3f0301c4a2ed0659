# SPDX-License-Identifier: GPL-2.0-only
"""The static recorder's executable, as `make recorder` built it."""

from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError

NAME: Final = "tlstax-recorder"


def recorder_path() -> Path:
    """The executable that was built. Raises TlstaxError (HOST) if it was not."""
    path = Path(__file__).resolve().parents[2] / "recorder" / "bin" / NAME
    if not path.is_file():
        raise TlstaxError(
            f"{NAME} is missing",
            "it was not built",
            "run `make recorder`, or install a wheel that contains it",
            ExitCode.HOST,
        )
    return path
