# SPDX-License-Identifier: GPL-2.0-only
"""What samples tell of the records of an hour that is over, put into its intervals.

Rollups are written while functions have no names yet, by which samples are told apart.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import SECOND_NS, TIERS, Row
from tlstax.analysis.fleet.rollup.recording import Recording
from tlstax.analysis.fleet.store import layout, packing, parquet_files
from tlstax.analysis.fleet.store.layout import Place
from tlstax.analysis.fleet.store.parquet_files import UnreadableError

_COLUMNS: Final = ("record_crypto_ns", "record_observed_ns")


def added_records(roots: Sequence[Path], into: Path, of: Recording, found: Sequence[Row]) -> bool:
    """Write the intervals of a recording anew, with these columns of the rows of the shortest tier.

    They are read from the first of the roots that has them. False: there are no files of its own
    any more. Raises TlstaxError (IO).
    """
    has_any = False
    for tier, seconds in TIERS.items():
        by_hour: dict[int, dict[int, dict[str, int]]] = defaultdict(dict)
        for row in found:
            start_ns = getattr(row, "start_wall_ns")  # noqa: B009 - all tables have it
            start_ns -= start_ns % (seconds * SECOND_NS)
            mine = by_hour[layout.hour_of(start_ns)].setdefault(
                start_ns, dict.fromkeys(_COLUMNS, 0)
            )
            for name in _COLUMNS:
                mine[name] += getattr(row, name)
        for hour, numbers in by_hour.items():
            place = Place(tier, columns.Interval, hour)
            target = place.folder(into) / layout.part_name(of.source_id)
            for root in roots:
                path = place.folder(root) / layout.part_name(of.source_id)
                with suppress(FileNotFoundError, UnreadableError):
                    _write(path, target, of, numbers)
                    has_any = True
                    break
    return has_any


def _write(path: Path, to: Path, of: Recording, numbers: Mapping[int, Mapping[str, int]]) -> None:
    rows = parquet_files.rows_of(path, columns.Interval, of.host, of.source_id)
    starts = rows["start_wall_ns"].to_pylist()
    for name in _COLUMNS:
        values = [numbers[at][name] if at in numbers else 0 for at in starts]
        at_column = rows.column_names.index(name)
        made: Any = parquet_files.arrow().array(values, rows.schema.field(name).type)
        rows = rows.set_column(at_column, rows.schema.field(name), made)
    parquet_files.write(to, columns.Interval, [rows], packing.FINAL_LEVEL)
