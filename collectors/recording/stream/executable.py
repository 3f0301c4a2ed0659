# SPDX-License-Identifier: GPL-2.0-only
"""The static recorder's executable, as `make recorder` built it."""

import platform
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError

NAME: Final = "tlstax-recorder"
MACHINES: Final = ("x86_64", "aarch64")
"""What there are recorders for, as `uname -m` prints it."""


def recorder_path(machine: str = "") -> Path:
    """The executable that was built, for this machine or another one.

    Raises TlstaxError (HOST) if it was not built.
    """
    is_other = bool(machine) and machine != platform.machine()
    name = f"{NAME}.{machine}" if is_other else NAME
    path = Path(__file__).resolve().parents[2] / "recorder" / "bin" / name
    if not path.is_file():
        build = f"make recorder ARCH={machine}" if is_other else "make recorder"
        raise TlstaxError(
            f"{name} is missing",
            "it was not built",
            f"run `{build}`, or install a wheel that contains it",
            ExitCode.HOST,
        )
    return path
