# SPDX-License-Identifier: GPL-2.0-only
"""The unwind table of the kernel's own code in a process, [vdso]: an ELF file in memory."""

import tempfile
from contextlib import suppress
from pathlib import Path

from tlstax import TlstaxError
from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.unwinding.file_table import FileTable, build


def vdso_table(content: bytes) -> FileTable | None:
    """Its unwind table; None if it has none, or no room for a temporary file."""
    with (
        suppress(OSError, TlstaxError),
        tempfile.TemporaryDirectory(prefix="tlstax-") as folder,
    ):
        path = Path(folder) / "vdso"
        path.write_bytes(content)
        with Elf(path) as elf:
            return build(elf)
    return None
