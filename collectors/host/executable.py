# SPDX-License-Identifier: GPL-2.0-only
"""The static recorder's executables, as `make recorder` built them, or as the wheel holds them."""

import os
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError

NAME: Final = "tlstax-recorder"
FOLDER: Final = Path(__file__).resolve().parents[1] / "recorder" / "bin"
MACHINES: Final = ("x86_64", "aarch64")
"""What there are recorders for, as `uname -m` prints it."""
_ELF_MACHINES: Final = {62: "x86_64", 183: "aarch64"}  # by e_machine (elf.h)
_ALIASES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_HEADER_BYTES: Final = 20
_BUILT_OF: Final = ("collectors/recorder/*.[ch]", "probes/bpf/*.[ch]")
"""In a source checkout."""


def recorder_path(machine: str = "") -> Path:
    """The executable for a machine of MACHINES; "": for this host's.

    The files in FOLDER tell by their ELF header what they are for, whatever they are called.
    Raises TlstaxError (HOST) if none is for that machine.
    """
    wanted = machine or os.uname().machine
    wanted = _ALIASES.get(wanted.lower(), wanted)
    found = {machine_of(path): path for path in sorted(FOLDER.glob(f"{NAME}*"))}
    if wanted in found:
        return found[wanted]
    command = "make recorder" if wanted == os.uname().machine else f"make recorder ARCH={wanted}"
    present = ", ".join(sorted(name for name in found if name))
    raise TlstaxError(
        f"{NAME} for {wanted} is missing",
        f"it was not built; there is one for {present}" if present else "it was not built",
        f"run `{command}`, or install a wheel that contains it",
        ExitCode.HOST,
    )


def machine_of(path: Path) -> str:
    """The machine that an executable is for; "" if it is none of MACHINES, or no ELF file."""
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except OSError:
        return ""
    if len(header) < _HEADER_BYTES or header[:4] != b"\x7fELF":
        return ""
    return _ELF_MACHINES.get(int.from_bytes(header[18:20], "little"), "")


def age_warning(path: Path, called: str) -> str:
    """What to say of an executable of FOLDER that is older than its sources; "" if it is not."""
    newer = _newer_source(path)
    if newer is None:
        return ""
    return (
        f"{called} is older than {newer.name}, from which it is built: run "
        f"`make recorder ARCH={machine_of(path)}`, then this command again"
    )


def _newer_source(path: Path) -> Path | None:
    """What an executable of FOLDER was built without: the newest source that is newer than it.

    None in an installed package, whose files have the times of its installation.
    """
    root = FOLDER.parents[2]
    if not (root / "Makefile").exists():
        return None
    sources = [source for pattern in _BUILT_OF for source in root.glob(pattern) if source.is_file()]
    newest = max(sources, key=_changed_ns, default=path)
    return newest if _changed_ns(newest) > _changed_ns(path) else None


def _changed_ns(path: Path) -> int:
    return path.stat().st_mtime_ns
