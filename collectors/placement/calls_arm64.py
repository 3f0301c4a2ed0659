# SPDX-License-Identifier: GPL-2.0-only
"""Direct calls and jumps in arm64 code, and the addresses that it computes."""

from typing import TYPE_CHECKING, Any, Final

from tlstax.collectors.binary.elf import Elf, Section

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Addresses = NDArray[numpy.int64]
    Words = NDArray[numpy.uint32]
    Values = NDArray[numpy.integer[Any]]

NEAR: Final = 8  # instructions between adrp and the add of the same address
# (mask, value, first bit of the distance, its bits): b and bl; b.cond, cbz and cbnz; tbz and tbnz
BRANCHES: Final = (
    (0x7C000000, 0x14000000, 0, 26),
    (0xFF000010, 0x54000000, 5, 19),
    (0x7E000000, 0x34000000, 5, 19),
    (0x7E000000, 0x36000000, 5, 14),
)


def search_arm64(elf: Elf, section: Section) -> tuple["Addresses", "Addresses", "Addresses"]:
    """Addresses of the branches of a section, of their targets, and addresses that are computed."""
    import numpy  # imported here: only the planning child needs it

    raw = elf.slice(section.offset, section.size - section.size % 4)
    code = numpy.frombuffer(raw, dtype="<u4")
    calls, called = [], []
    for mask, value, shift, bits in BRANCHES:
        places = numpy.flatnonzero(code & numpy.uint32(mask) == value)
        distance = _signed(code[places] >> numpy.uint32(shift), bits)
        at = section.address + 4 * places.astype(numpy.int64)
        calls.append(at)
        called.append(at + 4 * distance)
    return numpy.concatenate(calls), numpy.concatenate(called), _computed(code, section.address)


def _signed(values: "Values", bits: int) -> "Addresses":
    import numpy

    low = (values & ((1 << bits) - 1)).astype(numpy.int64)
    return low - ((low >> (bits - 1)) << bits)


def _computed(code: "Words", address: int) -> "Addresses":
    """What adr computes, and adrp with an add that follows."""
    import numpy

    places = numpy.flatnonzero(code & numpy.uint32(0x1F000000) == 0x10000000)
    words = code[places]
    fields = (words >> numpy.uint32(3)) & numpy.uint32(0x1FFFFC) | (words >> numpy.uint32(29)) & 3
    distance = _signed(fields, 21)
    at = address + 4 * places.astype(numpy.int64)
    is_page = words >> numpy.uint32(31) == 1
    found = [at[~is_page] + distance[~is_page]]
    places, pages = places[is_page], (at[is_page] & ~0xFFF) + (distance[is_page] << 12)
    registers = words[is_page] & numpy.uint32(31)
    for step in range(1, NEAR + 1):
        inside = places + step < len(code)
        added = code[places[inside] + step]
        same = (added & numpy.uint32(0xFFC00000) == 0x91000000) & (
            (added >> numpy.uint32(5)) & numpy.uint32(31) == registers[inside]
        )
        low = (added[same] >> numpy.uint32(10) & numpy.uint32(0xFFF)).astype(numpy.int64)
        found.append(pages[inside][same] + low)
    return numpy.concatenate(found)
