# SPDX-License-Identifier: GPL-2.0-only
"""Names the function at an address of a file, from every available symbol table.

Tables are searched in this order: the file's own .symtab; a separate debug file found by build-id
or by debug link; the compressed .gnu_debugdata; .dynsym. The first that covers the address is used.
Sizes are respected: an address after the end of a symbol belongs to no symbol, not to the nearest
one.

A separate debug file is used only if its build-id is that of the file (or, where there is none, if
the checksum of the debug link fits). A damaged one is skipped: names are lost, never wrong.
"""

import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tlstax import TlstaxError
from tlstax.collectors.binary.elf import Elf, Symbol
from tlstax.collectors.binary.rooted_files import path_below
from tlstax.collectors.binary.unwind_table import UnwindTable

DEBUG_ROOT = Path("usr/lib/debug")
DEBUGDATA_LIMIT_BYTES = 64 * 1024 * 1024
# Symbols may nest (aliases, local entry points in assembly): check this many previous starts.
NESTING_LIMIT = 16


Elsewhere = Callable[[str], Iterable[tuple[Path, str]]]
"""Further debug files of a build-id, each with its source."""


class Named(NamedTuple):
    """The symbol that covers an address."""

    name: str  # the linker name (mangled)
    start: int  # the file's own virtual address
    source: str  # symtab, buildid, debuglink, debuginfod, debugdata, dynsym


class SymbolTable:
    """The functions of one symbol table: 20 bytes each in memory, names stay in the file."""

    def __init__(self, elf: Elf, section: str, source: str) -> None:
        self.source = source
        self._elf = elf
        self._strings, self._strings_end = elf.name_range(section)
        starts, sizes, offsets = array("Q"), array("Q"), array("I")
        for start, size, offset in elf.symbols(section):
            starts.append(start)
            sizes.append(size)
            offsets.append(offset)
        order = sorted(range(len(starts)), key=starts.__getitem__)
        self._starts = array("Q", (starts[index] for index in order))
        self._sizes = array("Q", (sizes[index] for index in order))
        self._offsets = array("I", (offsets[index] for index in order))

    def find(self, address: int) -> Named | None:
        """The innermost function that covers the address."""
        index = bisect_right(self._starts, address) - 1
        for candidate in range(index, max(-1, index - NESTING_LIMIT), -1):
            distance = address - self._starts[candidate]
            if distance < self._sizes[candidate] or distance == 0:
                raw = self._elf.name_at(self._strings + self._offsets[candidate], self._strings_end)
                if raw:
                    name = raw.decode("utf-8", "surrogateescape")
                    return Named(name, self._starts[candidate], self.source)
        return None


class ObjectSymbols:
    """All symbol tables of one file, read on first use."""

    def __init__(
        self, elf: Elf, root: Path, named_path: str, elsewhere: Elsewhere | None = None
    ) -> None:
        """`elsewhere` is asked where no debug file is at its usual places."""
        self._elf = elf
        self._elsewhere = elsewhere
        self._root = root  # the root directory the process sees
        self._path = named_path  # the path in the process's root directory
        self._tables: list[SymbolTable] | None = None
        self._found: list[tuple[Elf, str, str]] | None = None
        self._opened: list[Elf] = []

    def find(self, address: int) -> Named | None:
        """The function at an address, by the first table that covers it."""
        if self._tables is None:
            self._tables = self._read()
        for table in self._tables:
            if named := table.find(address):
                return named
        return None

    def matching(self, expression: re.Pattern[str]) -> list[Symbol]:
        """Every function of any table whose name is a full match, by address, each name once.

        If a table lacks a function's size, the unwind tables give it.
        """
        found = {symbol.name: symbol for symbol in self._elf.find(expression)}
        for elf, section, _ in self._sources():
            if elf is not self._elf and section == ".symtab":
                for symbol in elf.find(expression):
                    found.setdefault(symbol.name, symbol)
        unwind = UnwindTable(self._elf)
        return sorted(
            symbol if symbol.size else _bounded(symbol, unwind) for symbol in found.values()
        )

    def starts(self) -> set[int]:
        """The start addresses of all functions that a table names."""
        return {
            address for elf, section, _ in self._sources() for address, _, _ in elf.symbols(section)
        }

    def sources(self) -> tuple[str, ...]:
        """The available tables, in search order."""
        return tuple(source for _, _, source in self._sources())

    def _read(self) -> list[SymbolTable]:
        return [SymbolTable(*source) for source in self._sources()]

    def _sources(self) -> list[tuple[Elf, str, str]]:
        """(file, section, source) of each table."""
        if self._found is None:
            self._found = self._look()
        return self._found

    def _look(self) -> list[tuple[Elf, str, str]]:
        tables = []
        if self._elf.section(".symtab"):
            tables.append((self._elf, ".symtab", "symtab"))
        elif separate := self._separate():
            tables.append(separate)
        if self._elf.section(".gnu_debugdata"):
            with suppress(TlstaxError):
                tables.append((self._debugdata(), ".symtab", "debugdata"))
        if self._elf.section(".dynsym"):
            tables.append((self._elf, ".dynsym", "dynsym"))
        return tables

    def debug_file(self, section: str, elsewhere: Elsewhere) -> Path | None:
        """The separate debug file with this section; `elsewhere` is asked instead of the usual."""
        for path, _ in self._everywhere(elsewhere):
            with suppress(TlstaxError), Elf(path) as debug:
                if self._belongs(debug) and debug.section(section):
                    return path
        return None

    def _separate(self) -> tuple[Elf, str, str] | None:
        """The table of the separate debug file that belongs to this file, if there is one."""
        for path, source in self._everywhere(self._elsewhere):
            with suppress(TlstaxError):
                debug = self._kept(Elf(path))
                if self._belongs(debug) and debug.section(".symtab"):
                    return debug, ".symtab", source
        return None

    def _belongs(self, debug: Elf) -> bool:
        same = debug.build_id == self._elf.build_id
        return same and (bool(self._elf.build_id) or self._checksum_fits(debug))

    def _everywhere(self, elsewhere: Elsewhere | None) -> Iterator[tuple[Path, str]]:
        yield from self._candidates()
        if elsewhere is not None and self._elf.build_id:
            yield from elsewhere(self._elf.build_id)

    def _candidates(self) -> list[tuple[Path, str]]:
        wanted = []
        if build_id := self._elf.build_id:
            name = f"{build_id[:2]}/{build_id[2:]}.debug"
            wanted.append((DEBUG_ROOT / ".build-id" / name, "buildid"))
        directory = Path(self._path).parent
        link = self._debug_link()[0]
        if link and directory.is_absolute():
            inside = directory.relative_to("/")
            wanted += [
                (inside / link, "debuglink"),
                (inside / ".debug" / link, "debuglink"),
                (DEBUG_ROOT / inside / link, "debuglink"),
            ]
        found = []
        for root in (self._root, Path("/")):
            for path, source in wanted:
                with suppress(OSError):
                    found.append((path_below(root, str(path)), source))
        return [(path, source) for path, source in found if path.is_file()]

    def _debug_link(self) -> tuple[str, int]:
        """File name and CRC-32 of .gnu_debuglink; a name with a directory in it is refused."""
        content = self._elf.content(".gnu_debuglink")
        name, _, _ = content.partition(b"\0")
        if not name or len(content) < 8 or b"/" in name or name in (b".", b".."):
            return "", 0
        return name.decode("utf-8", "surrogateescape"), int.from_bytes(content[-4:], "little")

    def _checksum_fits(self, debug: Elf) -> bool:
        import zlib

        return zlib.crc32(debug.data) == self._debug_link()[1]

    def _debugdata(self) -> Elf:
        """The ELF file that .gnu_debugdata holds, compressed ("MiniDebugInfo")."""
        import lzma  # imported here: rarely needed, and attach must stay small
        import tempfile

        packed = self._elf.content(".gnu_debugdata")
        try:
            unpack = lzma.LZMADecompressor(memlimit=2 * DEBUGDATA_LIMIT_BYTES)
            content = unpack.decompress(packed, DEBUGDATA_LIMIT_BYTES)
        except (lzma.LZMAError, EOFError):
            raise self._elf.refuse("its .gnu_debugdata is damaged") from None
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            return self._kept(Elf(file.name))

    def _kept(self, elf: Elf) -> Elf:
        self._opened.append(elf)
        return elf

    def close(self) -> None:
        """Close the separate debug files."""
        for elf in self._opened:
            elf.close()
        self._opened.clear()


def _bounded(symbol: Symbol, unwind: UnwindTable) -> Symbol:
    bounds = unwind.covering(symbol.address)
    return symbol if bounds is None else symbol._replace(size=bounds.end - symbol.address)
