# SPDX-License-Identifier: GPL-2.0-only
"""Which source file an unnamed function was compiled from, by the file names its code uses.

OpenSSL passes its source file name to every allocation and error report, and these strings stay
in a stripped library. A function that refers to `crypto/lhash/lhash.c` comes from there. The linker
places the functions of one file together, so a function between two that mention the same file is
from that file, and one between two files of the same directory is from that directory (measured on
Debian's OpenSSL 3.0: 498 files in 503 runs). A function between two directories stays unknown.

The path is given from the library's own top directory on: `crypto/lhash/lhash.c`, `crypto/ec/`.
"""

import mmap
import re
from array import array
from bisect import bisect_left

from tlstax.collectors.binary.elf import Elf

# A string that is a source file name, whole, below one of OpenSSL's directories.
SOURCE_NAME = re.compile(
    rb"(?<=\0)(?:[\w.+~/-]*/)?((?:crypto|ssl|providers|engines)/[\w./-]+\.c)(?=\0)"
)
# lea displacement(%rip),%register: 48/4c 8d, ModRM with mod 0 and r/m 5, four bytes.
LOAD_ADDRESS = re.compile(rb"[\x48\x4c]\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d](.{4})", re.DOTALL)
LOAD_ADDRESS_BYTES = 7


class SourceFiles:
    """The mentions of source files in one library's code."""

    def __init__(self, elf: Elf) -> None:
        self._places = array("Q")  # code addresses, ascending
        self._files = array("H")  # the index into _names for each address
        self._names: list[str] = []
        text, strings = elf.section(".text"), elf.section(".rodata")
        if text is None or strings is None:
            return
        at = self._read_names(elf, strings.offset, strings.size, strings.address)
        end = min(len(elf.data), text.offset + text.size)
        for match in LOAD_ADDRESS.finditer(elf.data, text.offset, end):
            place = match.start() - text.offset + text.address
            displacement = int.from_bytes(match[1], "little", signed=True)
            index = at.get(place + LOAD_ADDRESS_BYTES + displacement)
            if index is not None:
                self._places.append(place)
                self._files.append(index)
        # The scan has read all of the code into memory; release it.
        elf.data.madvise(mmap.MADV_DONTNEED)

    def _read_names(self, elf: Elf, offset: int, size: int, address: int) -> dict[int, int]:
        """Index of the name at each address where a file name begins."""
        at = {}
        end = min(len(elf.data), offset + size)
        for match in SOURCE_NAME.finditer(elf.data, offset, end):
            if len(self._names) < 1 << 16:
                at[match.start() - offset + address] = len(self._names)
                self._names.append(match[1].decode())
        return at

    def of(self, start: int, end: int) -> str:
        """The file, or else the directory, of the function from `start` to `end`; "" if unknown."""
        first, behind = bisect_left(self._places, start), bisect_left(self._places, end)
        own = {self._files[index] for index in range(first, behind)}
        if len(own) == 1:
            return self._names[own.pop()]
        if own or first == 0 or behind == len(self._places):
            return ""
        before, after = self._names[self._files[first - 1]], self._names[self._files[behind]]
        if before == after:
            return before
        directory = before.rpartition("/")[0]
        return f"{directory}/" if directory == after.rpartition("/")[0] else ""
