# SPDX-License-Identifier: GPL-2.0-only
"""Read a capture: a finished one, one that is still being recorded, or one whose recorder died.

The file is never changed. A recorder killed during a commit leaves a journal in the same directory;
then both are copied to a temporary directory and the copy is rolled back to its last finished
window. A file that is not a capture, is damaged, or has a later version is refused with one
`TlstaxError` (CAPTURE), when it is opened or when the damaged part is read. A capture of an older
version is read: missing tables and columns have defaults.
"""

import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar
from urllib.parse import quote

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.schema import (
    ADDED,
    APPLICATION_ID,
    TABLES,
    USER_VERSION,
    Column,
    Latency,
    Meta,
    PrimitiveTime,
    Row,
    columns,
    create_table,
    table_name,
)

R = TypeVar("R", bound=Row)
_MAGIC: Final = b"SQLite format 3\x00"
_BUSY_SECONDS: Final = 10.0
_CHUNK_ROWS: Final = 2_000
# Limits for values from an untrusted file: texts in captures are far below them.
_MAX_VALUE_BYTES: Final = 1 << 24
_MAX_NUMBER: Final = 1 << 63
# What sqlite3 raises for a damaged file: also when its own message quotes text that is not UTF-8,
# or when a damaged length is beyond memory.
_DAMAGES: Final = (sqlite3.DatabaseError, UnicodeDecodeError, MemoryError, OverflowError)
# Differences of sums that are not read at one instant, and of counts that may be taken back.
_DIFFERENCES: Final = frozenset({"switch_count", "seen_switch_count", "ended_count"})
_BUCKETS: Final = (Latency, PrimitiveTime)
"""Tables of buckets; their upper bound is exclusive."""
_DO: Final = "record it again, or copy the original file again"


class CaptureReader:
    """An open capture."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        copy: "tempfile.TemporaryDirectory[str] | None",
    ) -> None:
        """Use `open`."""
        self._connection = connection
        self._copy = copy
        self._present: dict[str, frozenset[str]] = {}
        self.path = path
        self.recovered = copy is not None

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "CaptureReader":
        """Open a capture for reading. Raises TlstaxError (CAPTURE) if the file is not a capture."""
        source = Path(path)
        _check_header(source)
        try:
            reader = cls(_connect(source), source, None)
        except sqlite3.OperationalError as error:
            if not _journal_of(source).exists():
                raise _damaged(source, str(error)) from error
            reader = _open_copy(cls, source)
        except _DAMAGES as error:
            raise _damaged(source, str(error)) from error
        try:
            reader._check_tables()
        except TlstaxError:
            reader.close()
            raise
        return reader

    def rows(
        self, table: type[R], where: str = "", params: Sequence[int | float | str | None] = ()
    ) -> Iterator[R]:
        """The rows of a table in the order they were written.

        `where` is an SQL condition with `?` for each of `params`.
        Raises TlstaxError (CAPTURE) at a damaged row, or some rows before it.
        """
        make = partial(tuple.__new__, table)  # what its own constructor calls, in half the time
        for chunk in self.chunks(table, where, params):
            yield from map(make, chunk)

    def chunks(
        self, table: type[Any], where: str = "", params: Sequence[int | float | str | None] = ()
    ) -> Iterator[list[tuple[Any, ...]]]:
        """The rows of a table as plain tuples, some thousand at a time."""
        kinds = columns(table)
        present = self._present.get(table_name(table))
        if present is None:
            return
        names = ", ".join(f'"{c.name}"' if c.name in present else "?" for c in kinds)
        defaults = [table._field_defaults[c.name] for c in kinds if c.name not in present]
        condition = f" WHERE {where}" if where else ""
        query = f'SELECT {names} FROM "{table_name(table)}"{condition} ORDER BY rowid'
        try:
            cursor = self._connection.execute(query, (*defaults, *params))
            while chunk := cursor.fetchmany(_CHUNK_ROWS):
                if not _are_plain(kinds, chunk):
                    for values in chunk:
                        self._check_row(table_name(table), kinds, values)
                yield chunk
        except _DAMAGES as error:
            raise _damaged(self.path, str(error) or type(error).__name__) from error

    def _check_row(self, name: str, kinds: Sequence[Column], values: Sequence[object]) -> None:
        for column, value in zip(kinds, values, strict=True):
            if not _fits(column, value):
                raise _damaged(self.path, f"{name}.{column.name} holds {value!r:.40}")

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Everything read inside belongs to one instant, although a recorder continues to write."""
        try:
            self._connection.execute("BEGIN")
            yield
            self._connection.execute("COMMIT")
        except _DAMAGES as error:
            raise _damaged(self.path, str(error)) from error

    def meta(self) -> dict[str, str]:
        """All facts of the meta table."""
        return {row.key: row.value for row in self.rows(Meta)}

    def require_counts(self) -> None:
        """Raise TlstaxError (CAPTURE) if a count is negative, or a bucket holds no value."""
        for table in TABLES:
            name = table_name(table)
            present = self._present.get(name, frozenset())
            counts = {c.name for c in columns(table) if c.name.endswith("_count")}
            wrong = [(one, f'"{one}" < 0') for one in sorted((counts - _DIFFERENCES) & present)]
            wrong += [("high_ns", "high_ns <= low_ns")] if table in _BUCKETS and present else []
            for column, is_wrong in wrong:
                query = f'SELECT "{column}" FROM "{name}" WHERE {is_wrong} LIMIT 1'
                try:
                    found = self._connection.execute(query).fetchone()
                except _DAMAGES as error:
                    raise _damaged(self.path, str(error) or type(error).__name__) from error
                if found:
                    raise self.damaged(f"{name}.{column} holds {found[0]!r:.40}")

    def damaged(self, detail: str) -> TlstaxError:
        """The error (CAPTURE) for rows that no recorder writes."""
        return _damaged(self.path, detail)

    def close(self) -> None:
        """Close, and remove the temporary copy if there is one."""
        self._connection.close()
        if self._copy is not None:
            self._copy.cleanup()

    def __enter__(self) -> "CaptureReader":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _check_tables(self) -> None:
        """The file holds the tables of the schema, and no view or trigger.

        Tables and columns with a default may be missing from a capture of an older version.
        """
        tables = {table_name(table): table for table in TABLES}
        query = "SELECT name, sql FROM sqlite_schema WHERE type <> 'index' ORDER BY name"
        version = "PRAGMA user_version"
        try:
            found = list(self._connection.execute(query))
            older = self._connection.execute(version).fetchone()[0] < USER_VERSION
            for name in tables.keys() & (name for name, _ in found):
                rows = self._connection.execute(f'PRAGMA table_info("{name}")')
                self._present[name] = frozenset(row[1] for row in rows)
        except _DAMAGES as error:
            raise _damaged(self.path, str(error)) from error
        optional = {table_name(table) for table in ADDED} if older else set()
        complete = tables.keys() - optional <= self._present.keys()
        for name, sql in found:
            complete &= name in tables and sql == _expected_sql(
                tables[name], self._present[name] if older else None
            )
        if not complete:
            raise _damaged(self.path, "its tables are not those of a capture")


def _expected_sql(table: type[Row], present: Collection[str] | None) -> str:
    """The schema's CREATE statement; for an older file, without columns that were added since."""
    if present is None:
        return create_table(table)
    lacking_default = {c.name for c in columns(table)} - table._field_defaults.keys()
    return create_table(table, lacking_default | set(present))


def _journal_of(path: Path) -> Path:
    return Path(f"{path}-journal")


def _check_header(path: Path) -> None:
    """Refuse a file that is not a capture of this version, by its first 100 bytes."""
    try:
        # A pipe would be waited for, and can be read only once.
        if not stat.S_ISREG(mode := path.stat().st_mode) and not stat.S_ISDIR(mode):
            raise _refuse(path, "it is a pipe or a device", "write it to a file, and give that")
        with path.open("rb") as stream:
            header = stream.read(100)
            size_bytes = os.fstat(stream.fileno()).st_size
    except FileNotFoundError as error:
        raise _refuse(path, "there is no such file", "check the path") from error
    except IsADirectoryError as error:
        raise _refuse(path, "it is a directory", "give the capture file in it") from error
    except OSError as error:
        raise _refuse(path, error.strerror or str(error), "check the path and its mode") from error
    if header[:16] != _MAGIC or len(header) < 100:
        raise _refuse(path, "it is not a tlstax capture", "give a file that tlstax wrote")
    application_id = int.from_bytes(header[68:72], "big")
    version = int.from_bytes(header[60:64], "big")
    if application_id != APPLICATION_ID:
        raise _refuse(
            path, "it is an SQLite file of another program", "give a file that tlstax wrote"
        )
    if not 1 <= version <= USER_VERSION:
        raise _refuse(
            path,
            f"it has version {version}, and this tlstax reads up to version {USER_VERSION}",
            "use the version of tlstax that recorded it",
        )
    # SQLite itself would pad a truncated file with errors found one page at a time.
    page_bytes = int.from_bytes(header[16:18], "big")
    page_count = int.from_bytes(header[28:32], "big")
    page_bytes = 65536 if page_bytes == 1 else page_bytes
    whole_bytes = page_bytes * page_count
    if size_bytes >= whole_bytes or _journal_of(path).exists():
        return
    # A live recorder may have ended a commit since: it deletes the journal after the pages.
    try:
        size_bytes = path.stat().st_size
    except OSError as error:
        raise _refuse(path, error.strerror or str(error), "check the path and its mode") from error
    if size_bytes < whole_bytes:
        raise _damaged(path, "it is truncated")


def _connect(path: Path, mode: str = "ro") -> sqlite3.Connection:
    """Open the file with an untrusted schema, and read it, which detects a hot journal."""
    uri = f"file:{quote(str(path.absolute()))}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
    try:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except _DAMAGES:
        connection.close()
        raise
    return connection


def _open_copy(kind: type[CaptureReader], path: Path) -> CaptureReader:
    """Roll a copy back to its last finished window; the original is not changed."""
    copy = tempfile.TemporaryDirectory(prefix="tlstax-")
    target = Path(copy.name) / "capture"
    try:
        shutil.copyfile(path, target)
        # A live recorder may finish its commit meanwhile; then there is nothing to roll back.
        if _journal_of(path).exists():
            shutil.copyfile(_journal_of(path), _journal_of(target))
        return kind(_connect(target, "rw"), path, copy)
    except (OSError, *_DAMAGES) as error:
        copy.cleanup()
        raise _damaged(path, str(error)) from error


def _fits(column: Column, value: object) -> bool:
    """Whether a value has the type that the schema declares."""
    if value is None:
        return column.nullable
    if column.kind is float:
        return isinstance(value, int | float) and abs(value) < _MAX_NUMBER
    return isinstance(value, column.kind)


def _are_plain(kinds: Sequence[Column], rows: Sequence[tuple[object, ...]]) -> bool:
    """Whether `_fits` is true for all values by their types alone: a column at a time is fast."""
    for column, values in zip(kinds, zip(*rows, strict=True), strict=True):
        expected = {column.kind, type(None)} if column.nullable else {column.kind}
        if column.kind is float or not expected.issuperset(map(type, values)):
            return False
    return True


def _refuse(path: Path, why: str, do: str) -> TlstaxError:
    return TlstaxError(f"cannot read the capture {path}", why, do, ExitCode.CAPTURE)


def _damaged(path: Path, detail: str) -> TlstaxError:
    return _refuse(path, f"it is damaged ({' '.join(detail.split())})", _DO)
