# SPDX-License-Identifier: GPL-2.0-only
"""Where an object's code calls or jumps to a function, and whether it may be called otherwise.

Code is searched as bytes, in one pass; what was found is decoded by the caller of this module. A
function whose address is kept in data or is loaded may be called from anywhere: RefusedError.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from tlstax.collectors.elf import SYMBOL, Elf
from tlstax.collectors.import_stubs import STUB_BYTES
from tlstax.collectors.spots import Finder

CALL, JUMP, SHORT_JUMP = 0xE8, 0xE9, 0xEB
LEA_BYTES: Final = 7
E_TYPE, ET_EXEC = 16, 2
# They say where functions are, and are nothing that is called through.
NO_POINTERS: Final = (".dynsym", ".rela", ".eh_frame", ".gnu", ".note")
RELOCATION: Final = struct.Struct("<QQq")  # Elf64_Rela: address, type and symbol, addend
JUMP_SLOT, RELATIVE = 7, 8  # R_X86_64_*


class RefusedError(Exception):
    """Why the callers of a function do not serve."""


def imports(elf: Elf, name: str) -> bool:
    """Whether an object refers to a function of that name in another one."""
    start, end = elf.name_range(".dynsym")
    if elf.data.find(name.encode() + b"\0", start, end) < 0:  # quick, and settles most
        return False
    return any(True for _ in _symbol_numbers(elf, name))


def exports(elf: Elf, name: str) -> bool:
    """Whether other objects can find a function of that name in this one."""
    numbers = set(_symbol_numbers(elf, name))
    table = elf.content(".dynsym")
    usable = len(table) // SYMBOL.size * SYMBOL.size
    rows = enumerate(SYMBOL.iter_unpack(table[:usable]))
    return any(number in numbers and section for number, (_, _, _, section, _, _) in rows)


class References:
    """The direct calls and jumps of one object, by where they lead to.

    Those to stubs are looked up once for all functions: a server has 30 MB of code.
    """

    def __init__(self, finder: Finder) -> None:
        self._finder = finder
        self._to_stubs: tuple[dict[int, set[int]], set[int]] | None = None

    def calls_of(self, name: str, own: int | None) -> set[int]:
        """Addresses of the calls of a function; `own`: its address if this object defines it.

        Raises RefusedError when it may also be called otherwise.
        """
        elf = self._finder.elf
        _refuse_pointers(elf, name, own)
        calls: set[int] = set()
        stubs = set(_stubs_of(self._finder, name))
        _refuse_stored(elf, stubs | ({own} if own is not None else set()))
        if stubs:
            if self._to_stubs is None:
                sections = [elf.section(section) for section in STUB_BYTES]
                ranges = [range(s.address, s.address + s.size) for s in sections if s is not None]
                self._to_stubs = _references(elf, ranges)
            places, taken = self._to_stubs
            calls.update(*(places.get(stub, set()) for stub in stubs))
            if stubs & taken:
                raise RefusedError(f"{elf.name} takes its address")
        if own is not None:
            places, taken = _references(elf, [range(own, own + 1)])
            calls |= places.get(own, set())
            if taken:
                raise RefusedError(f"{elf.name} takes its address")
        return calls


def _references(elf: Elf, wanted: Sequence[range]) -> tuple[dict[int, set[int]], set[int]]:
    """Calls and jumps to each wanted address, and those addresses that are loaded (`lea`).

    Whatever looks like one counts; the caller decodes the functions around them.
    """
    import numpy  # only here: a server has 1.5 million such places, and planning is a child's work

    calls: dict[int, set[int]] = {}
    taken: set[int] = set()
    for section in elf.headers.sections:
        if not (section.executable and section.in_file) or section.name in STUB_BYTES:
            continue
        raw = elf.slice(section.offset, section.size)
        # Padded, so that an instruction at the very end is looked at, too.
        code = numpy.frombuffer(raw + bytes(LEA_BYTES), dtype=numpy.uint8)
        one, two, three = code[:-7], code[1:-6], code[2:-5]
        for is_call, opcode_bytes, distance_bytes, found in (
            (True, 1, 4, (one == CALL) | (one == JUMP)),
            (True, 2, 4, (one == 0x0F) & (two & 0xF0 == 0x80)),
            (True, 1, 1, (one == SHORT_JUMP) | (one & 0xF0 == 0x70)),
            (False, 3, 4, ((one == 0x48) | (one == 0x4C)) & (two == 0x8D) & (three & 0xC7 == 5)),
        ):
            places = numpy.flatnonzero(found)
            distance = numpy.zeros(len(places), dtype=numpy.int64)
            for byte in range(distance_bytes):
                distance |= code[places + opcode_bytes + byte].astype(numpy.int64) << 8 * byte
            sign = 1 << 8 * distance_bytes - 1
            behind = section.address + places + opcode_bytes + distance_bytes
            targets = behind + (distance ^ sign) - sign
            for part in wanted:
                hits = numpy.flatnonzero((targets >= part.start) & (targets < part.stop))
                for place, target in zip(
                    places[hits].tolist(), targets[hits].tolist(), strict=True
                ):
                    if is_call:
                        calls.setdefault(target, set()).add(section.address + place)
                    else:
                        taken.add(target)
    return calls, taken


def _stubs_of(finder: Finder, name: str) -> Iterator[int]:
    for section_name, size in STUB_BYTES.items():
        section = finder.elf.section(section_name)
        if section is not None:
            for address in range(section.address, section.address + section.size, size):
                if finder.code.import_at(address) == name:
                    yield address


def _refuse_pointers(elf: Elf, name: str, own: int | None) -> None:
    """Raise RefusedError when a relocation puts the function's address into data."""
    numbers = set(_symbol_numbers(elf, name))
    stub_slots = elf.section(".plt.got") is not None
    content = elf.content(".rela.dyn")
    usable = len(content) // RELOCATION.size * RELOCATION.size
    wanted = {number << 32 for number in numbers}
    for _, info, addend in RELOCATION.iter_unpack(content[:usable]):
        by_name = info & ~0xFFFFFFFF in wanted and bool(info >> 32)
        kind = info & 0xFFFFFFFF
        if by_name and kind != JUMP_SLOT and not (kind == 6 and stub_slots):
            raise RefusedError(f"{elf.name} keeps a pointer to it")
        if own is not None and kind == RELATIVE and addend == own:
            raise RefusedError(f"{elf.name} keeps a pointer to it")


def _refuse_stored(elf: Elf, addresses: set[int]) -> None:
    """Raise RefusedError when an address is in data as it is, or in code that is not relocated.

    So it is in a program that is linked to a fixed address, and with packed relocations (RELR).
    """
    fixed = elf.data[E_TYPE] == ET_EXEC
    for section in elf.headers.sections:
        if not (section.in_file and section.address) or section.name.startswith(NO_POINTERS):
            continue
        end = section.offset + section.size
        for address in addresses:
            if section.executable:
                wanted = address.to_bytes(8, "little")[:4]
                if fixed and elf.data.find(wanted, section.offset, end) >= 0:
                    raise RefusedError(f"{elf.name} takes its address")
                continue
            wanted = address.to_bytes(8, "little")
            position = elf.data.find(wanted, section.offset, end)
            while position >= 0 and (position - section.offset) % 8:
                position = elf.data.find(wanted, position + 1, end)
            if position >= 0:
                raise RefusedError(f"{elf.name} keeps a pointer to it")


def _symbol_numbers(elf: Elf, name: str) -> Iterator[int]:
    """The symbols of that name. It may be stored as the end of a longer one (ECDH_..., DH_...)."""
    strings, table = elf.names(".dynsym"), elf.content(".dynsym")
    wanted = set()
    position = strings.find(name.encode() + b"\0")
    while position >= 0:
        wanted.add(position)
        position = strings.find(name.encode() + b"\0", position + 1)
    usable = len(table) // SYMBOL.size * SYMBOL.size
    for number, entry in enumerate(SYMBOL.iter_unpack(table[:usable])):
        if entry[0] in wanted:
            yield number
