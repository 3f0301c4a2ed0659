# SPDX-License-Identifier: GPL-2.0-only
"""The rollups of one server in one hour: its files are written anew with each rollup.

What is finished is kept as Arrow tables, so that a rollup costs about the same at any minute.
If the hour was compacted meanwhile, or its files were removed, a segment ends: what it wrote is not
its own any more, and what follows has another source.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import HOUR_NS, SECOND_NS, TIERS, Row
from tlstax.analysis.fleet.continuous.triggers import Fired
from tlstax.analysis.fleet.rollup import intervals
from tlstax.analysis.fleet.rollup.intervals import Sums
from tlstax.analysis.fleet.rollup.recording import Recording
from tlstax.analysis.fleet.rollup.steps import in_steps
from tlstax.analysis.fleet.store import aside, layout, parquet_files
from tlstax.analysis.fleet.store.layout import COMPACTED, Place
from tlstax.collectors.capture.schema import table_name

_SUMMED: Final[tuple[type[Row], ...]] = (
    columns.Ledger,
    columns.Handshake,
    columns.PhaseLatency,
    columns.Loss,
    columns.ClientNet,
    columns.Interval,  # last: without it nothing is counted
)


class Segment:
    """One recording in one hour."""

    def __init__(
        self, of: Recording, hour_ns: int, host: columns.Host, tiers: Sequence[str]
    ) -> None:
        self.of = of
        self.hour_ns = hour_ns
        self.host = host._replace(start_wall_ns=hour_ns, source_id=of.source_id)
        self.fired: list[Fired] = []
        """Triggers that fired in it."""
        self._tiers = tiers
        self._open: dict[str, Sums] = {tier: intervals.no_sums() for tier in tiers}
        self._closed: dict[tuple[str, type[Row]], Any] = {}
        self._unwritten = {tier: intervals.no_sums() for tier in tiers}
        self._written_host: columns.Host | None = None
        self._known: dict[Place, tuple[int, int] | None] = {}

    def add(self, sums: Sums) -> None:
        """Add the sums of a window that began in this hour."""
        self.add_by_tier(dict.fromkeys(self._tiers, sums))

    def add_by_tier(self, sums: Mapping[str, Sums]) -> None:
        """Add sums, which may be others in each tier."""
        for tier, mine in sums.items():
            intervals.add(self._unwritten[tier], mine)
            intervals.add(self._open[tier], mine, TIERS[tier] * SECOND_NS)

    @property
    def unwritten(self) -> Mapping[str, Sums]:
        """What the files lack, by tier: of a write that failed some have more than others."""
        return self._unwritten

    @property
    def has_unwritten(self) -> bool:
        """Whether there is any of that."""
        return any(table for sums in self._unwritten.values() for table in sums)

    def write(self, data: Path, wait_s: float = layout.TURN_S) -> bool:
        """Write all files; False if they are not this segment's any more.

        `wait_s`: for others at most. Raises TlstaxError (IO): nothing is lost then, another attempt
        may follow.
        """
        with (
            layout.lock(data, exclusive=False, wait_s=wait_s),
            layout.lock_recording(data, self.of.source_id, wait_s),
        ):
            if not self._is_ours(data):
                return False
            self._settle()
            for place, rows in self._files():
                path = place.folder(data) / layout.part_name(self.of.source_id)
                parquet_files.write(path, place.table, [rows])
                self._known[place] = _identity(place, data)
                if place.table is not columns.Host:
                    getattr(self._unwritten[place.tier], table_name(place.table)).clear()
        self._written_host = self.host
        parquet_files.arrow().default_memory_pool().release_unused()  # of sorting and packing
        return True

    def set_aside(self, data: Path) -> None:
        """Write the files that lack something where somebody takes them up later: whole ones.

        They keep their source, so that they replace what was written of it. Raises TlstaxError
        (IO).
        """
        self._settle()
        with aside.put(data, self.of.source_id) as to:
            for place, rows in self._files():
                path = place.folder(to) / layout.part_name(self.of.source_id)
                parquet_files.write(path, place.table, [rows])

    def _is_ours(self, data: Path) -> bool:
        """Whether no file was taken away, and none was merged with others."""
        name = layout.part_name(self.of.source_id)
        return all(
            (place.folder(data) / name).exists() and _identity(place, data) == known
            for place, known in self._known.items()
        )

    def _settle(self) -> None:
        """Keep the rows of intervals that have ended as one Arrow table for each file.

        A table for each minute of the hour took twice the memory.
        """
        for tier, sums in self._open.items():
            last = max((int(key[0]) for key in sums.interval), default=0)
            ended = intervals.take_before(sums, last)
            for table, rows in self._rows(tier, ended).items():
                if rows:
                    self._closed[tier, table] = self._with_closed(tier, table, rows)

    def _with_closed(self, tier: str, table: type[Row], rows: list[Row]) -> Any:
        """The rows of intervals that have ended, and these."""
        made = parquet_files.unsorted(table, rows)
        closed = self._closed.get((tier, table))
        parts = [made] if closed is None else [closed, made]
        return parquet_files.arrow().concat_tables(parts).combine_chunks()

    def _rows(self, tier: str, sums: Sums) -> Mapping[type[Row], list[Row]]:
        shown = intervals.without_roles(sums) if tier == "10s" else sums
        return intervals.rows(shown, self.of, is_longest=tier == "1h")

    def _files(self) -> list[tuple[Place, Any]]:
        """The files that change, in the order in which they are written."""
        made = []
        if self.host != self._written_host:
            host = parquet_files.table_of(columns.Host, [self.host])
            made.append((Place("1h", columns.Host, self.hour_ns), host))
        for tier in self._tiers:
            now = self._rows(tier, self._open[tier])
            for table in _SUMMED:
                if getattr(self._unwritten[tier], table_name(table)):
                    whole = self._with_closed(tier, table, now[table])
                    whole = in_steps(tier, table, parquet_files.in_order(table, whole))
                    made.append((Place(tier, table, self.hour_ns), whole))
        return sorted(made, key=lambda one: one[0].table is columns.Interval)


def hour_of(sums: Sums) -> int:
    """The hour of a window's sums."""
    (start, *_) = next(iter(sums.interval))
    return int(start) // HOUR_NS * HOUR_NS


def _identity(place: Place, data: Path) -> tuple[int, int] | None:
    """Of the compacted file: another one may hold the rows of this segment."""
    try:
        found = (place.folder(data) / COMPACTED).stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns
