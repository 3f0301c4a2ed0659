# SPDX-License-Identifier: GPL-2.0-only
"""The unwind tables of a process, laid out as the programs in the kernel read them.

The tables of all files are words of one array, each file once. A range of addresses, one for each
executable mapping, says where the table of its file begins. Building and laying out run in a
forked child, because they need numpy and much memory for a moment.
"""

import ctypes
import os
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tlstax import TlstaxError
from tlstax.collectors.host.child import run_in_child
from tlstax.collectors.process.mappings import (
    MAPS_LINE,
    PROC,
    MappedObject,
    TextSegment,
    open_mapped,
    read_maps,
    read_special_maps,
    root_of,
)
from tlstax.collectors.unwinding.layout_cache import (
    ELSEWHERE,
    KeptLayout,
    Placed,
    keep_layout,
    kept_layout,
    name_of,
)
from tlstax.collectors.unwinding.row_format import RULES_MOST

if TYPE_CHECKING:
    from tlstax.collectors.binary.elf import Headers
    from tlstax.collectors.unwinding.file_table import FileTable

RANGES_MOST: Final = 512
WORDS_MOST: Final = 1 << 23
RANGE: Final = struct.Struct("=QQQII")
UNUSED: Final = RANGE.pack(1 << 62, 1 << 62, 0, 0, 0)
_USER_END: Final = 1 << 48
_PAGE: Final = 4096
_MASK: Final = (1 << 64) - 1
_VDSO: Final = "[vdso]"
_VDSO_BYTES_MOST: Final = 1 << 16
VDSO_OF_IMAGE: Final = "vdso"
"""That of another host, beside its proc (collectors/remote/image.py)."""
_SHARED_BYTES_MOST: Final = 1 << 24
_NO_FRAMES: Final = "it has no call frame information that can be used"
_LASTING: Final = ("", _NO_FRAMES)
"""Of what is missing: the same for each process of these files."""

FileKey = tuple[str, int, str]
_VDSO_KEY: Final[FileKey] = ("", 0, _VDSO)


@dataclass(frozen=True)
class Layout:
    """All tables of a process at one time."""

    ranges: bytes = b""  # RANGES_MOST of RANGE, by address
    files: Mapping[FileKey, Placed] = field(default_factory=dict)
    words_count: int = 0
    rules: tuple[bytes, ...] = ()
    left_out_count: int = 0  # mappings that are more than the programs can keep
    objects: tuple[MappedObject, ...] = ()  # the files of the process


class Addition(NamedTuple):
    """A new layout, and the words to write from `first_word` on before it is used."""

    layout: Layout
    first_word: int
    words: bytes


def maps_of(pid: int, proc: Path = PROC) -> str:
    """The executable mappings of a process as text; "" once it has ended."""
    with suppress(OSError):
        text = (proc / str(pid) / "maps").read_text(errors="surrogateescape")
        return "\n".join(line for line in text.split("\n") if _is_code(line))
    return ""


def _is_code(line: str) -> bool:
    fields = line.split(" ", 2)
    return len(fields) > 2 and "x" in fields[1]


def lay_out(
    pid: int,
    maps: str,
    before: Layout,
    words_most: int = WORDS_MOST,
    known: Sequence[MappedObject] = (),
    proc: Path = PROC,
) -> Addition:
    """The layout for these mappings; files that have a table in `before` keep it.

    `known`: files of the process whose headers have been read. `proc`: of another host, if it is
    not PROC. Raises TlstaxError if the child
    fails that reads the others, and the tables that are not in `before`.
    """
    objects = [each for each in (*known, *before.objects) if each.is_unchanged]
    name = ""
    if not before.files and words_most == WORDS_MOST:
        objects = list(read_maps(pid, maps, objects, root_of(pid, proc), proc))
        name, added = _kept(pid, maps, objects, proc)
        if added:
            return added
    if _has_all(maps, before, objects):
        return _lay_out(pid, maps, before, words_most, objects, proc)
    return run_in_child(
        "Reading the unwind tables of the process",
        lambda: _keep(name, _lay_out(pid, maps, before, words_most, objects, proc)),
    )


def _kept(
    pid: int, maps: str, objects: Sequence[MappedObject], proc: Path
) -> tuple[str, Addition | None]:
    """What the layout of these files is kept as, and that of the process if it is kept."""
    name = name_of(objects, vdso_of(proc), proc / str(pid))
    found = kept_layout(name) if name else None
    if found is None or len(found.placed) != len(objects) + 1:
        return name, None
    keys = (*map(_key_of, objects), _VDSO_KEY)
    named = (*(each.name for each in objects), "")
    files = {
        key: placed._replace(name=file)
        for key, file, placed in zip(keys, named, found.placed, strict=True)
    }
    layout = Layout(files=files, words_count=len(found.words) // 4, rules=found.rules)
    made = _lay_out(pid, maps, layout, WORDS_MOST, objects, proc)
    if made.words:  # it has mapped another file meanwhile
        return "", None
    return name, Addition(made.layout, 0, found.words)


def _keep(name: str, made: Addition) -> Addition:
    """What was made, kept under a name unless that is empty or a file could not be read."""
    files = made.layout.files
    placed = [files.get(_key_of(each)) for each in made.layout.objects]
    placed.append(files.get(_VDSO_KEY))
    whole = [each for each in placed if each and each.missing in _LASTING]
    if name and len(whole) == len(placed):
        kept = KeptLayout(whole, made.layout.rules, made.words)
        keep_layout(name, kept)
    return made


class SharedTables:
    """Tables that were laid out for processes before: those of further ones begin with them.

    Clients that come one after the other are mostly the same program.
    """

    def __init__(self) -> None:
        self._layout = Layout()
        self._words = b""

    def lay_out(self, pid: int, maps: str, known: Sequence[MappedObject] = ()) -> Addition:
        """As the function of that name, for a process that has no layout yet."""
        added = lay_out(pid, maps, replace(self._layout, objects=()), known=known)
        layout, words = added.layout, self._words + added.words
        if len(words) <= _SHARED_BYTES_MOST:
            self._layout, self._words = layout, words
        mapped = {_key_of(each) for each in layout.objects}
        files = {
            key: each for key, each in layout.files.items() if key in mapped or key[2] == _VDSO
        }
        return Addition(replace(layout, files=files), 0, words)


class _Words:
    """The words that come behind those of a layout, and its rules."""

    def __init__(self, before: Layout, words_most: int) -> None:
        self.first_word = before.words_count
        self.parts: list[bytes] = []
        self.count = before.words_count
        self.rules = list(before.rules)
        self._numbers = {rule: number for number, rule in enumerate(before.rules)}
        self._most = words_most

    def place(self, table: "FileTable") -> Placed:
        """Add a table, its references made absolute."""
        import numpy as np

        from tlstax.collectors.unwinding.row_format import OFFSET_SHIFT, RULE_FORMAT, Kind

        if self.count + table.words_count > self._most:
            return Placed(missing="no room for its table")
        rules = [RULE_FORMAT.pack(*rule) for rule in table.rules]
        if len(self.rules) + len(set(rules) - self._numbers.keys()) > RULES_MOST:
            return Placed(missing="no room for its rules")
        for rule in rules:
            if self._numbers.setdefault(rule, len(self.rules)) == len(self.rules):
                self.rules.append(rule)
        index, rows = self.count, table.rows.copy()
        if rules:
            numbers = np.array([self._numbers[rule] for rule in rules], np.uint32)
            chosen = (rows >> np.uint32(8) & np.uint32(7)) == Kind.RULE
            old = rows[chosen] >> np.uint32(OFFSET_SHIFT)
            kept = rows[chosen] & np.uint32((1 << OFFSET_SHIFT) - 1)
            rows[chosen] = kept | numbers[old] << np.uint32(OFFSET_SHIFT)
        first_row = np.uint32(index + len(table.firsts))
        self.parts += [(table.firsts + first_row).tobytes(), rows.tobytes()]
        self.count += table.words_count
        return Placed(
            table.base, index, table.buckets_count, table.functions_count, table.unsupported_count
        )


def _key_of(mapped: MappedObject) -> FileKey:
    return mapped.device, mapped.inode, mapped.build_id or mapped.path


def _has_all(maps: str, before: Layout, objects: Sequence[MappedObject]) -> bool:
    """Whether the tables of all these mappings are in the layout."""
    placed = {(each.device, each.inode) for each in objects if _key_of(each) in before.files}
    found = (MAPS_LINE.fullmatch(line) for line in maps.split("\n") if line)
    files = {(line[5], int(line[6])) for line in found if line and line[6] != "0"}
    return files <= placed and any(key[2] == _VDSO for key in before.files)


def _lay_out(
    pid: int,
    maps: str,
    before: Layout,
    words_most: int,
    known: Sequence[MappedObject],
    proc: Path,
) -> Addition:
    words = _Words(before, words_most)
    files = dict(before.files)
    ranges: list[tuple[int, int, int, int, int]] = []
    objects = read_maps(pid, maps, known, root_of(pid, proc), proc)
    for mapped in objects:
        key = _key_of(mapped)
        placed = files.get(key)
        if placed is None:
            placed = _place(mapped, words, proc / str(pid))._replace(
                name=mapped.name, build_id=mapped.build_id
            )
            files[key] = placed
        ranges += [_range_of(segment, mapped.headers, placed) for segment in mapped.segments]
    for start, end, name in read_special_maps(pid, proc):
        placed, key = Placed(missing="generated code"), ("", 0, name)
        if name == _VDSO:
            placed = files[key] = files.get(key) or _place_vdso(words, proc)
        base = start + placed.base if placed.buckets else 0
        ranges.append((start, end, base, placed.index_word, placed.buckets))
    ranges = sorted(each for each in ranges if each[1] <= _USER_END)
    packed = b"".join(RANGE.pack(*each) for each in ranges[:RANGES_MOST])
    left_out_count = max(0, len(ranges) - RANGES_MOST)
    packed += UNUSED * (RANGES_MOST - min(len(ranges), RANGES_MOST))
    layout = Layout(packed, files, words.count, tuple(words.rules), left_out_count, objects)
    return Addition(layout, words.first_word, b"".join(words.parts))


def _range_of(
    segment: TextSegment, headers: "Headers | None", placed: Placed
) -> tuple[int, int, int, int, int]:
    """Addresses of a mapping, and of the first bucket of its table in the process."""
    if headers is not None and placed.buckets:
        for part in headers.segments:
            first = part.offset & -_PAGE
            if part.executable and first <= segment.file_offset < part.offset + part.file_size:
                bias = segment.start - segment.file_offset + part.offset - part.address
                base = (placed.base + bias) & _MASK
                return segment.start, segment.end, base, placed.index_word, placed.buckets
    return segment.start, segment.end, 0, 0, 0


def _place(mapped: MappedObject, words: _Words, process: Path) -> Placed:
    from tlstax.collectors.binary.elf import Elf
    from tlstax.collectors.unwinding.debug_frames import debug_file, frames_of, identity
    from tlstax.collectors.unwinding.file_table import build
    from tlstax.collectors.unwinding.table_cache import contents_of, keep_table, kept_table

    debug = debug_file(mapped.build_id, process / "root")
    debug_identity = identity(debug)
    if process.parent != PROC:  # of the file as another host sent it: no process here uses it
        debug_identity += ELSEWHERE
    table = kept_table(mapped.build_id, debug_identity)
    if table is None:
        if not mapped.open_path:
            return Placed(missing=mapped.unreachable or "it is not an ELF file")
        descriptor = -1
        try:
            descriptor = open_mapped(mapped)
            contents = "" if mapped.build_id else contents_of(descriptor)
            table = kept_table("", contents=contents)
            if table is None:
                with Elf(f"/proc/self/fd/{descriptor}", mapped.headers) as elf:
                    table = build(elf, frames_of(debug, mapped.build_id))
                if table is not None:
                    keep_table(table, debug_identity, contents)
        except TlstaxError as error:
            return Placed(missing=error.why)
        finally:
            if descriptor >= 0:
                os.close(descriptor)
        if table is None:
            return Placed(missing=_NO_FRAMES)
    return words.place(table)


def vdso_of(proc: Path) -> bytes:
    """The kernel's own code in every process of a host; b"" if there is none."""
    if proc != PROC:
        with suppress(OSError):
            return (proc.parent / VDSO_OF_IMAGE).read_bytes()
        return b""
    for start, end, name in read_special_maps(os.getpid()):
        if name == _VDSO and end - start <= _VDSO_BYTES_MOST:
            return ctypes.string_at(start, end - start)
    return b""


def _place_vdso(words: _Words, proc: Path) -> Placed:
    from tlstax.collectors.unwinding.vdso import vdso_table

    table = vdso_table(vdso_of(proc))
    if table is None:
        return Placed(missing=_NO_FRAMES)
    return words.place(table)._replace(build_id=table.build_id)
