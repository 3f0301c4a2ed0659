# SPDX-License-Identifier: GPL-2.0-only
"""Single Parquet files of the data set: schema, writing aside and renaming, checks before reading.

Needs pyarrow (`pip install 'tlstax[fleet]'`).
"""

import importlib
import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tlstax import ExitCode, TlstaxError, __version__
from tlstax.analysis.fleet.columns import (
    BY_NAME,
    SCHEMA_VERSION,
    SHARED,
    Row,
    columns,
    keys,
)
from tlstax.analysis.fleet.store import packing
from tlstax.analysis.fleet.store.layout import PARTIAL, make_folder
from tlstax.analysis.fleet.store.packing import LIVE_LEVEL, ROWS_OF_A_GROUP
from tlstax.collectors.capture.printable import output_error, whole_number
from tlstax.collectors.capture.schema import table_name

VERSION_KEY: Final = b"tlstax.schema_version"
TABLE_KEY: Final = b"tlstax.table"
_schemas: Final[dict[type[Row], Any]] = {}


class UnreadableError(Exception):
    """A file that is no whole file of the data set, and why."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(why)
        self.path = path


def arrow(module: str = "pyarrow") -> Any:
    """pyarrow, or a module of it. Raises TlstaxError (HOST) where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise missing_package("pyarrow") from error


def missing_package(name: str, extra: str = "fleet") -> TlstaxError:
    """The error for a package that tlstax does not install by itself."""
    return TlstaxError(
        "cannot use a data set",
        f"the Python package {name} is not installed",
        f"pip install 'tlstax[{extra}]'",
        ExitCode.HOST,
    )


def schema_of(table: type[Row]) -> Any:
    """The Arrow schema of a table."""
    if table in _schemas:
        return _schemas[table]
    pyarrow = arrow()
    kinds = {
        "int": pyarrow.int64(),
        "float": pyarrow.float64(),
        "str": pyarrow.string(),
        "list": pyarrow.list_(pyarrow.field("element", pyarrow.int64(), nullable=False)),
    }
    fields = [pyarrow.field(one.name, kinds[one.kind], nullable=False) for one in columns(table)]
    made = _schemas[table] = pyarrow.schema(fields)
    return made


def metadata_of(table: type[Row]) -> dict[bytes, bytes]:
    """What the footer of a file says about it."""
    return {
        VERSION_KEY: str(SCHEMA_VERSION).encode(),
        TABLE_KEY: table_name(table).encode(),
        b"tlstax.version": __version__.encode(),
    }


def table_of(table: type[Row], rows: Iterable[Row]) -> Any:
    """Rows as a sorted Arrow table."""
    return in_order(table, unsorted(table, rows))


def unsorted(table: type[Row], rows: Iterable[Row]) -> Any:
    """Rows as an Arrow table."""
    pyarrow = arrow()
    schema = schema_of(table)
    by_column = list(zip(*rows, strict=True)) or [() for _ in schema]
    arrays = [
        pyarrow.array(values, field.type) for values, field in zip(by_column, schema, strict=True)
    ]
    return pyarrow.Table.from_arrays(arrays, schema=schema)


def in_order(table: type[Row], rows: Any) -> Any:
    """Sorted by host, then by what the row is about, then by time: neighbours are alike."""
    names = [name for name in sort_columns(table) if name in rows.column_names]
    return rows.sort_by([(name, "ascending") for name in names])


def sort_columns(table: type[Row]) -> list[str]:
    """The columns that rows are sorted by."""
    found = keys(table)
    late = [name for name in ("start_wall_ns", "source_id") if name in found]
    first = ["host"] if "host" in table._fields else []
    return [*first, *(name for name in found if name not in (*late, "host")), *late]


def write(
    path: Path,
    table: type[Row],
    batches: Iterable[Any],
    level: int = LIVE_LEVEL,
    noted: Mapping[bytes, bytes] | None = None,
) -> int:
    """Write a file aside and rename it into its place; its size in bytes.

    `level`: of zstd; `noted`: further texts of its footer. Readers see the earlier file, or the
    whole new one. Raises TlstaxError (IO).
    """
    parquet = arrow("pyarrow.parquet")
    encoding = packing.options(table, level)
    rows_count = min(ROWS_OF_A_GROUP, packing.rows_of_a_group(table))
    partial = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{PARTIAL}")
    try:
        make_folder(path.parent)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                with parquet.ParquetWriter(stream, schema_of(table), **encoding) as writer:
                    for part in (part for rows in batches for part in packing.parts(table, rows)):
                        writer.write_table(part, row_group_size=rows_count)
                    writer.add_key_value_metadata({**metadata_of(table), **(noted or {})})
                stream.flush()
                os.fsync(stream.fileno())
                size_bytes = os.fstat(stream.fileno()).st_size
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise output_error(f"to the data set ({path})", error) from error
    return size_bytes


def sync(folder: Path) -> None:
    """Let the names in a folder survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check(path: Path, table: type[Row]) -> Any:
    """The footer of a whole file of this table.

    Raises UnreadableError, or TlstaxError (CAPTURE) for a file of a newer version.
    """
    _require_regular(path)
    found = footer_of(path)
    schema = found.schema.to_arrow_schema()
    version, name = (_text(found.metadata, key) for key in (VERSION_KEY, TABLE_KEY))
    number = whole_number(version)
    if number is None or BY_NAME.get(name) is not table:
        raise UnreadableError(path, f"it is no file of the table {table_name(table)}")
    if number > SCHEMA_VERSION:
        raise TlstaxError(
            f"cannot read {path}",
            f"it has version {version} of the tables, and this tlstax reads up to {SCHEMA_VERSION}",
            "Use the version of tlstax that wrote it",
            ExitCode.CAPTURE,
        )
    count = len(schema)
    known = arrow().schema(list(schema_of(table))[:count])
    if count < len(table._fields) - len(table._field_defaults) or not schema.equals(known):
        raise UnreadableError(path, "its columns are not those of the table")
    return found


def lacking(footer: Any, table: type[Row]) -> tuple[str, ...]:
    """The columns that a file of an earlier version does not have yet."""
    return table._fields[footer.num_columns :] if table._field_defaults else ()


def completed(rows: Any, table: type[Row]) -> Any:
    """Rows of a file, with the columns that it lacks, as their defaults."""
    pyarrow, schema = arrow(), schema_of(table)
    added = [
        pyarrow.repeat(pyarrow.scalar(table._field_defaults[field.name], field.type), rows.num_rows)
        for field in list(schema)[rows.num_columns :]
    ]
    return pyarrow.Table.from_arrays([*rows.columns, *added], schema=schema) if added else rows


def footer_of(path: Path, end: bytes | None = None) -> Any:
    """The footer of a file, or of its end. Raises FileNotFoundError, UnreadableError."""
    pyarrow, parquet = arrow(), arrow("pyarrow.parquet")
    try:
        found = parquet.read_metadata(path if end is None else pyarrow.BufferReader(end))
        found.schema.to_arrow_schema()  # reads more of it
    except FileNotFoundError:
        raise
    except PermissionError as error:
        raise UnreadableError(path, "permission denied") from error
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise UnreadableError(path, "it is no whole Parquet file") from error
    return found


def _require_regular(path: Path) -> None:
    """Opening a named pipe would wait for its writer. Raises FileNotFoundError, UnreadableError."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as error:
        if path.is_symlink():
            raise UnreadableError(path, "it is a link to nothing") from error
        raise
    except OSError as error:
        raise UnreadableError(path, (error.strerror or str(error)).lower()) from error
    if not stat.S_ISREG(mode):
        raise UnreadableError(path, "it is no regular file")


def _text(metadata: Mapping[bytes, bytes] | None, key: bytes) -> str:
    return (metadata or {}).get(key, b"")[:40].decode("ascii", "replace")


def groups(
    path: Path, names: Sequence[str] | None = None, numbers: Iterable[int] | None = None
) -> Iterator[Any]:
    """The row groups of a file, or some of them, with all or some columns, as Arrow tables.

    All are those of the present version.
    One after the other, so that a file of many hosts need not fit into memory. Raises
    UnreadableError.
    """
    pyarrow, parquet = arrow(), arrow("pyarrow.parquet")
    _require_regular(path)
    try:
        with path.open("rb") as stream:
            opened = parquet.ParquetFile(stream, pre_buffer=False)
            table = BY_NAME[_text(opened.metadata.metadata, TABLE_KEY)]
            for number in range(opened.num_row_groups) if numbers is None else numbers:
                # A thread of Arrow's that still begins at the end of the process aborts it.
                rows = opened.read_row_group(number, columns=names, use_threads=False)
                yield completed(rows, table) if names is None else rows
    except FileNotFoundError:
        raise
    except (OSError, KeyError, pyarrow.ArrowException) as error:
        raise UnreadableError(path, "it is damaged") from error


def rows_of(path: Path, table: type[Row], host: str, source_id: int) -> Any:
    """The rows of a recording in a file, in order. Raises UnreadableError."""
    pyarrow, compute = arrow(), arrow("pyarrow.compute")
    mine = [
        rows.filter(compute.equal(rows["source_id"], source_id))
        for rows in groups(path, numbers=_groups_with(path, table, host))
    ]
    return in_order(table, pyarrow.concat_tables([schema_of(table).empty_table(), *mine]))


def _groups_with(path: Path, table: type[Row], host: str) -> list[int]:
    """The row groups that may have rows of a host: files are sorted by host."""
    return [
        number
        for number, (first, last) in enumerate(bounds(path, table))
        if first is None or first <= host <= last
    ]


def bounds(path: Path, table: type[Row]) -> list[tuple[Any, Any]]:
    """The least and the largest value of the first column by row group; None = not known."""
    footer = check(path, table)
    found = []
    for number in range(footer.num_row_groups):
        known = footer.row_group(number).column(0).statistics
        is_known = known is not None and known.has_min_max
        found.append((known.min, known.max) if is_known else (None, None))
    return found


def sources_in(path: Path, table: type[Row]) -> frozenset[int]:
    """The recordings that a file holds rows of; none for tables without a source."""
    if table in SHARED:
        return frozenset()
    return frozenset().union(
        *(rows.column(0).unique().to_pylist() for rows in groups(path, ["source_id"]))
    )
