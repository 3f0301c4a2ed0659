# SPDX-License-Identifier: GPL-2.0-only
"""Unwind tables that are kept between runs: unwind/ in tlstax.cache_directory().

A table is of a file's contents, which its build-id or a digest names, and of the code that builds
it: both are in its name. A kept table that is damaged is built again.
"""

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from tlstax import cache_directory
from tlstax.collectors.host.kept_file import BYTES_MOST, keep_file, read_kept
from tlstax.collectors.unwinding.file_table import FileTable, from_bytes, to_bytes
from tlstax.collectors.unwinding.layout_cache import FOLDER, code

TABLES_MOST: Final = 512


def contents_of(descriptor: int) -> str:
    """A name for the contents of an open file without a build-id.

    "" if it is too large for one, or cannot be read.
    """
    with suppress(OSError), open(descriptor, "rb", closefd=False) as stream:
        if os.fstat(descriptor).st_size <= BYTES_MOST:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            stream.seek(0)
            return digest
    return ""


def kept_table(build_id: str, debug: str = "", contents: str = "") -> FileTable | None:
    """The table of a file; None if none is kept, or it cannot be used.

    `debug`: the identity of its debug file (debug_frames.identity). `contents`: of a file without
    a build-id (contents_of).
    """
    if not build_id and not contents:
        return None
    with suppress(OSError, ValueError):
        table = from_bytes(read_kept(_path(build_id or contents, debug)))
        if table.build_id == build_id:
            return table
    return None


def keep_table(table: FileTable, debug: str = "", contents: str = "") -> None:
    """Store a table that was built with this debug file; the oldest of too many go.

    If that fails, the next run builds it again.
    """
    if not table.build_id and not contents:
        return
    path = _path(table.build_id or contents, debug)
    with suppress(OSError):
        keep_file(path, to_bytes(table))
        by_age = sorted(path.parent.glob("*.table"), key=lambda each: each.stat().st_mtime)
        for old in by_age[:-TABLES_MOST]:
            old.unlink()


def _path(build_id: str, debug: str) -> Path:
    parts = [build_id, code(), *([debug] if debug else [])]
    return cache_directory() / FOLDER / f"{'-'.join(parts)}.table"
