# SPDX-License-Identifier: GPL-2.0-only
"""Names addresses of the target and of the kernel during a recording.

A user address becomes a file, an offset in it, and the function there. Files are opened at the
start and stay open, so names remain available after the target has ended or its binaries have been
replaced. C++ names are demangled; a name that cannot be demangled is left unchanged. Names are
untrusted data: renderers must escape them.

If no symbol covers the address, the symbol is `[object+0x...]`, with the virtual address in the
file of the function's start if the unwind tables give it, else of the instruction; the source is
`none`. In TLS libraries `code` then gives what else is known about the function
(`tlstax.collectors.binary.nameless`). A stub that calls another function is named after it,
`CRYPTO_free@plt`.

Kernel names come from /proc/kallsyms. It has no sizes: each name extends to the next one.
"""

import os
from array import array
from bisect import bisect_right
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from tlstax import TlstaxError
from tlstax.collectors.binary.import_stubs import imported_name
from tlstax.collectors.binary.symbol_tables import Elsewhere, ObjectSymbols
from tlstax.collectors.process.mappings import (
    PROC,
    MappedObject,
    open_mapped,
    read_maps,
    read_special_maps,
    root_of,
)
from tlstax.collectors.process.target import Target, still_runs

if TYPE_CHECKING:
    from tlstax.collectors.binary.elf import Elf
    from tlstax.collectors.binary.nameless import NamelessFunctions

REFRESH_SECONDS = 1.0
MANGLED_LIMIT = 2000  # longer names stay mangled: demangling may expand them without bound
UNNAMED = "[unknown]"
DWARF = ".debug_info"
HIDDEN = b"0" * 16  # what the kernel shows as every address to an unprivileged reader


class Place(NamedTuple):
    """The location of an address: a capture's Frame without its key."""

    object: str  # path that the process sees; "kernel"; "" if nothing is mapped there
    build_id: str
    offset_bytes: int  # in the file; 0 for the kernel: its addresses are not recorded
    symbol: str
    symbol_offset_bytes: int
    source: str
    code: str


class Symbolizer:
    """Names the addresses of one process, and of the kernel."""

    def __init__(self, target: Target, root: Path | None = None) -> None:
        """Open the target's files. `root`: where to look for debug files."""
        self._pid = target.pid
        self._target = target
        self._root_descriptor = -1
        self._root = self._open_root() if root is None else root
        self._mappings: list[tuple[int, int, int, OpenObject]] = []
        self._starts: list[int] = []  # of these
        self._objects: dict[tuple[str, int, str], OpenObject] = {}
        self._special: list[tuple[int, int, str]] = []
        self._kernel: KernelSymbols | None = None
        self._refreshed = 0.0
        self._add(target.objects)
        self._special = read_special_maps(self._pid)

    @property
    def process(self) -> str:
        """The process, apart from all others that this host had since it booted."""
        return f"{self._pid} {self._target.start_ticks}"

    def close(self) -> None:
        """Close every file."""
        for entry in self._objects.values():
            entry.close()
        if self._root_descriptor >= 0:
            os.close(self._root_descriptor)
            self._root_descriptor = -1

    def _open_root(self) -> Path:
        """The process's root directory, as a path that stays valid after the process has ended."""
        with suppress(OSError):
            flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
            self._root_descriptor = os.open(PROC / str(self._pid) / "root", flags)
            return PROC / "self/fd" / str(self._root_descriptor)
        return Path("/")

    def locate(self, address: int) -> Place:
        """The file and offset of an address; no symbol is looked up."""
        found = self._mapping(address)
        if found is None:
            return Place("", "", 0, UNNAMED, 0, "none", "")
        start, file_offset, entry = found
        offset, path = address - start + file_offset, entry.mapped.path
        name = f"[{stem(path)}+{offset:#x}]"
        return Place(path, entry.mapped.build_id, offset, name, 0, "none", "")

    def user(self, address: int) -> Place:
        """Name an address of the process. New mappings are looked up at most once a second."""
        found = self._mapping(address)
        if found is None and monotonic() - self._refreshed > REFRESH_SECONDS:
            self._refresh()
            found = self._mapping(address)
        if found is not None:
            start, file_offset, mapped = found
            return mapped.place(address - start + file_offset)
        return self.outside(address)

    def outside(self, address: int) -> Place:
        """The place of an address in no file: [vdso], generated code, or unknown."""
        for start, end, name in self._special:
            if start <= address < end:
                return Place(name, "", address - start, name, address - start, "none", "")
        return Place("", "", 0, UNNAMED, 0, "none", "")

    def in_file(self, path: str, build_id: str, offset_bytes: int) -> Place | None:
        """Name an offset of a mapped file; None if the file is not mapped now."""
        for entry in self._objects.values():
            if (entry.mapped.path, entry.mapped.build_id) == (path, build_id):
                return entry.place(offset_bytes)
        return None

    def kernel(self, address: int) -> Place:
        """Name an address of the kernel."""
        if self._kernel is None:
            self._kernel = KernelSymbols()
        return self._kernel.place(address)

    def _mapping(self, address: int) -> "tuple[int, int, OpenObject] | None":
        index = bisect_right(self._starts, address) - 1
        if index >= 0:
            start, end, file_offset, mapped = self._mappings[index]
            if address < end:
                return start, file_offset, mapped
        return None

    def _add(self, objects: tuple[MappedObject, ...]) -> None:
        for mapped in objects:
            key = (mapped.device, mapped.inode, mapped.path)
            if key not in self._objects:
                self._objects[key] = OpenObject(mapped, self._root)
            known = {row[0] for row in self._mappings}
            for segment in mapped.segments:
                if segment.start not in known:
                    row = (segment.start, segment.end, segment.file_offset, self._objects[key])
                    self._mappings.append(row)
        self._mappings.sort(key=lambda row: row[0])
        self._starts = [row[0] for row in self._mappings]

    def _refresh(self) -> None:
        """Read new mappings; nothing new once the process has ended.

        Neither if it has executed another program since its addresses were recorded.
        """
        self._refreshed = monotonic()
        with suppress(OSError):
            maps = (PROC / str(self._pid) / "maps").read_text(errors="surrogateescape")
            known = [entry.mapped for entry in self._objects.values()]
            objects = read_maps(self._pid, maps, known, root_of(self._pid))
            if still_runs(self._target):
                self._add(objects)


class OpenObject:
    """One mapped file, kept open; its tables are read at the first look-up."""

    def __init__(
        self, mapped: MappedObject, root: Path, elsewhere: Elsewhere | None = None
    ) -> None:
        """`root` and `elsewhere`: where to look for debug files."""
        self.mapped = mapped
        self._root = root
        self._elsewhere = elsewhere
        self._descriptor = -1
        self._elf: Elf | None = None
        self._symbols: ObjectSymbols | None = None
        self._nameless: NamelessFunctions | None = None
        if mapped.open_path:
            # Replaced since the maps were read: no names are better than wrong ones.
            with suppress(TlstaxError):
                self._descriptor = open_mapped(mapped)

    def close(self) -> None:
        """Close the file and its debug files."""
        if self._symbols is not None:
            self._symbols.close()
        if self._elf is not None:
            self._elf.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._elf, self._descriptor = None, -1

    @property
    def sources(self) -> tuple[str, ...]:
        """The symbol tables that were found for it; none before the first look-up."""
        return self._symbols.sources() if self._symbols is not None else ()

    def place(self, file_offset: int) -> Place:
        """Name an offset in the file; the offset only, if the file cannot be read."""
        path, build_id = self.mapped.path, self.mapped.build_id
        try:
            elf = self._open()
            address = elf.to_address(file_offset) if elf else None
            if elf is None or address is None or self._symbols is None:
                text = f"[{stem(path)}+{file_offset:#x}]"
                return Place(path, build_id, file_offset, text, 0, "none", "")
            if named := self._symbols.find(address):
                distance = address - named.start
                symbol = demangle(named.name)
                return Place(path, build_id, file_offset, symbol, distance, named.source, "")
            if stub := imported_name(elf, address):
                symbol, distance = demangle(stub[0]) + "@plt", address - stub[1]
                return Place(path, build_id, file_offset, symbol, distance, "dynsym", "")
            if self._nameless is None:
                from tlstax.collectors.binary.nameless import NamelessFunctions

                self._nameless = NamelessFunctions(elf, stem(path))
            bounds, code = self._nameless.describe(address)
            text = f"[{stem(path)}+{bounds.start:#x}]"
            distance = address - bounds.start
            return Place(path, build_id, file_offset, text, distance, "none", code)
        except TlstaxError:
            text = f"[{stem(path)}+{file_offset:#x}]"
            return Place(path, build_id, file_offset, text, 0, "none", "")

    def address(self, file_offset: int) -> int | None:
        """The file's own virtual address of an offset; None if it cannot be read or has none."""
        with suppress(TlstaxError):
            elf = self._open()
            return elf.to_address(file_offset) if elf else None
        return None

    def with_dwarf(self, elsewhere: Elsewhere) -> Path | None:
        """The file that describes it in DWARF: itself or a debug file, also from `elsewhere`."""
        with suppress(TlstaxError):
            elf = self._open()
            if elf is not None and elf.section(DWARF) is not None:
                return Path(self.mapped.open_path)
            if self._symbols is not None:
                return self._symbols.debug_file(DWARF, elsewhere)
        return None

    def _open(self) -> "Elf | None":
        if self._elf is None and self._descriptor >= 0:
            from tlstax.collectors.binary.elf import Elf

            path = f"/proc/self/fd/{self._descriptor}"
            self._elf = Elf(path, self.mapped.headers)
            self._symbols = ObjectSymbols(self._elf, self._root, self.mapped.path, self._elsewhere)
        return self._elf


class KernelSymbols:
    """The kernel's functions by address, read once. Empty when the kernel hides its addresses."""

    def __init__(self, path: Path = PROC / "kallsyms") -> None:
        addresses, offsets, names = array("Q"), array("I"), bytearray()
        ordered, last = True, 0
        # 100,000 lines of fixed format, "ffffffff81000000 T _text": sliced by column.
        with suppress(OSError), path.open("rb") as lines:
            for line in lines:
                # __pfx_ names the padding before a function, and $x or $d whether code or data
                # follows, in modules of arm64.
                if line[17] not in b"tTwW" or line[:16] == HIDDEN:
                    continue
                if line[19:25] == b"__pfx_" or line[19:20] == b"$":
                    continue
                if (address := int(line[:16], 16)) < last:
                    ordered = False  # modules follow the kernel in load order
                addresses.append(last := address)
                offsets.append(len(names))
                names += line[19:]
        if not ordered:
            order = sorted(range(len(addresses)), key=addresses.__getitem__)
            addresses = array("Q", (addresses[index] for index in order))
            offsets = array("I", (offsets[index] for index in order))
        self._addresses, self._offsets, self._names = addresses, offsets, names

    def place(self, address: int) -> Place:
        """Name an address."""
        index = bisect_right(self._addresses, address) - 1
        if index < 0:
            return Place("kernel", "", 0, "[kernel]", 0, "none", "")
        start = self._offsets[index]
        line = self._names[start : self._names.index(b"\n", start)]
        text = line.partition(b"\t")[0].decode("utf-8", "surrogateescape")
        return Place("kernel", "", 0, text, address - self._addresses[index], "kallsyms", "")


def stem(path: str) -> str:
    """The file's name without directory and version: libcrypto for /usr/lib/libcrypto.so.3."""
    return path.rpartition("/")[2].partition(".so")[0]


def demangle(name: str) -> str:
    """A C++ name as a programmer writes it; any other name unchanged."""
    if not name.startswith("_Z") or not name.isascii() or len(name) > MANGLED_LIMIT:
        return name
    import cxxfilt

    try:
        return str(cxxfilt.demangle(name))
    except cxxfilt.Error:
        return name
