# SPDX-License-Identifier: GPL-2.0-only
"""From the windows of a watch to files of the data set, one rollup after another.

A segment is one server in one hour on one clock: when the hour, the server or the wall clock
changes, another begins, under another source. So nothing that was written is ever counted twice,
whatever ends or is set. What cannot be written is kept, for as long as KEPT_SEGMENTS allow.
"""

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tlstax import TlstaxError
from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import DAY_NS, HOUR_NS, SECOND_NS, TIERS
from tlstax.analysis.fleet.continuous import former_hosts
from tlstax.analysis.fleet.continuous.counters import Counters
from tlstax.analysis.fleet.continuous.explained_hours import Explained, ExplainedHours
from tlstax.analysis.fleet.continuous.rotation import newest_before, rotate
from tlstax.analysis.fleet.continuous.segment import Segment, hour_of
from tlstax.analysis.fleet.continuous.triggers import Triggers
from tlstax.analysis.fleet.continuous.window_sums import WindowSums
from tlstax.analysis.fleet.rollup.host_facts import host_rows
from tlstax.analysis.fleet.rollup.intervals import Sums
from tlstax.analysis.fleet.rollup.recording import Recording, hash_of
from tlstax.analysis.fleet.store import aside, layout
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture import schema

KEPT_SEGMENTS: Final = 3
"""Segments that ended and could not be written yet; of more the oldest is lost."""
CLOCK_STEP_NS: Final = SECOND_NS
"""A wall clock that moved more than this against the monotonic one was set."""
DOUBTED_NS: Final = DAY_NS
"""For so long nothing is removed after it was set by more than an hour: maybe by mistake."""
_LAST_WAIT_S: Final = 5.0
"""At its end a watch waits for other writers so long: what it cannot write then is set aside."""

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Destination:
    """Where rollups go."""

    data: Path
    host: str
    cluster: str
    every_s: int
    keep_s: float

    @property
    def tiers(self) -> tuple[str, ...]:
        """Those whose intervals are not shorter than a rollup."""
        return tuple(tier for tier, seconds in TIERS.items() if seconds >= self.every_s)


class Rollups:
    """Takes the rows of a watch."""

    def __init__(
        self,
        to: Destination,
        tell: Tell,
        counters: Counters,
        wall_offset_ns: Callable[[], int] = lambda: time.time_ns() - time.monotonic_ns(),
        explained: Explained | None = None,
        remove_raw: former_hosts.RemoveRaw = lambda host, end_wall_ns: True,
    ) -> None:
        """`remove_raw` is called for hosts that are not watched any more.

        Raises TlstaxError (USAGE, IO) if the folder cannot be used.
        """
        self._to = to
        self._tell = tell
        self._counters = counters
        self._wall_offset_ns = wall_offset_ns
        self._claim = layout.claim(to.data, to.host)
        self._run = (str(time.time_ns()), str(os.getpid()))
        self._windows = WindowSums()
        self._facts = Tables()
        self._segment: Segment | None = None
        self._segments_count = 0
        self._late: list[Segment] = []
        self._start_cpu_ns = 0
        self._written = 0  # number of the last rollup
        self._rotated_hour = 0
        self._has_looked_back = False
        self._remove_raw = remove_raw
        self._former_from_ns = 0  # on the monotonic clock: then former hosts are removed
        self._offset_ns: int | None = None  # of the wall clock, at the last window
        self._clock_set_ns = -DOUBTED_NS - 1  # on the monotonic clock
        self._is_failing = False
        self._triggers = Triggers()
        self._explained = ExplainedHours(to.data, tell, counters.findings_lost, explained)

    # ---- as Sink ----

    def begin(self, facts: Sequence[schema.Row]) -> None:
        """A recorder was attached."""
        meta = {row.key: row.value for row in facts if isinstance(row, schema.Meta)}
        targets = [row for row in facts if isinstance(row, schema.Target)]
        if targets != self._facts.targets:
            self._triggers = Triggers()
        self._facts = Tables(meta=meta, targets=targets)
        self._windows = WindowSums()
        self._start_cpu_ns += int(meta.get("start_cpu_ns", "0"))
        self._counters.attached(self._facts)

    @property
    def source(self) -> int:
        """The source that the last window was filed under; 0: there was none."""
        return self._segment.of.source_id if self._segment else 0

    def window(self, rows: Sequence[schema.Row]) -> bool:
        """A window ended: add it, and write if a rollup is due; whether a trigger fired."""
        (window,) = (row for row in rows if isinstance(row, schema.Window))
        offset_ns = self._wall_offset_ns()
        self._follow_clock(offset_ns, window.end_ns)
        of = self._segment.of if self._segment else self._recording(offset_ns)
        sums = self._windows.of(rows, of)
        for numbers in sums.interval.values():
            numbers["engine_cpu_ns"] += self._start_cpu_ns
        self._start_cpu_ns = 0
        self._counters.add(sums, rows)
        if self._segment and self._segment.hour_ns != hour_of(sums):
            self._end_segment()
        if self._segment is None:
            self._segment = self._new_segment(sums, offset_ns, window)
        self._segment.add(sums)
        fired = self._triggers.add(sums)
        for one in fired:
            self._tell(f"{one.trigger}: {one.sentence}")
            self._counters.triggered(one.trigger)
            self._segment.fired.append(one)
        now = (window.end_ns + offset_ns) // (self._to.every_s * SECOND_NS)
        if now != self._written:
            self._written = now
            self._write()
            self._look_back(window.end_ns, offset_ns)
            if window.end_ns - self._clock_set_ns > DOUBTED_NS:
                self._rotate(window.end_ns, offset_ns)
        self._take_explained()
        return bool(fired)

    def recorded(self, capture: Path, source: int) -> None:
        """The raw windows of a source are in a capture: find out what they explain."""
        self._explained.ask(capture, source)

    def detached(self) -> None:
        """The recorder was detached."""
        self._counters.detached()
        self._end_segment()
        self._write()
        self._take_explained()

    def settle(self) -> None:
        """Nothing is recorded: write what could not be written, or was found out since."""
        if self._late:
            self._write()
        self._take_explained()

    def close(self) -> None:
        """Write what is left."""
        self._end_segment()
        self._write(_LAST_WAIT_S)
        self._explained.close(_LAST_WAIT_S, self._set_aside())
        if self._late:
            self._tell(f"rollups of {len(self._late)} hours could not be written and are lost")
        os.close(self._claim)

    def _take_explained(self) -> None:
        self._explained.take({segment.of.source_id for segment in self._late})

    # ---- segments ----

    def _recording(self, offset_ns: int) -> Recording:
        number = str(self._segments_count)
        source = hash_of((self._to.host, *self._run, number))
        return Recording(self._to.host, self._to.cluster, source, offset_ns)

    def _new_segment(self, sums: Sums, offset_ns: int, window: schema.Window) -> Segment:
        self._segments_count += 1
        of = self._recording(offset_ns)
        hour = hour_of(sums)
        self._facts.windows = [window]
        (host,) = host_rows(self._facts, of)
        assert isinstance(host, columns.Host)
        return Segment(of, hour, host, self._to.tiers)

    def _end_segment(self) -> None:
        if self._segment is None:
            return
        self._explained.expect(self._segment)
        if self._segment.has_unwritten:
            self._late.append(self._segment)
        self._segment = None

    def _follow_clock(self, offset_ns: int, now_ns: int) -> None:
        if self._offset_ns is not None and abs(offset_ns - self._offset_ns) > HOUR_NS:
            self._clock_set_ns = now_ns
        self._offset_ns = offset_ns
        if self._segment is None:
            return
        moved_ns = offset_ns - self._segment.of.wall_offset_ns
        if abs(moved_ns) > CLOCK_STEP_NS:
            way = "forward" if moved_ns > 0 else "back"
            self._tell(
                f"the wall clock was set {way} by {abs(moved_ns) / 1e9:.1f} s: rollups go on under "
                "the new time"
            )
            self._end_segment()

    # ---- writing ----

    def _write(self, wait_s: float = layout.TURN_S) -> None:
        """Write what is not written yet; a failure is told once, and tried again."""
        try:
            while self._late:
                if self._late[0].write(self._to.data, wait_s):
                    self._late.pop(0)
                else:
                    self._late[0] = self._successor(self._late[0])
            mine = self._segment
            if mine and mine.has_unwritten and not mine.write(self._to.data, wait_s):
                self._explained.expect(mine)
                self._segment = self._successor(mine)
                self._segment.write(self._to.data, wait_s)
        except TlstaxError as error:
            self._failed(error)
            return
        self._counters.rollup_written()
        with contextlib.suppress(TlstaxError):  # the next rollup tries it again
            aside.take_up(self._to.data, layout.TURN_S)
        if self._is_failing:
            self._is_failing = False
            self._tell("rollups are written again")

    def _set_aside(self) -> set[int]:
        """At the end: leave what could not be written to whoever comes next; the sources of it."""
        kept = set()
        try:
            for segment in self._late[:]:
                segment.set_aside(self._to.data)
                kept.add(segment.of.source_id)
                self._late.remove(segment)
        except TlstaxError as error:
            self._tell(f"{error.what}: {error.why}")
        if kept:
            self._tell(
                f"rollups of {len(kept)} hours were set aside: the next `tlstax watch` or `tlstax "
                "fleet compact` adds them to the data set"
            )
        return kept

    def _successor(self, segment: Segment) -> Segment:
        """For a segment whose files are no longer its own: a new one with what they lack.

        It has to take the place of that one before it is written: if it can be written in part
        only, it knows that, and another one would write the same rows again.
        """
        self._segments_count += 1
        of = self._recording(segment.of.wall_offset_ns)
        fresh = Segment(of, segment.hour_ns, segment.host, self._to.tiers)
        fresh.add_by_tier(segment.unwritten)
        return fresh

    def _failed(self, error: TlstaxError) -> None:
        self._counters.rollup_failed()
        if not self._is_failing:
            self._is_failing = True
            self._tell(f"{error.what}: {error.why}; rollups are kept in memory until that works")
        while len(self._late) > KEPT_SEGMENTS:
            lost = self._late.pop(0)
            self._counters.rollup_lost()
            hour = time.strftime("%Y-%m-%dT%H:00Z", time.gmtime(lost.hour_ns // SECOND_NS))
            self._tell(f"rollups of the hour {hour} could not be written and are lost")

    def _look_back(self, now_ns: int, offset_ns: int) -> None:
        """Before the first removal: a clock that is wrong at the start would remove all there is.

        Hours of the last day do not count: an earlier start under the same clock may have made
        them. A host without older hours cannot tell: former hosts are removed after a day then.
        """
        if self._has_looked_back:
            return
        self._has_looked_back = True
        self._former_from_ns = now_ns + DOUBTED_NS
        wall_ns = now_ns + offset_ns
        try:
            newest_ns = newest_before(self._to.data, self._to.host, wall_ns - DAY_NS)
        except TlstaxError:
            self._clock_set_ns = now_ns
            self._tell("what was written before cannot be read: nothing is removed for a day")
            return
        if newest_ns is not None:
            self._former_from_ns = now_ns
        most_ns = max(int(self._to.keep_s * SECOND_NS), 2 * DAY_NS)
        if newest_ns is not None and newest_ns < wall_ns - most_ns:
            self._clock_set_ns = now_ns
            self._tell(
                "all that was written before is older than --keep: in case the clock is wrong, "
                "nothing is removed for a day"
            )

    def _rotate(self, now_ns: int, offset_ns: int) -> None:
        now_wall_ns = now_ns + offset_ns
        hour = now_wall_ns // HOUR_NS
        if hour == self._rotated_hour:
            return
        self._rotated_hour = hour
        end_wall_ns = now_wall_ns - int(self._to.keep_s * SECOND_NS)
        try:
            rotate(self._to.data, self._to.host, end_wall_ns)
            if now_ns >= self._former_from_ns:
                for host in former_hosts.remove(self._to.data, end_wall_ns, self._remove_raw):
                    self._tell(f"removed {host}: not watched any more, and older than --keep")
        except TlstaxError as error:
            self._tell(f"hours older than --keep could not be removed: {error.why}")
