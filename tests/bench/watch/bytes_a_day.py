# SPDX-License-Identifier: GPL-2.0-only
"""Bytes of a day of `tlstax watch` of one host, by table.

    python tests/bench/watch/bytes_a_day.py [CAPTURE] [--hours N]

The windows of a recording (docs/demo/demo.tlstax, or the one that is named) are replayed as a day
of windows of 10 s, with their stacks, findings and histograms, through the code that writes
rollups; each hour is written once, as it is after its last rollup. Sizes of files are counted
before and after `tlstax fleet compact`.
"""

import argparse
import itertools
import random
import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import HOUR_NS, SECOND_NS, TIERS
from tlstax.analysis.fleet.continuous import raw_hour
from tlstax.analysis.fleet.continuous.explained_hours import ExplainedHours
from tlstax.analysis.fleet.continuous.raw_hour import RawHour
from tlstax.analysis.fleet.continuous.segment import Segment
from tlstax.analysis.fleet.continuous.window_sums import WindowSums
from tlstax.analysis.fleet.rollup.host_facts import host_rows
from tlstax.analysis.fleet.rollup.intervals import Sums
from tlstax.analysis.fleet.rollup.recording import Recording, hash_of
from tlstax.analysis.fleet.store import compaction
from tlstax.analysis.rows import tables as capture_tables
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.tests.watched_rows import by_window

ROOT: Final = Path(__file__).resolve().parents[3]
NOISE: Final = 0.2
WINDOW_NS: Final = 10 * SECOND_NS
GOALS_KB: Final = {60: 500, 10: 2000}
MIDNIGHT_NS: Final = 1_795_305_600 * SECOND_NS
"""Where the day begins."""


def main() -> int:
    """Print a table for each length of a rollup; 1 if a day is larger than it is meant to be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("capture", type=Path, nargs="?", default=ROOT / "docs/demo/demo.tlstax")
    parser.add_argument("--hours", type=int, default=24)
    options = parser.parse_args()
    with CaptureReader.open(options.capture) as reader:
        tables = capture_tables.load(reader)
    is_larger = False
    for every_s, goal_kb in GOALS_KB.items():
        with tempfile.TemporaryDirectory(prefix="tlstax-bytes-") as scratch:
            data = Path(scratch)
            write(data, tables, options.capture, every_s, options.hours)
            before = sizes(data)
            compaction.compact(data, MIDNIGHT_NS + 48 * HOUR_NS)
            after = sizes(data)
        scale = 24 / options.hours / 1000
        print(f"rollups of {every_s} s, KB (1,000 bytes) a day:")
        for name in sorted(before):
            print(f"  {name:24} {before[name] * scale:8.1f} {after[name] * scale:8.1f} compacted")
        whole = sum(after.values()) * scale
        print(f"  {'all':24} {sum(before.values()) * scale:8.1f} {whole:8.1f}, goal {goal_kb}")
        is_larger = is_larger or whole > goal_kb
    return int(is_larger)


def write(data: Path, tables: Tables, capture: Path, every_s: int, hours: int) -> None:
    """The files of so many hours, as they are after the last rollup of each."""
    tiers = tuple(tier for tier, seconds in TIERS.items() if seconds >= every_s)
    recording = Recording("db1", "", 1, 0)
    windows = [summed(rows, recording) for rows in by_window(tables)]
    (host,) = host_rows(tables, recording)[:1]
    assert isinstance(host, columns.Host)
    explained = raw_hour.explain(RawHour(capture, recording))
    hourly = ExplainedHours(data, print, lambda: None)
    replayed = itertools.cycle(windows)
    for hour in range(hours):
        start_ns = MIDNIGHT_NS + hour * HOUR_NS
        of = replace(recording, source_id=hash_of((str(hour),)))
        segment = Segment(of, start_ns, host, tiers)
        for number in range(HOUR_NS // WINDOW_NS):
            segment.add(shifted(next(replayed), start_ns + number * WINDOW_NS))
        segment.write(data)
        hourly._add(
            of,
            {
                table: [_at(row, start_ns, of.source_id) for row in rows]
                for table, rows in explained.items()
            },
        )
        hourly.take()


def summed(rows: list[schema.Row], of: Recording) -> Sums:
    """The sums of a window, as if it had lasted 10 s and begun at 0."""
    return WindowSums().of(
        [
            row._replace(start_ns=0, end_ns=WINDOW_NS) if isinstance(row, schema.Window) else row
            for row in rows
        ],
        of,
    )


def shifted(sums: Sums, start_ns: int) -> Sums:
    """The same at another time, each number varied by a fifth: repeated ones pack too well."""
    return Sums(
        *(
            {
                (start_ns, *key[1:]): {
                    name: round(value * random.uniform(1 - NOISE, 1 + NOISE))
                    for name, value in numbers.items()
                }
                for key, numbers in one.items()
            }
            for one in sums
        )
    )


def _at(row: Any, start_ns: int, source_id: int) -> columns.Row:
    known = {"start_wall_ns": start_ns, "source_id": source_id}
    moved: columns.Row = row._replace(
        **{name: value for name, value in known.items() if name in row._fields}
    )
    return moved


def sizes(data: Path) -> dict[str, int]:
    """Bytes by tier and table."""
    found: dict[str, int] = defaultdict(int)
    for path in data.glob("tier=*/table=*/*/*/*.parquet"):
        tier, table = (part.partition("=")[2] for part in path.relative_to(data).parts[:2])
        found[f"{tier} {table}"] += path.stat().st_size
    return found


if __name__ == "__main__":
    raise SystemExit(main())
