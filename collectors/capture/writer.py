# SPDX-License-Identifier: GPL-2.0-only
"""Write a capture: rows are added as they come and committed when their window ends.

A rollback journal, not WAL, so that a finished capture is one file. All rows between two commits
are one transaction: a collector killed at any instant leaves every committed window readable.
Nothing is flushed to the disk before `close`, because fsync on a database host would disturb what
is measured; so committed windows survive a crash of the process, but not a power failure.
"""

import os
import sqlite3
import stat
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, cast

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.schema import (
    APPLICATION_ID,
    TABLES,
    USER_VERSION,
    Row,
    create_table,
    insert_row,
    table_name,
)

BUSY_SECONDS: Final = 30.0
"""How long a commit waits for readers, unless another patience is set."""
_CACHE_KIB: Final = 1024
_INSERTS: Final = {table: insert_row(table) for table in TABLES}
_BATCH_ROWS: Final = 256


class CaptureWriter:
    """An open capture. Not safe for use by several threads."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        """Use `create`."""
        self._connection = connection
        self.path = path

    @classmethod
    def create(cls, path: str | os.PathLike[str], overwrite: bool = False) -> "CaptureWriter":
        """Create a capture that only its owner can read.

        Raises TlstaxError: USAGE if the file exists (with `overwrite`: if it is not a capture),
        IO if it cannot be created.
        """
        target = Path(path)
        if overwrite:
            _remove_capture(target)
        _create_private(target)
        connection = sqlite3.connect(target, timeout=BUSY_SECONDS, isolation_level=None)
        writer = cls(connection, target)
        try:
            _prepare(connection)
        except sqlite3.OperationalError as error:
            connection.close()
            raise _write_error(target, error) from error
        return writer

    def add(self, rows: Row | Iterable[Row]) -> None:
        """Add one row or several to the open window.

        Raises TlstaxError (IO) when the disk is full; committed windows stay readable.
        """
        # A row is itself an iterable, of its values: the class distinguishes them.
        iterable = cast(Iterable[Row], (rows,) if isinstance(rows, TABLES) else rows)
        batch: list[Row] = []
        for row in iterable:
            if batch and (type(row) is not type(batch[0]) or len(batch) == _BATCH_ROWS):
                self._insert(batch)
                batch = []
            batch.append(row)
        if batch:
            self._insert(batch)

    def commit(self) -> None:
        """Commit all rows added so far: they survive a crash of this process.

        Raises TlstaxError (IO) when the disk is full or a reader blocks for too long.
        """
        if not self._connection.in_transaction:
            return
        try:
            self._connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            self._give_up(error)

    def set_patience(self, seconds: float) -> None:
        """How long a commit waits for programs that read the capture.

        Rows that cannot be committed yet stay in memory.
        """
        self._connection.execute(f"PRAGMA busy_timeout = {round(seconds * 1000)}")
        self._connection.execute("PRAGMA cache_spill = OFF")

    def commit_if_free(self) -> bool:
        """As `commit`, but while others read the capture, the rows stay for the next commit.

        False: they do. Waits as long as the patience is.
        """
        try:
            if self._connection.in_transaction:
                self._connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                self._give_up(error)
            return False
        return True

    def close(self) -> None:
        """Commit, flush to the disk and close. Closing twice does nothing."""
        try:
            self.commit()
        finally:
            self._connection.close()
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise _write_error(self.path, error) from error
        finally:
            os.close(descriptor)

    def __enter__(self) -> "CaptureWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            # A window that was not committed did not end: its rows would be incomplete.
            self._connection.close()

    def _insert(self, batch: list[Row]) -> None:
        try:
            if not self._connection.in_transaction:
                self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(_INSERTS[type(batch[0])], batch)
        except sqlite3.OperationalError as error:
            self._give_up(error)
        except (OverflowError, UnicodeEncodeError) as error:
            raise TlstaxError(
                f"cannot write the capture {self.path}",
                f"a value of {table_name(type(batch[0]))} cannot be stored ({error})",
                "check what was read: numbers have at most 64 bits, and texts are UTF-8",
                ExitCode.IO,
            ) from error

    def _give_up(self, error: sqlite3.OperationalError) -> None:
        """Roll back the open window, so that the file is consistent, and raise TlstaxError."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        raise _write_error(self.path, error) from error


def write_whole(path: Path, rows: Iterable[Row], overwrite: bool = False) -> None:
    """Write a capture from complete rows; no file remains when it cannot be written.

    Raises what `CaptureWriter` raises.
    """
    writer = CaptureWriter.create(path, overwrite)
    try:
        with writer:
            writer.add(rows)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _prepare(connection: sqlite3.Connection) -> None:
    """Set the file's identity and create its tables, in one transaction."""
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {USER_VERSION}")
    for table in TABLES:
        connection.execute(create_table(table))
    connection.execute("COMMIT")


def _create_private(path: Path) -> None:
    """Create an empty file with mode 0600 and never follow a link or reuse a file."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except FileExistsError as error:
        raise TlstaxError(
            f"cannot create the capture {path}",
            "the file exists",
            "choose another name, or give --force if the command has it",
            ExitCode.USAGE,
        ) from error
    except OSError as error:
        raise _write_error(path, error) from error


def _remove_capture(path: Path) -> None:
    """Remove an earlier capture and its journal; refuse to remove anything else."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode) or not _is_capture(path):
            raise TlstaxError(
                f"cannot overwrite {path}",
                "it is not a tlstax capture",
                "choose another name",
                ExitCode.USAGE,
            )
        Path(f"{path}-journal").unlink(missing_ok=True)
        path.unlink()
    except FileNotFoundError:
        return
    except OSError as error:
        raise _write_error(path, error) from error


def _is_capture(path: Path) -> bool:
    """Whether the file is empty or carries the application id of a capture."""
    with path.open("rb") as stream:
        header = stream.read(72)
    return not header or int.from_bytes(header[68:72], "big") == APPLICATION_ID


def _write_error(path: Path, error: Exception) -> TlstaxError:
    """The error for a capture that cannot be written."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    action = "choose another directory or permit writing there"
    if "full" in reason or "space" in reason or "disk I/O" in reason:
        action = "free some space or choose another directory; finished windows are kept"
    elif "locked" in reason:
        action = "close the program that reads it; finished windows are kept"
    return TlstaxError(f"cannot write the capture {path}", reason, action, ExitCode.IO)
