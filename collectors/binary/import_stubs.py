# SPDX-License-Identifier: GPL-2.0-only
"""The function that a stub of the procedure linkage table calls.

Calls between libraries, and within libraries that let their functions be replaced, go through stubs
without names: `jmp *slot(%rip)` on x86-64; `adrp x16, page; ldr x17, [x16, #slot]` and a branch on
arm64. The relocation of the slot names the function. OpenSSL spends a few percent of a handshake in
its own stubs.
"""

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tlstax.collectors.binary import a64
from tlstax.collectors.binary.elf import SYMBOL, Elf, Section
from tlstax.collectors.binary.machine import ARM64

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
        find = _slot_of_arm64 if elf.machine == ARM64 else _slot_of_x86
        found = find(elf, section, address, size)
        if found is None:
            return None
        slot, start = found
        number = _slot_symbol(elf, slot) if numbers is None else numbers.get(slot, 0)
        name = _symbol_name(elf, number)
        return (name, start) if name else None
    return None


def _slot_of_x86(elf: Elf, section: Section, address: int, size: int) -> tuple[int, int] | None:
    """(the slot that the stub at an address jumps through, start of the stub)."""
    start = address - (address - section.address) % size
    code = elf.code_at(start, size)
    jump = code.find(JUMP)
    if jump < 0 or jump + 6 > len(code):
        return None
    (displacement,) = struct.unpack_from("<i", code, jump + 2)
    return start + jump + 6 + displacement, start


def _slot_of_arm64(elf: Elf, section: Section, address: int, _: int) -> tuple[int, int] | None:
    """The same. The head of the table is longer than a stub, and stubs may begin with bti."""
    for at in range(address + 4, max(section.address, address - 16) - 4, -4):
        code = elf.code_at(at, 8)
        if len(code) < 8 or at % 4:
            continue
        first, second = struct.unpack("<II", code)
        page = a64.address_parts(first, at)
        loaded = a64.access_of(second)
        if page is None or first & 31 != 16 or loaded is None or loaded.registers != (17,):
            continue
        (before,) = struct.unpack("<I", elf.code_at(at - 4, 4)) if at > section.address else (0,)
        start = at - 4 if before == a64.BTI_C else at
        if start <= address:  # else the next stub's: `address` is that of the last instruction
            return page + loaded.offset, start
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
