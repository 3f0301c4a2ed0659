# SPDX-License-Identifier: GPL-2.0-only
"""Places in binaries, for the tests of this folder."""

import re
from pathlib import Path

from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.process.mappings import MappedObject, TextSegment
from tlstax.collectors.process.symbols import Place, Symbolizer
from tlstax.collectors.process.target import Target

BASE = 0x7F0000000000


def mapped(path: Path) -> MappedObject:
    """The file as if mapped whole at BASE, so that addresses are BASE plus file offset."""
    with Elf(path) as elf:
        headers = elf.headers
    size, inode, device = path.stat().st_size, path.stat().st_ino, path.stat().st_dev
    segment = TextSegment(BASE, BASE + size, 0)
    return MappedObject(
        str(path),
        str(path),
        "00:00",
        inode,
        headers.build_id,
        False,
        (segment,),
        headers,
        (device, inode),
    )


def place(path: Path, address: int, root: str = "/") -> Place:
    """Name one of the file's own virtual addresses."""
    entry = mapped(path)
    symbolizer = Symbolizer(Target(1 << 22, "test", str(path), 0, (entry,)), Path(root))
    try:
        with Elf(path) as elf:
            offset = elf.to_offset(address)
        assert offset is not None
        return symbolizer.user(BASE + offset)
    finally:
        symbolizer.close()


def address_of(path: Path, name: str) -> tuple[int, int]:
    """(address, size) of a function."""
    with Elf(path) as elf:
        (symbol,) = elf.find(re.compile(name))
        return symbol.address, symbol.size
