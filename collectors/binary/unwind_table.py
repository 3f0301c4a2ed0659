# SPDX-License-Identifier: GPL-2.0-only
"""Function bounds from the unwind tables, which stripping leaves in place.

.eh_frame_hdr holds a table of function starts, sorted for binary search, each pointing to the entry
(FDE) in .eh_frame that holds the length. Every compiled function has one, and so have most of those
written in assembly. Format: Linux Standard Base, "Exception Frames"; DWARF 4, section 7.24.

A damaged table is not an error; it makes functions unknown (None). Only bounds are read from it.
"""

import struct
from bisect import bisect_right
from contextlib import suppress
from typing import NamedTuple

from tlstax.collectors.binary.elf import Elf

PC_RELATIVE = 0x10
TABLE_ENCODING = 0x3B  # relative to the header, signed 4 bytes: what every linker writes
FORMATS = {0x00: "<Q", 0x02: "<H", 0x03: "<I", 0x04: "<Q", 0x0A: "<h", 0x0B: "<i", 0x0C: "<q"}
ROW = struct.Struct("<ii")
AUGMENTATION_LIMIT = 16


class Bounds(NamedTuple):
    """First address of a function and the first one after it (the file's virtual addresses)."""

    start: int
    end: int


class UnwindTable:
    """Function bounds of one ELF file."""

    def __init__(self, elf: Elf) -> None:
        self._data = elf.data  # read in place: tables are large, and few rows are needed
        self._count, self._rows = 0, 0
        self._header_address, self._frames, self._frames_address, self._frames_end = 0, 0, 0, 0
        header, frames = elf.section(".eh_frame_hdr"), elf.section(".eh_frame")
        if header is not None and frames is not None:
            self._header_address = header.address
            self._frames, self._frames_address = frames.offset, frames.address
            self._frames_end = min(frames.offset + frames.size, len(elf.data))
            with suppress(struct.error, KeyError, IndexError):
                self._read_header(header.offset, min(header.offset + header.size, len(elf.data)))

    def _read_header(self, start: int, end: int) -> None:
        version, pointer, counter, table = self._data[start : start + 4]
        if version != 1 or table != TABLE_ENCODING:
            return
        position = start + 4 + struct.calcsize(FORMATS[pointer & 0x0F])
        (count,) = struct.unpack_from(FORMATS[counter & 0x0F], self._data, position)
        self._rows = position + struct.calcsize(FORMATS[counter & 0x0F])
        self._count = max(0, min(count, (end - self._rows) // ROW.size))

    def __len__(self) -> int:
        return self._count

    def starts(self) -> set[int]:
        """The start address of every function."""
        content = self._data[self._rows : self._rows + self._count * ROW.size]
        return {self._header_address + start for start, _ in ROW.iter_unpack(content)}

    def _row(self, index: int) -> tuple[int, int]:
        """(function start, address of its entry) of one row of the table."""
        start, entry = ROW.unpack_from(self._data, self._rows + index * ROW.size)
        return self._header_address + start, self._header_address + entry

    def _before(self, address: int) -> int:
        """The last row whose function starts at or before the address, -1 if none does."""
        return bisect_right(range(self._count), address, key=lambda index: self._row(index)[0]) - 1

    def index(self, start: int) -> int | None:
        """The row of the function that begins at an address."""
        index = self._before(start)
        return index if index >= 0 and self._row(index)[0] == start else None

    def covering(self, address: int) -> Bounds | None:
        """The function that contains an address."""
        index = self._before(address)
        bounds = self.entry(index) if index >= 0 else None
        return bounds if bounds and bounds.start <= address < bounds.end else None

    def gap(self, address: int) -> Bounds | None:
        """The gap between two functions that contains an address which no function covers."""
        index = self._before(address)
        before = self.entry(index) if index >= 0 else None
        if before is None or before.end > address or index + 1 >= self._count:
            return None
        return Bounds(before.end, self._row(index + 1)[0])

    def entry(self, index: int) -> Bounds | None:
        """The function of one row of the table."""
        try:
            return self._bounds(self._row(index)[1] - self._frames_address + self._frames)
        except (struct.error, KeyError, IndexError, ValueError):
            return None

    def _bounds(self, position: int) -> Bounds | None:
        """The entry at a file offset."""
        if not self._frames <= position < self._frames_end:
            return None
        length, back = struct.unpack_from("<II", self._data, position)
        if length in (0, 0xFFFFFFFF) or back == 0:
            return None  # a terminator, 64-bit DWARF, or a CIE
        encoding = self._pointer_encoding(position + 4 - back)
        kind = FORMATS[encoding & 0x0F]
        size = struct.calcsize(kind)
        (start,) = struct.unpack_from(kind, self._data, position + 8)
        if encoding & 0x70 == PC_RELATIVE:
            start += self._frames_address + position + 8 - self._frames
        elif encoding & 0x70:
            return None
        # The length has the same size, but is unsigned and absolute.
        (extent,) = struct.unpack_from(kind.upper(), self._data, position + 8 + size)
        return Bounds(start, start + extent)

    def _pointer_encoding(self, position: int) -> int:
        """The pointer encoding that the CIE at a file offset declares."""
        if position < self._frames:
            raise KeyError("CIE before the section")
        data = self._data
        version = data[position + 8]
        end = data.find(b"\0", position + 9, position + 9 + AUGMENTATION_LIMIT)
        augmentation = data[position + 9 : end]
        if version not in (1, 3) or not augmentation.startswith(b"z"):
            return 0
        at = self._skip_leb128(self._skip_leb128(end + 1))  # the two alignment factors
        at = at + 1 if version == 1 else self._skip_leb128(at)  # the return address register
        at = self._skip_leb128(at)  # length of the augmentation data
        for letter in augmentation[1:]:
            if letter == ord("R"):
                return data[at]
            if letter == ord("P"):
                at += 1 + struct.calcsize(FORMATS[data[at] & 0x0F])
            elif letter == ord("L"):
                at += 1
        return 0

    def _skip_leb128(self, position: int) -> int:
        while self._data[position] & 0x80:
            position += 1
        return position + 1
