# SPDX-License-Identifier: GPL-2.0-only
"""The file of unwind tables that belongs to a plan: the tables of all files of a process.

docs/unwinding.md describes the bytes. The recorder (collectors/recorder/tables.c) finds a table by
the build-id of a mapped file, so the file serves every process with the same builds.
"""

import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.files import put_whole
from tlstax.collectors.process.mappings import PROC
from tlstax.collectors.unwinding.layout_cache import Placed
from tlstax.collectors.unwinding.process_tables import (
    Addition,
    FileKey,
    Layout,
    lay_out,
    maps_of,
)

if TYPE_CHECKING:
    from tlstax.collectors.process.mappings import MappedObject
    from tlstax.collectors.recording.stream.recorded_files import Mapping

MAGIC: Final = b"tlstaxUS"
VERSION: Final = 1
SUFFIX: Final = ".unwind"
TABLES_MOST: Final = 2048
ROOM_WORDS: Final = 1 << 17
"""Room beyond the first tables, and a quarter of them: as in collectors/recorder/walks.c."""
BUILD_ID_MOST: Final = 32
_HEAD: Final = struct.Struct("<8sII")  # magic, version, CRC-32 of all that follows
_COUNTS: Final = struct.Struct("<IIII")  # tables, rules, words, 0
_TABLE: Final = struct.Struct(f"<QIIIIIIQ{BUILD_ID_MOST}s")


def process_tables(
    pid: int, proc: Path = PROC, known: Sequence["MappedObject"] = ()
) -> Addition | None:
    """The tables of a process's code as it is mapped now; None if no file has one.

    `proc`: of another host. `known`: files of the process whose headers have been read. Raises
    TlstaxError if they cannot be made.
    """
    maps = maps_of(pid, proc)
    made = lay_out(pid, maps, Layout(), known=known, proc=proc) if maps else None
    return made if made and _usable(made.layout) else None


def usable_tables(pid: int, made: Addition | None) -> "GrowingTables | None":
    """Tables that grow with the process; None if no file has one."""
    return GrowingTables(pid, made) if made and _usable(made.layout) else None


def tables_bytes(layout: Layout, words: bytes) -> bytes:
    """The file: `words` are those of the layout from the first one on."""
    placed = _usable(layout)
    parts = (
        _COUNTS.pack(len(placed), len(layout.rules), len(words) // 4, 0),
        *(_table(*each) for each in placed),
        *layout.rules,
        words,
    )
    checksum = 0
    for part in parts:  # megabytes: they are copied once
        checksum = zlib.crc32(part, checksum)
    return b"".join((_HEAD.pack(MAGIC, VERSION, checksum), *parts))


class GrowingTables:
    """The tables of a process that maps further code while it is recorded."""

    def __init__(self, pid: int, made: Addition) -> None:
        self._pid = pid
        self._layout, self._words = made.layout, made.words
        count = made.layout.words_count
        self._words_most = count + count // 4 + ROOM_WORDS

    def content(self) -> bytes:
        """The file of all of them."""
        return tables_bytes(self._layout, self._words)

    def grow(self, mappings: "Sequence[Mapping]") -> bool:
        """Make tables of files that were mapped since; whether there are more now.

        Building is the work of a child process, which reads the mappings of the target once.
        """
        known = {inode for _, inode, _ in self._layout.files}
        mapped = {int(entry.inode) for entry, _ in mappings if entry.inode and not entry.has_table}
        if mapped <= known or not (maps := maps_of(self._pid)):
            return False
        try:
            added = lay_out(self._pid, maps, self._layout, self._words_most)
        except TlstaxError:  # the process is ending, or memory is short: as before
            return False
        self._layout, self._words = added.layout, self._words + added.words
        return bool(added.words)


def write_tables(plan: Path, made: Addition | None, overwrite: bool) -> Path | None:
    """Write the file beside a plan, or remove an old one. Raises TlstaxError USAGE or IO."""
    path = plan.with_name(plan.name + SUFFIX)
    try:
        if made is None:
            path.unlink(missing_ok=True)
            return None
        if not overwrite and os.path.lexists(path):
            raise _unwritable(
                path, "the file exists", "choose another name, or give --force", ExitCode.USAGE
            )
        put_whole(path, tables_bytes(made.layout, made.words), 0o600)
    except OSError as error:
        reason = error.strerror or str(error)
        raise _unwritable(path, reason, "choose another directory", ExitCode.IO) from error
    return path


def _usable(layout: Layout) -> list[tuple[FileKey, Placed]]:
    """The files that have a table, and those tables."""
    usable = [
        (key, placed)
        for key, placed in layout.files.items()
        if placed.buckets and len(placed.build_id) <= 2 * BUILD_ID_MOST
    ]
    return usable[:TABLES_MOST]


def _table(key: FileKey, placed: Placed) -> bytes:
    """One without a build-id is found by device and inode: on this host only."""
    identity = bytes.fromhex(placed.build_id)
    device, inode, _ = key
    major, _, minor = device.partition(":")
    numbers = (len(identity), int(major or "0", 16), int(minor or "0", 16), 0, inode)
    return _TABLE.pack(placed.base, placed.index_word, placed.buckets, *numbers, identity)


def _unwritable(path: Path, why: str, do: str, code: ExitCode) -> TlstaxError:
    return TlstaxError(f"cannot write the unwind tables {path}", why, do, code)
