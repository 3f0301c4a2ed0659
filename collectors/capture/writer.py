# SPDX-License-Identifier: GPL-2.0-only
"""Write a capture: rows are added as they come and committed when their window ends.

A rollback journal, not WAL, so that a finished capture is one file. All rows between two commits
are one transaction: a collector killed at any instant leaves every committed window readable.
Nothing is flushed to the disk before `close`, because fsync on a database host would disturb what
is measured; so committed windows survive a crash of the process, but not a power failure.

SQLite commits nothing while another program reads the file, which may take for ever: somebody's
shell with an open transaction. At the end a copy with all rows then takes the place of the file,
so that nothing is lost, and that program keeps what it reads.
"""

import os
import sqlite3
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Final, cast

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.capture_file import (
    CaptureFile,
    without_interrupts,
    write_error,
)
from tlstax.collectors.capture.printable import complain
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
_STEP_SECONDS: Final = 1.0
"""How long it waits before it says so, and how long Ctrl-C may take to end the wait."""
_CACHE_KIB: Final = 1024
_INSERTS: Final = {table: insert_row(table) for table in TABLES}
_BATCH_ROWS: Final = 256
_UNFIT: Final = (OverflowError, UnicodeEncodeError, sqlite3.IntegrityError, sqlite3.DataError)
"""What SQLite raises for a value that is not of the schema."""


class CaptureWriter:
    """An open capture. Not safe for use by several threads."""

    def __init__(self, connection: sqlite3.Connection, file: CaptureFile) -> None:
        """Use `create`."""
        self._connection = connection
        self._file = file
        self._patience_s = BUSY_SECONDS
        self._is_closed = False

    @property
    def path(self) -> Path:
        """Where the capture is, or will be once it has replaced an earlier one."""
        return self._file.path

    @classmethod
    def create(cls, path: str | os.PathLike[str], overwrite: bool = False) -> "CaptureWriter":
        """Create a capture that only its owner can read.

        With `overwrite` an earlier capture stays in its place until `take_place` or `close`.
        Raises TlstaxError: USAGE if the file exists (with `overwrite`: if it is not a capture, or
        another recording writes it), IO if it cannot be created.
        """
        file = connection = None
        try:
            with without_interrupts():
                file = CaptureFile(Path(path), overwrite)
            connection = _connect(file.current)
            _prepare(connection)
        except BaseException as error:  # also Ctrl-C: nothing of it is left
            if connection is not None:
                connection.close()
            if file is None:
                raise
            file.remove()
            file.close()
            if isinstance(error, sqlite3.OperationalError):
                raise write_error(file.path, error) from error
            raise
        return cls(connection, file)

    def take_place(self) -> None:
        """Commit, and replace the earlier capture: the new one is worth keeping.

        Raises what `commit` raises; then the earlier one is as it was.
        """
        self.commit()
        if self._file.current == self.path:
            return
        self._connection.close()
        try:
            self._file.take_place()
        finally:
            self._reopen()

    def _reopen(self) -> None:
        """Open where the file is now, with the usual patience."""
        self._connection = _connect(self._file.current)
        _set_up(self._connection)
        self._patience_s = BUSY_SECONDS

    def discard(self) -> None:
        """Close, and leave nothing of it; an earlier capture stays if it is still in its place."""
        self._is_closed = True
        self._connection.close()
        self._file.remove()
        self._file.close()

    def add(self, rows: Row | Iterable[Row]) -> None:
        """Add one row or several to the open window.

        Raises TlstaxError: IO when the disk is full, CAPTURE if a value is none that a capture can
        hold, as in what is imported; committed windows stay readable.
        """
        # A row is itself an iterable, of its values: the class distinguishes them.
        iterable = cast(Iterable[Row], (rows,) if isinstance(rows, TABLES) else rows)
        # Rows of a table go together, each table's in their order: those of stacks and of frames
        # come in turns, and a statement for each row takes longer than the row.
        batches: dict[type[Row], list[Row]] = {}
        for row in iterable:
            batch = batches.setdefault(type(row), [])
            batch.append(row)
            if len(batch) == _BATCH_ROWS:
                self._insert(batch)
                batch.clear()
        for batch in batches.values():
            if batch:
                self._insert(batch)

    def commit(self) -> None:
        """Commit all rows added so far: they survive a crash of this process.

        Waits for programs that read the capture as long as the patience is, or until Ctrl-C. Then
        a copy with all rows takes its place, and they keep what they read.
        Raises TlstaxError (IO) when the disk is full.
        """
        end_s = time.monotonic() + self._patience_s
        is_told = False
        with without_interrupts() as interrupts:
            while not self._commit_within(min(_STEP_SECONDS, self._patience_s)):
                if time.monotonic() >= end_s or interrupts:
                    self._move_to_copy()
                elif not is_told:
                    is_told = True
                    complain(
                        f"{self._file.reader()} reads {self.path}: waiting until it ends, for at "
                        f"most {self._patience_s:.0f} s, or until Ctrl-C; nothing is lost"
                    )

    def set_patience(self, seconds: float) -> None:
        """How long a commit waits for programs that read the capture.

        Rows that cannot be committed yet stay in memory.
        """
        self._patience_s = seconds
        self._set_timeout(seconds)
        self._connection.execute("PRAGMA cache_spill = OFF")

    def commit_if_free(self) -> bool:
        """As `commit`, but while others read the capture, the rows stay for the next commit.

        False: they do. Waits as long as the patience is.
        """
        return self._commit_within(self._patience_s)

    def _commit_within(self, seconds: float) -> bool:
        if not self._connection.in_transaction:
            return True
        self._set_timeout(seconds)
        try:
            self._connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                self._give_up(error)
            return False
        finally:
            self._set_timeout(self._patience_s)
        return True

    def _set_timeout(self, seconds: float) -> None:
        self._connection.execute(f"PRAGMA busy_timeout = {round(seconds * 1000)}")

    def _move_to_copy(self) -> None:
        """Go on in a copy with all rows, committed and not, which takes the place of the file.

        Only this connection sees the rows that are not committed. Raises TlstaxError (IO).
        """
        reader = self._file.reader()
        self._copy(reader)
        self._connection.close()
        try:
            self._file.take_place()
        finally:
            self._reopen()
        # Else who has the earlier file open could take this one's journal for that of its own.
        self._connection.execute("PRAGMA journal_mode = MEMORY")
        complain(
            f"{reader} still reads {self.path}: the whole capture was written to a new file of "
            "that name; programs that have the old file open see the last windows after opening it "
            "again"
        )

    def _copy(self, reader: str) -> None:
        """Write all rows to a file beside the capture. Nothing of it is left if that fails."""
        try:
            self._file.begin_copy()
            try:
                with closing(_connect(self._file.current)) as copy:
                    _prepare(copy)
                    _copy_rows(self._connection, copy)
            except BaseException:
                self._file.drop_copy()
                raise
        except (sqlite3.Error, TlstaxError) as error:
            self._patience_s = 0.0  # it has been waited for
            why = error.why if isinstance(error, TlstaxError) else str(error)
            raise TlstaxError(
                f"cannot write the capture {self.path}",
                f"{reader} reads it, and a copy beside it cannot be written: {why}",
                "End that program, and make room; windows that were finished before are kept",
                ExitCode.IO,
            ) from error

    def close(self) -> None:
        """Commit, replace an earlier capture, flush to the disk and close.

        Closing twice does nothing, nor does closing what was discarded.
        """
        if self._is_closed:
            return
        try:
            self.take_place()
        finally:
            self._is_closed = True
            self._connection.close()
            self._file.close()
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise write_error(self.path, error) from error
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
            self._is_closed = True
            self._connection.close()
            self._file.close()

    def _insert(self, batch: list[Row]) -> None:
        try:
            if not self._connection.in_transaction:
                self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(_INSERTS[type(batch[0])], batch)
        except sqlite3.OperationalError as error:
            self._give_up(error)
        except _UNFIT as error:
            why = {OverflowError: "a number above 2^63 - 1", UnicodeEncodeError: "a text not UTF-8"}
            raise TlstaxError(
                f"cannot write the capture {self.path}",
                f"what was read has {why.get(type(error), f'values that do not fit ({error})')}, "
                f"which the table {table_name(type(batch[0]))} cannot hold",
                "Check what the capture is made of: it is damaged, or no recorder wrote it",
                ExitCode.CAPTURE,
            ) from error

    def _give_up(self, error: sqlite3.OperationalError) -> None:
        """Roll back the open window, so that the file is consistent, and raise TlstaxError."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        raise write_error(self.path, error) from error


def write_whole(path: Path, rows: Iterable[Row], overwrite: bool = False) -> None:
    """Write a capture from complete rows; no file remains when it cannot be written.

    Raises what `CaptureWriter` raises.
    """
    writer = CaptureWriter.create(path, overwrite)
    try:
        with writer:
            writer.add(rows)
    except BaseException:
        writer.discard()
        raise


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)


def _set_up(connection: sqlite3.Connection) -> None:
    """What holds for a connection, and is not in the file."""
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")


def _prepare(connection: sqlite3.Connection) -> None:
    """Set the file's identity and create its tables, in one transaction."""
    _set_up(connection)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {USER_VERSION}")
    for table in TABLES:
        connection.execute(create_table(table))
    connection.execute("COMMIT")


def _copy_rows(source: sqlite3.Connection, copy: sqlite3.Connection) -> None:
    """Copy all rows in their order, in one transaction, one after the other through memory."""
    copy.execute("BEGIN IMMEDIATE")
    for table in TABLES:
        rows = source.execute(f'SELECT * FROM "{table_name(table)}"')
        copy.executemany(_INSERTS[table], rows)
    copy.execute("COMMIT")
