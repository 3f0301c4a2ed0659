# SPDX-License-Identifier: GPL-2.0-only
"""Changes the names of frames in a finished capture; nothing else of it changes.

The file is changed in one transaction, so that it has all the new names or none.
"""

import os
import sqlite3
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.schema import Frame

_BUSY_SECONDS: Final = 10.0
_UPDATE: Final = (
    "UPDATE frame SET symbol = ?, symbol_offset_bytes = ?, source = ?, code = ? WHERE frame_id = ?"
)


def store_names(path: Path, frames: Sequence[Frame]) -> None:
    """Store the names of these frames. The capture was opened by a `CaptureReader` before.

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
            connection.execute("COMMIT")
        finally:
            connection.close()
    except (OSError, sqlite3.Error, UnicodeEncodeError) as error:
        raise _failed(path, str(error)) from error


def _failed(path: Path, why: str) -> TlstaxError:
    return TlstaxError(
        f"cannot store names in the capture {path}",
        why,
        "Make room, permit writing, or name a copy of it; it is unchanged",
        ExitCode.IO,
    )
