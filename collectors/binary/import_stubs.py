# SPDX-License-Identifier: GPL-2.0-only
"""The function that a stub of the procedure linkage table calls (x86-64).

Calls between libraries, and within libraries that let their functions be replaced, go through stubs
without names: `jmp *slot(%rip)`. The relocation of the slot names the function. OpenSSL spends a
few percent of a handshake in its own stubs.
"""

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tlstax.collectors.binary.elf import SYMBOL, Elf

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

JUMP = b"\xff\x25"  # jmp *displacement(%rip); a prefix or endbr64 may precede it
STUB_BYTES = {".plt": 16, ".plt.sec": 16, ".plt.got": 8}
RELOCATION_BYTES = 24  # Elf64_Rela: offset, info (symbol number above 32 bits of type), addend


def imported_name(
    elf: Elf, address: int, numbers: Mapping[int, int] | None = None
) -> tuple[str, int] | None:
    """(name, start of the stub) of the function that the stub at an address calls.

    `numbers`: the file's slot_symbols(), for who asks about many addresses.
    """
    for section_name, size in STUB_BYTES.items():
        section = elf.section(section_name)
        if section is None or not section.address <= address < section.address + section.size:
            continue
        start = address - (address - section.address) % size
        code = elf.code_at(start, size)
        jump = code.find(JUMP)
        if jump < 0 or jump + 6 > len(code):
            return None
        (displacement,) = struct.unpack_from("<i", code, jump + 2)
        slot = start + jump + 6 + displacement
        number = _slot_symbol(elf, slot) if numbers is None else numbers.get(slot, 0)
        name = _symbol_name(elf, number)
        return (name, start) if name else None
    return None


def relocations(elf: Elf, section_name: str) -> "NDArray[numpy.uint64]":
    """Rows of (slot, info, addend as unsigned) of a section of relocations."""
    import numpy  # imported here: only who plans needs it

    content = elf.content(section_name)
    usable = len(content) // RELOCATION_BYTES * RELOCATION_BYTES
    return numpy.frombuffer(content[:usable], dtype="<u8").reshape(-1, RELOCATION_BYTES // 8)


def slot_symbols(elf: Elf) -> dict[int, int]:
    """The number of the symbol whose address the loader writes into each slot."""
    found: dict[int, int] = {}
    for section_name in (".rela.plt", ".rela.dyn"):
        rows = relocations(elf, section_name)
        for slot, info in rows[rows[:, 1] >> 32 != 0, :2].tolist():
            found.setdefault(slot, info >> 32)
    return found


def _slot_symbol(elf: Elf, slot: int) -> int:
    """The number of the symbol whose address the loader writes into a slot, 0: none."""
    for section_name in (".rela.plt", ".rela.dyn"):
        section = elf.section(section_name)
        if section is None or slot < 0:
            continue
        end = min(len(elf.data), section.offset + section.size)
        position = elf.data.find(slot.to_bytes(8, "little"), section.offset, end)
        while position >= 0:
            if (position - section.offset) % RELOCATION_BYTES == 0 and position + 24 <= end:
                (info,) = struct.unpack_from("<Q", elf.data, position + 8)
                return int(info >> 32)
            position = elf.data.find(slot.to_bytes(8, "little"), position + 1, end)
    return 0


def _symbol_name(elf: Elf, number: int) -> str:
    section = elf.section(".dynsym")
    if section is None or not 0 < number < section.size // SYMBOL.size:
        return ""
    position = section.offset + number * SYMBOL.size
    if position + SYMBOL.size > len(elf.data):
        return ""
    (offset,) = struct.unpack_from("<I", elf.data, position)
    start, end = elf.name_range(".dynsym")
    return elf.name_at(start + offset, end).decode("utf-8", "surrogateescape")
