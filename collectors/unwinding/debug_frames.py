# SPDX-License-Identifier: GPL-2.0-only
"""Call frame information in separate debug files: .debug_frame of code that has no .eh_frame.

A debug file is looked for by build-id, at the place that Debian, Fedora and gdb use, below the
root directory that the process sees and then below this host's. It is used only if its build-id is
that of the file. It is untrusted: one that cannot be read is as good as none.
"""

import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Final

from tlstax import TlstaxError
from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.binary.rooted_files import path_below

NAME: Final = ".debug_frame"
SECTION_BYTES_MOST: Final = 1 << 26
"""Of a section, uncompressed; a server's has some megabytes."""
_ROOT: Final = Path("usr/lib/debug/.build-id")
_BUILD_ID_DIGITS_LEAST: Final = 4
_COMPRESSED: Final = struct.Struct("<IIQQ")  # Elf64_Chdr: type, 0, size, alignment
_ZLIB: Final = 1


def debug_file(build_id: str, root: Path) -> Path | None:
    """The debug file of a build on this host; None without one."""
    if len(build_id) < _BUILD_ID_DIGITS_LEAST:
        return None
    name = f"{_ROOT}/{build_id[:2]}/{build_id[2:]}.debug"
    for place in (root, "/"):
        with suppress(OSError):
            found = path_below(place, name)
            if found.is_file():
                return found
    return None


def identity(path: Path | None) -> str:
    """What tells a debug file from one that replaces it; '' without a file."""
    if path is None:
        return ""
    try:
        status = path.stat()
    except OSError:
        return ""
    return f"{status.st_size:x}-{status.st_mtime_ns:x}"


def frames_of(path: Path | None, build_id: str) -> tuple[bytes, int]:
    """The contents of a debug file's .debug_frame, and the address of the section."""
    if path is not None:
        with suppress(TlstaxError), Elf(path) as elf:
            if elf.build_id == build_id:
                return frames_in(elf)
    return b"", 0


def frames_in(elf: Elf) -> tuple[bytes, int]:
    """The same of a file; nothing if it is too large, or compressed by other means than zlib."""
    section = elf.section(NAME)
    if section is None or not section.in_file or section.size > SECTION_BYTES_MOST:
        return b"", 0
    content = elf.content(NAME)
    return _uncompressed(content) if section.compressed else content, section.address


def _uncompressed(content: bytes) -> bytes:
    if len(content) < _COMPRESSED.size:
        return b""
    kind, _, size, _ = _COMPRESSED.unpack_from(content)
    if kind != _ZLIB or not 0 < size <= SECTION_BYTES_MOST:  # 0 would be no limit for zlib
        return b""
    with suppress(zlib.error):
        made = zlib.decompressobj().decompress(content[_COMPRESSED.size :], size)
        return made if len(made) == size else b""
    return b""
