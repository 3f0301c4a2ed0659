# SPDX-License-Identifier: GPL-2.0-only
"""How rows are packed in a file: encodings, compression, and what has row groups of its own."""

import importlib
from collections.abc import Iterator
from typing import Any, Final

from tlstax.analysis.fleet.columns import WALL, Interval, Ledger, PhaseLatency, Row, columns

ROWS_OF_A_GROUP: Final = 1 << 17
_OF_FEW_HOSTS: Final[dict[type[Row], int]] = {Ledger: 1 << 15, PhaseLatency: 1 << 15}
"""Questions about one host read these, and engines a whole row group: 1 % more bytes."""
LIVE_LEVEL: Final = 6
"""Of zstd, in files that are written often."""
FINAL_LEVEL: Final = 19
"""In small files that are written once: 3 % smaller, for some ms a file."""
_MERGED_LEVEL: Final = 15
"""In larger ones without lists: 2 to 3 % smaller, for 1 us a row."""
_LIST_PAGE_BYTES: Final = 8 << 20
"""Counts of many rows in one page: pages of 1 MB are 2 % larger."""
_MANY_ROWS: Final = 1 << 12
"""Fewer rows have one row group: each one has its own names of hosts."""
_NUMBERS: Final[dict[type[Row], str]] = {Interval: "DELTA_BINARY_PACKED"}
"""Other encodings of numbers than byte by byte."""
_CHOSEN_BY: Final[dict[type[Row], tuple[str, ...]]] = {PhaseLatency: ("phase",)}
"""What row groups are chosen by, besides host and time."""


def options(table: type[Row], level: int = LIVE_LEVEL) -> dict[str, Any]:
    """How files are encoded: names as dictionaries, numbers byte by byte, which zstd packs best.

    On replayed hosts that is 15 % less than packed differences for the ledger, 25 % for latencies.
    Intervals are packed differences: 4 % more bytes, but DuckDB reads them in half the CPU time,
    and every question reads them all.
    Only the columns that questions choose files by have statistics: those of all were 40 % of the
    file of one host. Pages of version 2 do not compress where each list begins, which was 9 % of
    the latencies: tables with lists have pages of version 1.
    """
    kinds = {column.name: column.kind for column in columns(table)}
    texts = [name for name, kind in kinds.items() if kind == "str"]
    known = ["source_id", "start_wall_ns", "syscall", "scale", "first_bucket"]
    named = [*texts, *(name for name in known if name in kinds)]
    lists = [f"{name}.list.element" for name, kind in kinds.items() if kind == "list"]
    split = [name for name, kind in kinds.items() if kind == "int" and name not in named]
    return {
        "compression": "zstd",
        "compression_level": level,
        "use_dictionary": named,
        "column_encoding": dict.fromkeys(
            [*split, *lists], _NUMBERS.get(table, "BYTE_STREAM_SPLIT")
        ),
        "store_schema": False,
        "version": "2.6",
        **({"data_page_size": _LIST_PAGE_BYTES} if lists else {}),
        "data_page_version": "1.0" if lists else "2.0",
        "write_statistics": [table._fields[0], "start_wall_ns", *_CHOSEN_BY.get(table, ())],
    }


def merged_level(table: type[Row], rows_count: int) -> int:
    """The level of zstd for a file that compaction writes."""
    if rows_count <= ROWS_OF_A_GROUP:
        return FINAL_LEVEL
    has_list = any(column.kind == "list" for column in columns(table))
    return LIVE_LEVEL if has_list else _MERGED_LEVEL


def rows_of_a_group(table: type[Row]) -> int:
    """Rows of a row group at most."""
    return _OF_FEW_HOSTS.get(table, ROWS_OF_A_GROUP)


def parts(table: type[Row], rows: Any) -> Iterator[Any]:
    """The rows that have row groups of their own, in order.

    Engines read the lists of all rows of a row group, whatever phase is asked for. Whole handshakes
    are asked for most and are a fifteenth of the rows, so they stand apart from other phases.
    """
    if table is not PhaseLatency or rows.num_rows < _MANY_ROWS:
        yield rows
        return
    compute = importlib.import_module("pyarrow.compute")
    is_whole = compute.equal(rows["phase"], WALL)
    for part in (rows.filter(is_whole), rows.filter(compute.invert(is_whole))):
        if part.num_rows:
            yield part
