# SPDX-License-Identifier: GPL-2.0-only
"""Unwind tables of whole processes that are kept between runs: unwind/*.layout in the cache.

Where all files of a process have a build-id, these, their debug files and the code that lays tables
out are the name of what was made of them. It is read without numpy, which takes longer to import
than everything else of a start from the cache. A kept one that is damaged is made again.
"""

import hashlib
import json
import struct
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from tlstax import cache_directory
from tlstax.collectors.host.kept_file import keep_file, read_kept
from tlstax.collectors.process.mappings import PROC, MappedObject
from tlstax.collectors.unwinding.debug_frames import debug_file, identity
from tlstax.collectors.unwinding.row_format import RULE_FORMAT, RULES_MOST

FOLDER: Final = "unwind"
ELSEWHERE: Final = "elsewhere"
"""In the names of what is made of files that other hosts sent."""
LAYOUTS_MOST: Final = 16
_HEAD: Final = struct.Struct("<8sII")  # magic, version, CRC-32 of all that follows
_COUNTS: Final = struct.Struct("<III")  # bytes of the JSON, rules, bytes of the words
_MAGIC: Final = b"tlstaxUL"
_VERSION: Final = 1


class Placed(NamedTuple):
    """Where the table of a file is. Without a table, `buckets` is 0 and `missing` says why."""

    base: int = 0
    index_word: int = 0
    buckets: int = 0
    functions_count: int = 0
    unsupported_count: int = 0
    missing: str = ""
    name: str = ""  # of the file
    build_id: str = ""


class KeptLayout(NamedTuple):
    """Tables of the files that it was named after, in their order, and of the vdso."""

    placed: list[Placed]
    rules: tuple[bytes, ...]
    words: bytes


def name_of(objects: Sequence[MappedObject], vdso: bytes, process: Path) -> str:
    """The name of the layout of these files; "" if one has no build-id.

    `process`: the folder of the process in its host's proc, below which debug files are looked for.
    """
    place = "" if process.parent == PROC else ELSEWHERE
    digest = hashlib.sha256(f"{code()}{place}\0{hashlib.sha256(vdso).hexdigest()}".encode())
    for each in objects:
        if not each.build_id or not each.open_path:
            return ""
        debug = identity(debug_file(each.build_id, process / "root"))
        digest.update(f"\0{each.build_id}\0{debug}".encode())
    return digest.hexdigest()[:40]


def keep_layout(name: str, layout: KeptLayout) -> None:
    """Store a layout; if that fails, the next run makes it again. The oldest of too many go."""
    text = json.dumps(layout.placed, separators=(",", ":")).encode()
    body = b"".join(
        (
            _COUNTS.pack(len(text), len(layout.rules), len(layout.words)),
            text,
            *layout.rules,
            layout.words,
        )
    )
    path = _path(name)
    with suppress(OSError):
        keep_file(path, _HEAD.pack(_MAGIC, _VERSION, zlib.crc32(body)) + body)
        by_age = sorted(path.parent.glob("*.layout"), key=lambda each: each.stat().st_mtime)
        for old in by_age[:-LAYOUTS_MOST]:
            old.unlink()


def kept_layout(name: str) -> KeptLayout | None:
    """The layout of that name; None if none is kept, or it cannot be used."""
    with suppress(OSError, ValueError, TypeError, RecursionError, struct.error):
        return _read(read_kept(_path(name)))
    return None


def _read(content: bytes) -> KeptLayout:
    magic, version, checksum = _HEAD.unpack_from(content)
    body = memoryview(content)[_HEAD.size :]
    if (magic, version) != (_MAGIC, _VERSION) or zlib.crc32(body) != checksum:
        raise ValueError("another version, or damaged")
    text_bytes, rules_count, words_bytes = _COUNTS.unpack_from(body)
    rules_at = _COUNTS.size + text_bytes
    words_at = rules_at + rules_count * RULE_FORMAT.size
    if rules_count > RULES_MOST or len(body) != words_at + words_bytes or words_bytes % 4:
        raise ValueError("other sizes")
    placed = [Placed(*row) for row in json.loads(bytes(body[_COUNTS.size : rules_at]))]
    rules = tuple(
        bytes(body[at : at + RULE_FORMAT.size])
        for at in range(rules_at, words_at, RULE_FORMAT.size)
    )
    words = bytes(body[words_at:])
    for each in placed:
        if each.buckets and each.index_word + each.buckets >= len(words) // 4:
            raise ValueError("a table outside of the words")
    return KeptLayout(placed, rules, words)


def code() -> str:
    """The code that builds tables and lays them out, as one name."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _path(name: str) -> Path:
    return cache_directory() / FOLDER / f"{name}.layout"
