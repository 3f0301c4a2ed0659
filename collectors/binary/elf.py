# SPDX-License-Identifier: GPL-2.0-only
"""Reads untrusted ELF files: headers, build-id, symbols, address arithmetic.

Headers are decoded here, as a process has 30 files, each of which is read several times in a
recording. So are symbol tables, in bulk: a server has 30,000 symbols and more, and reading them
must not take longer than attaching.

Addresses are the file's own virtual addresses (what its symbol table says), not those of a process.
Symbol names are untrusted bytes; they are passed on as text that converts back to the same bytes
(surrogateescape), and are never interpreted.

A file that is truncated or corrupt raises TlstaxError (exit code TARGET), never another exception.
"""

import mmap
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.binary.rooted_files import open_regular

# Elf64_Ehdr: machine, 2 offsets of tables, counts of segments and sections, section of names
HEADER: Final = struct.Struct("<18xH4x8xQQ4x2x2xH2xHH")
ENTRY: Final = struct.Struct("<Q")
ENTRY_OFFSET: Final = 24  # e_entry of the header
MACHINES: Final = {3: "EM_386", 21: "EM_PPC64", 22: "EM_S390", 40: "EM_ARM", 62: "EM_X86_64",
                   183: "EM_AARCH64", 243: "EM_RISCV"}  # fmt: skip
MANY: Final = 0xFFFF  # the true number is in the first section header, as for 0 sections
SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym: name, info, other, section, value, size
CODE_TYPES = frozenset({2, 10})  # STT_FUNC, STT_GNU_IFUNC
SECTION = struct.Struct("<IIQQQQIIQQ")  # Elf64_Shdr: name, type, flags, address, offset, size, link
SHT_NULL, SHT_NOBITS = 0, 8
SHF_EXECINSTR, SHF_COMPRESSED = 0x4, 0x800
SEGMENT = struct.Struct("<IIQQQQQQ")  # Elf64_Phdr: type, flags, offset, 2 addresses, 2 sizes, align
PT_LOAD, PT_NOTE = 1, 4


class Section(NamedTuple):
    """A section header; sizes and offsets are checked against the file."""

    name: str
    in_file: bool  # False for sections without bytes in the file (.bss, a debug file's .text)
    address: int
    offset: int
    size: int
    link: int
    executable: bool
    compressed: bool = False


class Segment(NamedTuple):
    """A PT_LOAD program header."""

    address: int
    offset: int
    file_size: int
    executable: bool


class Symbol(NamedTuple):
    """A defined function. `size` is 0 if the table does not give it."""

    address: int
    size: int
    name: str


class Headers(NamedTuple):
    """The parsed headers, kept so that a file is not parsed twice."""

    machine: str
    build_id: str
    segments: tuple[Segment, ...]
    sections: tuple[Section, ...]


class Elf:
    """One open ELF file (64-bit little-endian). Use it as a context manager."""

    def __init__(self, path: str | Path, headers: Headers | None = None) -> None:
        """Open a file. `headers` are those of an earlier Elf of the same file, if there was one."""
        self.path = str(path)
        try:
            with open(open_regular(path), "rb") as file:
                self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise TlstaxError(
                f"{self.path} cannot be read",
                getattr(error, "strerror", None) or "the file is empty",
                "Run as root, or check that the file still exists",
                ExitCode.TARGET,
            ) from None
        try:
            self.headers = headers or self._read_headers()
        except TlstaxError:
            self.close()
            raise
        self.machine = self.headers.machine
        self.build_id = self.headers.build_id
        self.segments = self.headers.segments
        self._by_name = {section.name: section for section in self.headers.sections}

    def __enter__(self) -> "Elf":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self.data.close()

    @property
    def name(self) -> str:
        """The file's own name, without its directory."""
        return self.path.rpartition("/")[2]

    @property
    def entry_address(self) -> int:
        """Where a process begins; 0 for a library."""
        return int(ENTRY.unpack_from(self.data, ENTRY_OFFSET)[0])

    def _read_headers(self) -> Headers:
        if self.data[:4] != b"\x7fELF":
            raise self.refuse("it is not an ELF file")
        if len(self.data) < 64:
            raise self.refuse("it is truncated within its header")
        if self.data[4] != 2 or self.data[5] != 1:
            raise self.refuse("it is not a 64-bit little-endian program")
        machine, segments_at, sections_at, *counts = HEADER.unpack_from(self.data)
        segments_count, sections_count, names_index = self._whole_counts(sections_at, *counts)
        # A count is a loop bound: reject more entries than the file can hold.
        if max(segments_count, sections_count) > len(self.data) // 32:
            raise self.refuse("its header counts more entries than the file can hold")
        segments = []
        build_id = ""
        rows = self.slice(segments_at, segments_count * SEGMENT.size)
        for kind, flags, offset, address, _, size, _, _ in SEGMENT.iter_unpack(rows):
            if kind == PT_LOAD:
                segments.append(Segment(address, offset, size, bool(flags & 1)))
            elif kind == PT_NOTE and not build_id:
                build_id = self._build_id(offset, size)
        sections = self._section_headers(sections_at, sections_count, names_index)
        name = MACHINES.get(machine, f"EM_{machine}")
        return Headers(name, build_id, tuple(segments), tuple(sections))

    def _whole_counts(self, at: int, segments: int, sections: int, names: int) -> tuple[int, ...]:
        """The counts of the header; those that do not fit into it are in the first section's."""
        if not at or (sections and MANY not in (segments, names)):
            return segments, sections if at else 0, names
        _, _, _, _, _, size, link, info, _, _ = SECTION.unpack(self.slice(at, SECTION.size))
        return (
            info if segments == MANY else segments,
            sections or size,
            link if names == MANY else names,
        )

    def _section_headers(self, offset: int, count: int, names_index: int) -> list[Section]:
        rows = list(SECTION.iter_unpack(self.slice(offset, count * SECTION.size)))
        for _, kind, _, _, start, size, *_ in rows:
            if kind not in (SHT_NULL, SHT_NOBITS) and start + size > len(self.data):
                raise self.refuse("it is truncated: a section lies beyond its end")
        if names_index >= len(rows):
            return []
        names = self.slice(rows[names_index][4], rows[names_index][5])
        sections = []
        for name, kind, flags, address, start, size, link, *_ in rows:
            text = names[name : names.find(b"\0", name)].decode("utf-8", "surrogateescape")
            in_file = kind not in (SHT_NULL, SHT_NOBITS)
            kinds = bool(flags & SHF_EXECINSTR), bool(flags & SHF_COMPRESSED)
            sections.append(Section(text, in_file, address, start, size, link, *kinds))
        return sections

    def _build_id(self, offset: int, size: int) -> str:
        """The GNU build-id of a note segment as hex digits, "" if it has none."""
        notes = self.slice(offset, size)
        position = 0
        while position + 12 <= len(notes):
            name_size, content_size, kind = struct.unpack_from("<III", notes, position)
            name_end = position + 12 + name_size
            content = position + 12 + (name_size + 3) // 4 * 4
            if kind == 3 and notes[position + 12 : name_end] == b"GNU\0":
                return notes[content : content + content_size].hex()
            position = content + (content_size + 3) // 4 * 4
        return ""

    def refuse(self, why: str) -> TlstaxError:
        """The error that says why this file cannot be used."""
        return TlstaxError(
            f"{self.path} cannot be used",
            why,
            "Check that the process runs this file, and that the file is complete",
            ExitCode.TARGET,
        )

    def section(self, name: str) -> Section | None:
        """The section of that name, or None."""
        return self._by_name.get(name)

    def slice(self, offset: int, size: int) -> bytes:
        """`size` bytes at a file offset. Raises TlstaxError if the file ends before that."""
        if offset < 0 or size < 0 or offset + size > len(self.data):
            raise self.refuse("it is truncated: a header points beyond its end")
        return self.data[offset : offset + size]

    def content(self, name: str) -> bytes:
        """The bytes of a section; empty if it is absent or has no bytes in the file."""
        section = self.section(name)
        if section is None or not section.in_file:
            return b""
        return self.slice(section.offset, section.size)

    def to_offset(self, address: int) -> int | None:
        """File offset of a virtual address; None when it is not loaded from the file."""
        for segment in self.segments:
            if segment.address <= address < segment.address + segment.file_size:
                return address - segment.address + segment.offset
        return None

    def to_address(self, offset: int) -> int | None:
        """Virtual address of a file offset in an executable segment, else in any segment."""
        for executable in (True, False):
            for segment in self.segments:
                inside = segment.offset <= offset < segment.offset + segment.file_size
                if inside and segment.executable == executable:
                    return offset - segment.offset + segment.address
        return None

    def code_at(self, address: int, size: int) -> bytes:
        """Up to `size` bytes of code from a virtual address; fewer where the segment ends."""
        for segment in self.segments:
            left = segment.address + segment.file_size - address
            if segment.executable and left > 0 and segment.address <= address:
                offset = address - segment.address + segment.offset
                return self.slice(offset, min(size, left, max(0, len(self.data) - offset)))
        return b""

    def symbols(self, table: str) -> Iterator[tuple[int, int, int]]:
        """(address, size, offset of the name) of each defined function of `.dynsym`, `.symtab`."""
        content = self.content(table)
        usable = len(content) // SYMBOL.size * SYMBOL.size
        for name, info, _, section, value, size in SYMBOL.iter_unpack(content[:usable]):
            if section and value and info & 15 in CODE_TYPES:
                yield value, size, name

    def names(self, table: str) -> bytes:
        """The string table of a symbol table."""
        section = self.section(table)
        if section is None or section.link >= len(self.headers.sections):
            return b""
        strings = self.headers.sections[section.link]
        return b"" if not strings.in_file else self.slice(strings.offset, strings.size)

    def name_range(self, table: str) -> tuple[int, int]:
        """Start and end file offset of the names of a symbol table."""
        section = self.section(table)
        if section is None or section.link >= len(self.headers.sections):
            return 0, 0
        strings = self.headers.sections[section.link]
        return strings.offset, min(len(self.data), strings.offset + strings.size)

    def name_at(self, offset: int, end: int) -> bytes:
        """The NUL-terminated name at a file offset, not beyond `end`."""
        stop = self.data.find(b"\0", offset, end)
        return self.data[offset:stop] if stop >= 0 else b""

    def find(self, expression: re.Pattern[str]) -> list[Symbol]:
        """Every defined function whose name is a full match, by address, each name once."""
        found: dict[str, Symbol] = {}
        # Names are compared as bytes: decoding 30,000 of them takes longer than matching them.
        wanted = re.compile(expression.pattern.encode(), re.DOTALL).fullmatch
        for table in (".symtab", ".dynsym"):
            strings = self.names(table)
            end_of = strings.find
            for address, size, name in self.symbols(table):
                raw = strings[name : end_of(b"\0", name)]
                if wanted(raw):
                    text = raw.decode("utf-8", "surrogateescape")
                    found.setdefault(text, Symbol(address, size, text))
        return sorted(found.values())

    def text_around(self, literal: bytes, limit: int = 32) -> Iterator[str]:
        """The NUL-terminated strings that contain `literal`, at most `limit` of them."""
        rodata = self.section(".rodata")
        first, last = (
            (rodata.offset, rodata.offset + rodata.size) if rodata else (0, len(self.data))
        )
        position = self.data.find(literal, first, last)
        while position >= 0 and limit:
            start = self.data.rfind(b"\0", max(0, position - 200), position) + 1
            end = self.data.find(b"\0", position, position + 200)
            if start and end >= 0:
                yield self.data[start:end].decode("utf-8", "replace")
            limit -= 1
            position = self.data.find(literal, position + len(literal), last)
