# SPDX-License-Identifier: GPL-2.0-only
"""Bytes of a day of `tlstax watch` of one host, by table.

    python tests/bench/watch_bytes.py [CAPTURE] [--hours N]

The windows of a recording (docs/demo/demo.tlstax, or the one that is named) are replayed as a day
of windows of 10 s, with their stacks, findings and histograms, through the code that writes
rollups. Sizes of files are counted before and after `tlstax fleet compact`.
"""

import argparse
import itertools
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tlstax.analysis.fleet.columns import HOUR_NS, SECOND_NS
from tlstax.analysis.fleet.continuous import raw_hour
from tlstax.analysis.fleet.continuous.counters import Counters
from tlstax.analysis.fleet.continuous.raw_hour import RawHour
from tlstax.analysis.fleet.continuous.rollups import Destination, Rollups
from tlstax.analysis.fleet.store import compaction
from tlstax.analysis.rows import tables as capture_tables
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.tests.watched_rows import by_window, facts

ROOT: Final = Path(__file__).resolve().parents[2]
WINDOW_NS: Final = 10 * SECOND_NS
GOALS_KB: Final = {10: 2000, 60: 500}
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
    """A day of a watch."""
    at_ns = [MIDNIGHT_NS]
    to = Destination(data, "db1", "", every_s, 30 * 24 * 3600.0)
    rollups = Rollups(to, lambda text: None, Counters(), lambda: 0)
    rollups.begin(facts(tables))
    explained = None
    for rows in itertools.islice(shifted(tables, at_ns), hours * HOUR_NS // WINDOW_NS):
        before = rollups.source
        segment = rollups._segment
        rollups.window(rows)
        if segment and rollups.source != before:
            explained = raw_hour.explain(RawHour(capture, segment.of))
            hour = {
                table: [row._replace(start_wall_ns=segment.hour_ns) for row in mine]
                for table, mine in explained.items()
            }
            rollups._explained._add(segment.of, hour)
    rollups.close()


def shifted(tables: Tables, at_ns: list[int]) -> Iterator[list[schema.Row]]:
    """The windows again and again, each 10 s after the one before."""
    for rows in itertools.cycle(by_window(tables)):
        start_ns = at_ns[0]
        at_ns[0] += WINDOW_NS
        yield [
            row._replace(start_ns=start_ns, end_ns=start_ns + WINDOW_NS)
            if isinstance(row, schema.Window)
            else row
            for row in rows
        ]


def sizes(data: Path) -> dict[str, int]:
    """Bytes by tier and table."""
    found: dict[str, int] = defaultdict(int)
    for path in data.glob("tier=*/table=*/*/*/*.parquet"):
        tier, table = (part.partition("=")[2] for part in path.relative_to(data).parts[:2])
        found[f"{tier} {table}"] += path.stat().st_size
    return found


if __name__ == "__main__":
    raise SystemExit(main())
