# SPDX-License-Identifier: GPL-2.0-only
"""Changes the names of frames, and of what is inlined there, in a finished capture.

Nothing else of it changes.
The file is changed in one transaction, so that it has all the new names or none.
"""

import os
import sqlite3
import stat
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.schema import (
    Frame,
    InlinedFrame,
    Stack,
    create_table,
    insert_row,
    table_name,
)

_BUSY_SECONDS: Final = 10.0
_UPDATE: Final = (
    "UPDATE frame SET symbol = ?, symbol_offset_bytes = ?, source = ?, code = ? WHERE frame_id = ?"
)
_STACKS: Final = "UPDATE stack SET frame_ids = ? WHERE stack_id = ?"
_INLINED: Final = table_name(InlinedFrame)


def store_names(
    path: Path,
    frames: Sequence[Frame],
    inlined: Sequence[InlinedFrame] = (),
    inlined_of: Collection[int] = (),
    stacks: Sequence[Stack] = (),
) -> None:
    """Store the names of these frames. The capture was opened by a `CaptureReader` before.

    `inlined` replaces what is inlined at the frames `inlined_of`, and `stacks` those of their ids.
    Raises TlstaxError (IO) if the file cannot be written.
    """
    rows = [
        (frame.symbol, frame.symbol_offset_bytes, frame.source, frame.code, frame.frame_id)
        for frame in frames
    ]
    try:
        if not stat.S_ISREG(os.stat(path).st_mode) or not os.access(path, os.W_OK):
            raise _failed(path, "the file cannot be written")
        uri = f"file:{quote(str(path.absolute()))}?mode=rw"
        connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(_UPDATE, rows)
            connection.executemany(_STACKS, [(row.frame_ids, row.stack_id) for row in stacks])
            if inlined_of:
                _store_inlined(connection, inlined, inlined_of)
            connection.execute("COMMIT")
        finally:
            connection.close()
    except (OSError, sqlite3.Error, UnicodeEncodeError) as error:
        raise _failed(path, str(error)) from error


def _store_inlined(
    connection: sqlite3.Connection, inlined: Sequence[InlinedFrame], of: Collection[int]
) -> None:
    found = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (_INLINED,))
    if found.fetchone() is None:  # a capture of an older version
        connection.execute(create_table(InlinedFrame))
    delete = f'DELETE FROM "{_INLINED}" WHERE frame_id = ?'
    connection.executemany(delete, [(frame_id,) for frame_id in of])
    connection.executemany(insert_row(InlinedFrame), inlined)


def _failed(path: Path, why: str) -> TlstaxError:
    return TlstaxError(
        f"cannot store names in the capture {path}",
        why,
        "Make room, permit writing, or name a copy of it; it is unchanged",
        ExitCode.IO,
    )
