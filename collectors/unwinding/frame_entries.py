# SPDX-License-Identifier: GPL-2.0-only
"""The entries of .eh_frame and .debug_frame: common ones (CIE), and one for each function (FDE).

Format: Linux Standard Base, "Exception Frames"; DWARF 5, section 6.4. The sections are untrusted:
an entry that cannot be read is left out and counted.
"""

import struct
from typing import Final, NamedTuple

from tlstax.collectors.unwinding.expressions import sleb, uleb

ABSOLUTE, PC_RELATIVE = 0x00, 0x10
_OMITTED: Final = 0xFF
_FORMATS: Final = {
    0x00: "<Q", 0x02: "<H", 0x03: "<I", 0x04: "<Q", 0x0A: "<h", 0x0B: "<i", 0x0C: "<q",
}  # fmt: skip
_LONG: Final = 0xFFFFFFFF
_AUGMENTATION_LIMIT: Final = 16
_USUAL: Final = struct.Struct("<iI")
ENTRIES_MOST: Final = 1 << 20


class Common(NamedTuple):
    """What the functions of one CIE share."""

    encoding: int  # of addresses
    is_signal_frame: bool
    has_augmentation: bool
    code_alignment: int
    data_alignment: int
    return_register: int
    program: bytes


class Function(NamedTuple):
    """A function: addresses are the file's. `program` is the part after that of its CIE."""

    start: int
    end: int
    common: int  # place of its CIE
    program: bytes


class Entries(NamedTuple):
    """All entries of a section."""

    functions: list[Function]
    commons: dict[int, Common]
    damaged_count: int


def read_entries(data: bytes, address: int, is_debug: bool = False) -> Entries:
    """Read a section that is mapped at `address`; `is_debug` for .debug_frame."""
    functions: list[Function] = []
    commons: dict[int, Common | None] = {}
    damaged_count = position = 0
    header = struct.Struct("<II").unpack_from
    last = len(data) - 8
    while position <= last and len(functions) < ENTRIES_MOST:
        length, back = header(data, position)
        if length == 0:
            if not is_debug:
                break
            position += 4
            continue
        end = position + 4 + length
        if length == _LONG or length < 4 or end > len(data):  # 64-bit DWARF: no compiler writes it
            damaged_count += 1
            break
        if back != (_LONG if is_debug else 0):
            place = back if is_debug else position + 4 - back
            if place not in commons:
                commons[place] = _common(data, place, is_debug)
            common = commons[place]
            function = None
            if common is not None:
                function = _function(data, position + 8, end, address, place, common)
            if function is None:
                damaged_count += 1
            else:
                functions.append(function)
        position = end
    known = {place: common for place, common in commons.items() if common is not None}
    return Entries(functions, known, damaged_count)


def _function(
    data: bytes, position: int, end: int, address: int, place: int, common: Common
) -> Function | None:
    try:
        if common.encoding == 0x1B:
            start, extent = _USUAL.unpack_from(data, position)
            start += address + position
            position += 8
        else:
            kind = _FORMATS[common.encoding & 0x0F]
            (start,) = struct.unpack_from(kind, data, position)
            if common.encoding & 0x70 == PC_RELATIVE:
                start += address + position
            position += struct.calcsize(kind)
            # The length has the same size, but is unsigned and absolute.
            (extent,) = struct.unpack_from(kind.upper(), data, position)
            position += struct.calcsize(kind)
        if common.has_augmentation:
            if data[position] == 0:
                position += 1
            else:
                size, position = uleb(data, position)
                position += size
    except (struct.error, IndexError):
        return None
    if position > end or start <= 0 or extent == 0 or start + extent >= 1 << 48:
        return None
    return Function(start, start + extent, place, data[position:end])


def _common(data: bytes, position: int, is_debug: bool) -> Common | None:
    try:
        return _read_common(data, position, is_debug)
    except (struct.error, IndexError):
        return None


def _read_common(data: bytes, position: int, is_debug: bool) -> Common | None:
    if position < 0:
        return None
    length, identity = struct.unpack_from("<II", data, position)
    end = position + 4 + length
    if length == _LONG or end > len(data) or identity != (_LONG if is_debug else 0):
        return None
    version = data[position + 8]
    text_end = data.find(b"\0", position + 9, position + 9 + _AUGMENTATION_LIMIT)
    if version not in (1, 3, 4) or text_end < 0:
        return None
    augmentation = data[position + 9 : text_end]
    at = text_end + 1
    if version == 4:
        if data[at] != 8 or data[at + 1] != 0:  # bytes of an address; segmented addresses
            return None
        at += 2
    code_alignment, at = uleb(data, at)
    data_alignment, at = sleb(data, at)
    return_register, at = (data[at], at + 1) if version == 1 else uleb(data, at)
    encoding, is_signal_frame = ABSOLUTE, b"S" in augmentation
    if augmentation.startswith(b"z"):
        size, at = uleb(data, at)
        found = _pointer_encoding(data, at, augmentation)
        at += size
        if found is None:
            return None
        encoding = found
    elif augmentation:
        return None  # without "z" the length of what follows is unknown
    if at > end or encoding & 0x0F not in _FORMATS or encoding & 0xF0 not in (0, PC_RELATIVE):
        return None
    return Common(
        encoding,
        is_signal_frame,
        augmentation.startswith(b"z"),
        code_alignment,
        data_alignment,
        return_register,
        data[at:end],
    )


def _pointer_encoding(data: bytes, at: int, augmentation: bytes) -> int | None:
    """The encoding of addresses; None for an augmentation that is not known."""
    encoding = ABSOLUTE
    for letter in augmentation[1:].decode("latin-1"):
        if letter == "R":
            encoding = data[at]
            at += 1
        elif letter == "L":
            at += 1
        elif letter == "P":
            if data[at] & 0x0F not in _FORMATS:
                return None
            at += 1 + struct.calcsize(_FORMATS[data[at] & 0x0F])
        elif letter not in "SB":
            return None
    return None if encoding == _OMITTED else encoding
