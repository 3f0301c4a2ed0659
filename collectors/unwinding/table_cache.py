# SPDX-License-Identifier: GPL-2.0-only
"""Unwind tables that are kept between runs, by build-id: unwind/ in tlstax.cache_directory().

A table is of a file's contents and of the code that builds it: both are in its name. A kept table
that is damaged is built again.
"""

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import Final

from tlstax import cache_directory
from tlstax.collectors.host.kept_file import keep_file
from tlstax.collectors.unwinding.file_table import FileTable, from_bytes, to_bytes

FOLDER: Final = "unwind"
TABLES_MOST: Final = 512
FILE_BYTES_MOST: Final = 1 << 26


def kept_table(build_id: str, debug: str = "") -> FileTable | None:
    """The table of a file; None if none is kept, or it cannot be used.

    `debug`: the identity of its debug file (debug_frames.identity).
    """
    if not build_id:
        return None
    with suppress(OSError, ValueError):
        path = _path(build_id, debug)
        if path.stat().st_size <= FILE_BYTES_MOST:
            table = from_bytes(path.read_bytes())
            if table.build_id == build_id:
                return table
    return None


def keep_table(table: FileTable, debug: str = "") -> None:
    """Store a table that was built with this debug file; the oldest of too many go.

    If that fails, the next run builds it again.
    """
    if not table.build_id:
        return
    path = _path(table.build_id, debug)
    with suppress(OSError):
        keep_file(path, to_bytes(table))
        by_age = sorted(path.parent.glob("*.table"), key=lambda each: each.stat().st_mtime)
        for old in by_age[:-TABLES_MOST]:
            old.unlink()


def _path(build_id: str, debug: str) -> Path:
    parts = [build_id, _code(), *([debug] if debug else [])]
    return cache_directory() / FOLDER / f"{'-'.join(parts)}.table"


def _code() -> str:
    """The code that builds tables, as one name."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
