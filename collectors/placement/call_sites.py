# SPDX-License-Identifier: GPL-2.0-only
"""Where an object's code calls or jumps to a function, and whether other calls are possible.

Code is searched as bytes, in one pass; the caller of this module decodes what was found. A
function whose address is kept in data or is loaded may be called from anywhere: RefusedError.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from tlstax.collectors.binary.architectures import machine_of
from tlstax.collectors.binary.elf import SYMBOL, Elf, Section
from tlstax.collectors.binary.import_stubs import STUB_BYTES, relocations
from tlstax.collectors.binary.machine import ARM64
from tlstax.collectors.placement.calls_arm64 import search_arm64
from tlstax.collectors.placement.probe_points import Finder

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Addresses = NDArray[numpy.int64]

CALL, SHORT_JUMP = 0xE8, 0xEB  # differs from the call opcode in its last bit
LEA_BYTES: Final = 7
SHORT_FAR: Final = 130
PART_BYTES: Final = 1 << 20
E_TYPE, ET_EXEC = 16, 2
# They hold function addresses, but no code calls through them.
NO_POINTERS: Final = (".dynsym", ".rela", ".eh_frame", ".gnu", ".note")


class RefusedError(Exception):
    """Why a function cannot be probed at its callers."""


def imports(elf: Elf, name: str) -> bool:
    """Whether an object refers to a function of that name in another one."""
    start, end = elf.name_range(".dynsym")
    if elf.data.find(name.encode() + b"\0", start, end) < 0:  # a fast test that decides most cases
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
    """The direct calls and jumps of one object, by target.

    The code is read once for all look-ups: a server has 30 MB of it.
    """

    def __init__(self, finder: Finder) -> None:
        self._finder = finder
        self._found: list[_Found] | None = None
        self._pointers = _Pointers(finder.elf)

    def calls_of(self, name: str, own: int | None) -> set[int]:
        """Addresses of the calls of a function; `own`: its address if this object defines it.

        Raises RefusedError if other calls of it are possible.
        """
        elf = self._finder.elf
        self._pointers.refuse(name, own)
        wanted = set(_stubs_of(self._finder, name)) | ({own} if own is not None else set())
        _refuse_stored(elf, wanted)
        if not wanted:
            return set()
        if self._found is None:
            search = search_arm64 if elf.machine == ARM64 else _search
            self._found = [_Found(elf, section, *search(elf, section)) for section in _code_of(elf)]
        calls: set[int] = set()
        for address in wanted:
            for found in self._found:
                if found.loads(address):
                    raise RefusedError(f"{elf.name} takes its address")
                calls |= found.jumps(address)
        return calls


class _Found(NamedTuple):
    """Candidates for a call, jump or `lea` in a section; the caller decodes the code around them.

    Addresses of the instructions and of their targets, two arrays of equal length.
    """

    elf: Elf
    section: Section
    calls: "Addresses"
    called: "Addresses"
    loaded: "Addresses"

    def jumps(self, address: int) -> set[int]:
        """The instructions that call or jump to the address."""
        found: list[int] = self.calls[self.called == address].tolist()
        if self.elf.machine == ARM64:
            return set(found)
        section = self.section
        first = max(0, address - section.address - SHORT_FAR)
        last = min(section.size, address - section.address + SHORT_FAR)
        near = self.elf.slice(section.offset + first, max(0, last - first))
        for place, (opcode, distance) in enumerate(pairwise(near)):
            if opcode == SHORT_JUMP or opcode & 0xF0 == 0x70:
                at = section.address + first + place
                if at + 2 + (distance ^ 0x80) - 0x80 == address:
                    found.append(at)
        return set(found)

    def loads(self, address: int) -> bool:
        """Whether the address is loaded into a register."""
        return bool((self.loaded == address).any())


def _code_of(elf: Elf) -> Iterator[Section]:
    for section in elf.headers.sections:
        if section.executable and section.in_file and section.name not in STUB_BYTES:
            yield section


def _search(elf: Elf, section: Section) -> tuple["Addresses", "Addresses", "Addresses"]:
    """Search a section in parts: the arrays are many times as large as the code.

    Gives what _Found has of it.
    """
    import numpy  # imported here: only the planning child needs it (1.5 million candidates)

    raw = elf.slice(section.offset, section.size)
    found: dict[str, list[Addresses]] = {"calls": [], "called": [], "loaded": []}
    for start in range(0, len(raw), PART_BYTES):
        # Padded, so that an instruction at the very end is found, too.
        part = raw[start : start + PART_BYTES + LEA_BYTES] + bytes(LEA_BYTES)
        code = numpy.frombuffer(part, dtype=numpy.uint8)
        size = min(PART_BYTES, len(raw) - start)
        one, two, three = (code[at : at + size] for at in range(3))
        for opcode_bytes, hits in (
            (1, (one & 0xFE) == CALL),
            (2, (one == 0x0F) & (two & 0xF0 == 0x80)),
            (3, ((one & 0xFB) == 0x48) & (two == 0x8D) & (three & 0xC7 == 5)),
        ):
            places = numpy.flatnonzero(hits)
            distance = numpy.zeros(len(places), dtype=numpy.uint32)
            for byte in range(4):
                distance |= code[places + opcode_bytes + byte].astype(numpy.uint32) << 8 * byte
            at = section.address + start + places
            targets = at + opcode_bytes + 4 + distance.view(numpy.int32)
            if opcode_bytes == LEA_BYTES - 4:
                found["loaded"].append(targets)
            else:
                found["calls"].append(at)
                found["called"].append(targets)
    empty = numpy.zeros(0, dtype=numpy.int64)
    calls, called, loaded = (numpy.concatenate([empty, *arrays]) for arrays in found.values())
    return calls, called, loaded


def _stubs_of(finder: Finder, name: str) -> Iterator[int]:
    for section_name, size in STUB_BYTES.items():
        section = finder.elf.section(section_name)
        if section is not None:
            step = 4 if finder.elf.machine == ARM64 else size  # its table has a head
            for address in range(section.address, section.address + section.size, step):
                if finder.code.import_at(address) == name:
                    yield address


class _Pointers:
    """Addresses of functions that relocations put into an object's data."""

    def __init__(self, elf: Elf) -> None:
        self._elf = elf
        self._own: set[int] | None = None
        self._by_number: set[int] = set()

    def refuse(self, name: str, own: int | None) -> None:
        """Raise RefusedError when a function's address is among them."""
        if self._own is None:
            self._own = self._read()
        kept = any(number in self._by_number for number in _symbol_numbers(self._elf, name))
        if kept or own in self._own:
            raise RefusedError(f"{self._elf.name} keeps a pointer to it")

    def _read(self) -> set[int]:
        rows = relocations(self._elf, ".rela.dyn")
        kinds, numbers = rows[:, 1] & 0xFFFFFFFF, rows[:, 1] >> 32
        machine = machine_of(self._elf.machine)
        data = kinds != machine.jump_slot
        if self._elf.section(".plt.got") is not None:
            data &= kinds != machine.global_data
        self._by_number = set(numbers[data & (numbers != 0)].tolist())
        return set(rows[kinds == machine.relative, 2].tolist())


def _refuse_stored(elf: Elf, addresses: set[int]) -> None:
    """Raise RefusedError if data or code contains an address without a relocation.

    This occurs in programs linked to a fixed address, and with packed relocations (RELR).
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
