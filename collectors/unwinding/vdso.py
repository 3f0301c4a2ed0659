# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's own code in a process, [vdso]: an ELF file in memory, the same in every process."""

import ctypes
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from tlstax import TlstaxError
from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.process.mappings import read_special_maps
from tlstax.collectors.unwinding.file_table import FileTable, build

NAME: Final = "[vdso]"
_BYTES_MOST: Final = 1 << 16


def own_vdso() -> bytes:
    """The bytes of this process's vdso; b"" if it has none."""
    for start, end, name in read_special_maps(os.getpid()):
        if name == NAME and end - start <= _BYTES_MOST:
            return ctypes.string_at(start, end - start)
    return b""


def vdso_table() -> FileTable | None:
    """Its unwind table; None if it has none, or no room for a temporary file."""
    content = own_vdso()
    with (
        suppress(OSError),
        tempfile.TemporaryDirectory(prefix="tlstax-") as folder,
    ):
        path = Path(folder) / "vdso"
        path.write_bytes(content)
        return kept_vdso_table(path)
    return None


def kept_vdso_table(path: Path) -> FileTable | None:
    """The unwind table of a vdso that is in a file; None if there is none."""
    with suppress(TlstaxError), Elf(path) as elf:
        return build(elf)
    return None
