# SPDX-License-Identifier: GPL-2.0-only
"""The compiled BPF programs, as `make bpf` built them, or as the wheel holds them."""

import os
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError

FOLDER: Final = Path(__file__).resolve().with_name("bpf")
_SUBFOLDERS: Final = {"x86_64": "", "aarch64": "arm64"}
"""Of FOLDER, for a machine. An object's header says that it is for BPF, on any."""


def object_paths(machine: str = "") -> dict[str, Path]:
    """The objects for a machine as `uname -m` prints it, by file name; "": for this host's.

    Raises TlstaxError (HOST) if there are none.
    """
    wanted = machine or os.uname().machine
    why, found = f"tlstax has them for {' and '.join(_SUBFOLDERS)}", dict[str, Path]()
    if wanted in _SUBFOLDERS:
        folder = FOLDER / _SUBFOLDERS[wanted]
        why, found = "they were not built", {path.name: path for path in folder.glob("*.bpf.o")}
    if not found:
        raise TlstaxError(
            f"the BPF programs for {wanted} are missing",
            why,
            "Run `make bpf`, or install a wheel of `make dist`, which contains them",
            ExitCode.HOST,
        )
    return dict(sorted(found.items()))
