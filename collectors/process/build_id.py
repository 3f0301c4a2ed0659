# SPDX-License-Identifier: GPL-2.0-only
"""The build-id of an open ELF file, read again at the moment of attaching.

A plan is made for a file with a certain build-id. A file may be overwritten in place, which keeps
the inode, so the id is compared again before a breakpoint is set. No ELF library is used: the
process that stays attached must stay small.
"""

import os
import struct
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.process.mappings import MappedObject

HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")  # Elf64_Ehdr
SEGMENT: Final = struct.Struct("<IIQQQQQQ")  # Elf64_Phdr
PT_NOTE: Final = 4
NOTE_LIMIT_BYTES: Final = 1 << 16
SEGMENTS_MOST: Final = 1 << 10
"""A program has 10 or so; each may name notes to read."""
NT_GNU_BUILD_ID: Final = 3


def require_same_build(mapped: MappedObject, descriptor: int) -> None:
    """Raise TlstaxError TARGET if the open file is not the build that the plan was made for."""
    found = build_id_of(descriptor)
    if found != mapped.build_id:
        raise TlstaxError(
            f"{mapped.path} cannot be probed",
            f"its build-id was {mapped.build_id or 'absent'} when the probes were planned and is"
            f" {found or 'absent'} now: the file was overwritten",
            "Restart the server with the new file, then attach again",
            ExitCode.TARGET,
        )


def build_id_of(descriptor: int) -> str:
    """The GNU build-id as hex digits, "" where there is none."""
    try:
        header = HEADER.unpack(os.pread(descriptor, HEADER.size, 0))
        if not header[0].startswith(b"\x7fELF"):
            return ""
        offset, size, count = header[5], header[9], header[10]
        for number in range(min(count, SEGMENTS_MOST)):
            entry = os.pread(descriptor, SEGMENT.size, offset + number * size)
            kind, _, start, _, _, length, _, _ = SEGMENT.unpack(entry)
            if kind == PT_NOTE:
                notes = os.pread(descriptor, min(length, NOTE_LIMIT_BYTES), start)
                if found := _in_notes(notes):
                    return found
    except (struct.error, OSError, OverflowError):
        pass
    return ""


def _in_notes(notes: bytes) -> str:
    position = 0
    while position + 12 <= len(notes):
        name_size, content_size, kind = struct.unpack_from("<III", notes, position)
        name = notes[position + 12 : position + 12 + name_size]
        content = position + 12 + (name_size + 3) // 4 * 4
        if kind == NT_GNU_BUILD_ID and name == b"GNU\0":
            return notes[content : content + content_size].hex()
        position = content + (content_size + 3) // 4 * 4
    return ""
