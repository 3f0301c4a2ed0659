# SPDX-License-Identifier: GPL-2.0-only
"""Findings, triggers and stacks of hours that are over, written beside their sums.

The table `interval` of an hour is written before: these rows only explain what is counted there.
"""

import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Final

from tlstax import TlstaxError
from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import DAY_NS, SHARED
from tlstax.analysis.fleet.continuous.interval_records import added_records
from tlstax.analysis.fleet.continuous.raw_hour import Explaining, RawHour, Rows
from tlstax.analysis.fleet.continuous.segment import Segment
from tlstax.analysis.fleet.rollup.recording import Recording
from tlstax.analysis.fleet.store import aside, layout, packing, parquet_files
from tlstax.analysis.fleet.store.layout import Place

KEPT_MOST: Final = 8
"""Hours whose raw windows are awaited, or whose rows could not be written yet."""
_PATIENCE_S: Final = 60.0

Explained = Callable[[Recording, Rows], None]
"""Is called with what the raw windows of an hour explain."""


class ExplainedHours:
    """Of one watch."""

    def __init__(
        self,
        data: Path,
        tell: Callable[[str], None],
        lost: Callable[[], None],
        explained: Explained | None = None,
    ) -> None:
        """`lost` is called for each hour whose findings or stacks are lost, which is told, too."""
        self._data = data
        self._tell = tell
        self._lost = lost
        self._explained = explained
        self._awaited: dict[int, Recording] = {}
        self._fired: dict[int, list[columns.Row]] = {}
        self._running: list[Explaining] = []
        self._unwritten: list[tuple[Recording, Rows]] = []
        self._is_failing = False
        self._wait_s = layout.TURN_S
        self._day = 0
        self._known: dict[type[columns.Row], list[Any]] = {}
        """Arrow arrays: as integers of Python the stacks of a day took several MB."""

    def expect(self, segment: Segment) -> None:
        """A segment is over: its triggers are written now, the rest once it is explained."""
        self._awaited[segment.of.source_id] = segment.of
        while len(self._awaited) > KEPT_MOST:
            oldest = next(iter(self._awaited))
            del self._awaited[oldest]
            self._fired.pop(oldest, None)  # what fired is written by itself
        if segment.fired:
            rows: list[columns.Row] = [
                columns.Finding(
                    *(segment.of.host, segment.hour_ns, segment.of.source_id, one.trigger),
                    *("all", one.share, one.size_ns, one.sentence),
                )
                for one in segment.fired
            ]
            self._fired[segment.of.source_id] = rows
            self._unwritten.append((segment.of, {columns.Finding: rows}))

    def ask(self, capture: Path, source: int) -> None:
        """The raw windows of a source are in a capture."""
        of = self._awaited.pop(source, None)
        if of is None:
            self._not_explained(capture, source, "later hours came first")
            return
        try:
            self._running.append(Explaining(RawHour(capture, of)))
        except OSError as error:
            self._not_explained(capture, source, str(error.strerror))

    def _not_explained(self, capture: Path, source: int, why: str) -> None:
        self._fired.pop(source, None)
        self._lost()
        reason = f" ({why})" if why else ""
        self._tell(f"{capture} could not be explained{reason}: its hour has no stacks")

    def take(self, late: Collection[int] = ()) -> None:
        """Write what is explained by now.

        Not of sources whose sums are `late`: writing these from memory would undo it.
        """
        for one in [one for one in self._running if one.is_over]:
            self._running.remove(one)
            rows = one.rows()
            if rows is None:
                self._not_explained(one.hour.capture, one.hour.of.source_id, "")
            else:
                self._add(one.hour.of, rows)
                if self._explained:
                    self._explained(one.hour.of, rows)
        try:
            for known in [one for one in self._unwritten if one[0].source_id not in late]:
                self._write(*known)
                self._unwritten.remove(known)
        except TlstaxError as error:
            if not self._is_failing:
                self._is_failing = True
                self._tell(f"{error.what}: {error.why}; findings are kept in memory until it works")
            self._give_up(len(self._unwritten) - KEPT_MOST)
        else:
            self._is_failing = False

    def close(self, wait_s: float, later: Collection[int] = ()) -> None:
        """Wait for what is being explained, and write it; `wait_s`: for other writers at most.

        What cannot be written is set aside, as are sources whose sums were: these are `later`.
        """
        self._wait_s = wait_s
        end = time.monotonic() + _PATIENCE_S
        for one in self._running:
            one.wait(max(0.0, end - time.monotonic()))
        self.take(later)
        try:
            for known in self._unwritten[:]:
                self._set_aside(*known)
                self._unwritten.remove(known)
        except TlstaxError as error:
            self._tell(f"{error.what}: {error.why}")
        self._give_up(len(self._unwritten))

    def _give_up(self, count: int) -> None:
        """Lose the oldest of what could not be written."""
        if count <= 0:
            return
        del self._unwritten[:count]
        self._tell(f"findings of {count} hours could not be written and are lost")
        for _ in range(count):
            self._lost()

    def _add(self, of: Recording, rows: Rows) -> None:
        """Together with the triggers of that hour: one file has both."""
        fired = self._fired.pop(of.source_id, [])
        rows = rows | {columns.Finding: [*fired, *rows.get(columns.Finding, [])]}
        self._unwritten = [one for one in self._unwritten if one[0].source_id != of.source_id]
        self._unwritten.append((of, rows))

    def _write(self, of: Recording, rows: Rows) -> None:
        with layout.lock(self._data, exclusive=False, wait_s=self._wait_s):
            if columns.Interval in rows:
                with layout.lock_recording(self._data, of.source_id, self._wait_s):
                    self._add_records([self._data], self._data, of, rows[columns.Interval])
            self._write_tables(self._data, of, rows)

    def _set_aside(self, of: Recording, rows: Rows) -> None:
        """Write it where somebody takes it up later. Raises TlstaxError (IO)."""
        sums = [folder for folder, source in aside.folders(self._data) if source == of.source_id]
        with aside.put(self._data, of.source_id) as to:
            if columns.Interval in rows:
                self._add_records([*sums, self._data], to, of, rows[columns.Interval])
            self._write_tables(to, of, rows)

    def _write_tables(self, to: Path, of: Recording, rows: Rows) -> None:
        """All but the intervals."""
        for table, found in rows.items():
            if not found or table is columns.Interval:
                continue
            start_wall_ns = getattr(found[0], "start_wall_ns")  # noqa: B009 - all tables have it
            made = parquet_files.table_of(table, found)
            if table in SHARED:
                made = self._new(table, made, start_wall_ns // DAY_NS)
            if not made.num_rows:
                continue
            folder = Place("1h", table, layout.hour_of(start_wall_ns)).folder(to)
            path = folder / layout.part_name(of.source_id)
            parquet_files.write(path, table, [made], packing.FINAL_LEVEL)
            if table in SHARED:
                self._known.setdefault(table, []).append(made.column(0).combine_chunks())

    def _add_records(
        self, roots: Sequence[Path], to: Path, of: Recording, found: list[columns.Row]
    ) -> None:
        """Put what samples tell of records into the rows of the hour's intervals."""
        if not added_records(roots, to, of, found):
            self._tell("the hour was compacted: its intervals lack what samples tell of records")

    def _new(self, table: type[columns.Row], made: Any, day: int) -> Any:
        """Without the frames and stacks that an hour of the same day has already."""
        if day != self._day:
            self._day, self._known = day, {}
        pyarrow, compute = parquet_files.arrow(), parquet_files.arrow("pyarrow.compute")
        known = pyarrow.chunked_array(self._known.get(table, []), made.column(0).type)
        return made.filter(compute.invert(compute.is_in(made.column(0), value_set=known)))
