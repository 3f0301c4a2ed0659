# SPDX-License-Identifier: GPL-2.0-only
"""Scales what was measured only part of the time to the whole recording, with its uncertainty.

With a budget the ledger is kept in dense windows only. Each of them represents itself and the time
of the same run that is nearer to it than to any other: the weight of its rows is that time divided
by the length of the window. A fragment shares its time with the window before it. The bounds come
from blocks of windows, because the difference between them shows the uncertainty of the time
between.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tlstax.analysis.quantities import number_text
from tlstax.analysis.rows.tables import Tables
from tlstax.analysis.rows.window_units import without_fragments
from tlstax.analysis.statistics import medians, units
from tlstax.analysis.statistics.medians import Estimate
from tlstax.analysis.statistics.units import LEAST_RANGE, MOST_BLOCKS, Floats
from tlstax.collectors.capture.order_statistics import LEAST_UNITS
from tlstax.collectors.capture.schema import Window
from tlstax.collectors.capture.vocabulary import LEDGER_LEVELS, LEVELS

DETAILED_LEVELS: Final = (*LEDGER_LEVELS, "connection", "handshake")
"""Levels of windows in which all operations of handshakes were recorded."""
HANDSHAKE_LEVELS: Final = (*DETAILED_LEVELS, "signature")
"""Levels of windows in which handshakes were recorded."""


@dataclass(frozen=True)
class Coverage:
    """The windows that measured something, and the time that each of them represents."""

    window_ids: tuple[int, ...]
    """In order of time."""
    measured_ns: int
    """Sum of their lengths."""
    whole_ns: int
    """Sum of all windows."""
    stands_for_ns: Mapping[int, float]
    """Time by window, its own included; no more than `whole_ns` together."""
    weights: Mapping[int, float]
    """The same per time of the window: 1 where it stands for itself alone."""
    has_runs: bool = False
    """They belong to runs of an experiment: of few rounds they are few blocks."""

    @property
    def is_whole(self) -> bool:
        """Nothing is estimated."""
        return self.measured_ns >= self.whole_ns

    @property
    def text(self) -> str:
        """How much was measured; '' if everything was."""
        if self.is_whole:
            return ""
        if not self.measured_ns:
            return "not measured"
        per_second = self.measured_ns / self.whole_ns * 1000
        count = len(self.window_ids)
        windows = "one window" if count == 1 else f"{count:,} windows"
        return f"estimate: measured in {number_text(per_second)} of 1,000 ms, {windows}"


def cover(
    windows: Collection[Window], levels: Collection[str], within: Collection[int] | None = None
) -> Coverage:
    """What the windows of these levels cover of all (of those in `within`)."""
    ordered = sorted(
        (window for window in windows if within is None or window.window_id in within),
        key=lambda window: window.start_ns,
    )
    stands_for: dict[int, float] = {}
    lengths: dict[int, int] = {}
    last: int | None = None
    last_run: int | None = None
    waiting_ns = 0  # time since the last window that measured something
    for window in ordered:
        length_ns = window.end_ns - window.start_ns
        if last is not None and window.run_id != last_run:
            stands_for[last] += waiting_ns
            last, waiting_ns = None, 0
        elif window.run_id != last_run:
            waiting_ns = 0
        last_run = window.run_id
        if window.level not in levels:
            waiting_ns += length_ns
            continue
        before_ns = waiting_ns if last is None else waiting_ns / 2
        if last is not None:
            stands_for[last] += waiting_ns / 2
        last, waiting_ns = window.window_id, 0
        lengths[last] = length_ns
        stands_for[last] = length_ns + before_ns
    if last is not None:
        stands_for[last] += waiting_ns
    has_runs = any(window.run_id is not None for window in ordered)
    if not has_runs:
        stands_for = _with_fragments([one for one in ordered if one.level in levels], stands_for)
    return Coverage(
        tuple(lengths),
        sum(lengths.values()),
        sum(window.end_ns - window.start_ns for window in ordered),
        stands_for,
        {one: stands_for[one] / length if length else 0.0 for one, length in lengths.items()},
        has_runs,
    )


def _with_fragments(
    measured: Sequence[Window], stands_for: Mapping[int, float]
) -> dict[int, float]:
    """The same, where a fragment and the window before it (or the first) share their time.

    Alone it would count for the seconds around it, of which it is no picture.
    """
    whole = {window.window_id for window in without_fragments(measured)}
    groups: list[list[Window]] = []
    for window in measured:
        is_whole = window.window_id in whole
        if not groups or (is_whole and any(one.window_id in whole for one in groups[-1])):
            groups.append([])
        groups[-1].append(window)
    found = {}
    for group in groups:
        time_ns = sum(stands_for[one.window_id] for one in group)
        length_ns = sum(one.end_ns - one.start_ns for one in group)
        weight = max(1.0, time_ns / length_ns) if length_ns else 0.0
        for one in group:
            own = weight * (one.end_ns - one.start_ns)
            found[one.window_id] = own if length_ns else time_ns / len(group)
    return found


def scale(tables: Tables, *, shakes_in: Collection[str] = HANDSHAKE_LEVELS) -> Tables:
    """The tables with times and counts of the ledger scaled to the whole recording.

    `shakes_in`: levels of windows whose handshakes are counted. Who adds up windows with a ledger
    alone passes LEDGER_LEVELS: then these stand for the others' handshakes, too.
    """
    seen = cover(tables.windows, LEDGER_LEVELS)
    if seen.is_whole:
        return tables
    weights = seen.weights
    shakes = cover(tables.windows, shakes_in).weights
    return dataclasses.replace(
        tables,
        ledger=[
            row._replace(time_ns=round(row.time_ns * weights[row.window_id]))
            for row in tables.ledger
            if row.window_id in weights
        ],
        phase_counts=[
            row._replace(ended_count=round(row.ended_count * weight))
            for row in tables.phase_counts
            if (weight := (shakes if row.phase == "handshake" else weights).get(row.window_id))
        ],
    )


def intervals(
    amounts: Mapping[int, Mapping[tuple[str, str], float]], seen: Coverage
) -> dict[tuple[str, str], Estimate]:
    """Each scaled total with its bounds; `amounts` are unscaled, by window and key.

    None at all where fewer than four windows were measured, or nothing is estimated.
    """
    if seen.is_whole or len(seen.window_ids) < LEAST_RANGE:
        return {}
    keys = sorted({key for mine in amounts.values() for key in mine})
    values = np.zeros((len(seen.window_ids), len(keys)))
    for row, one in enumerate(seen.window_ids):
        for key, amount in amounts.get(one, {}).items():
            values[row, keys.index(key)] = amount * seen.weights[one]
    lengths = np.array([seen.stands_for_ns[one] for one in seen.window_ids])
    values, lengths = _blocks(values, lengths, LEAST_UNITS - 1 if seen.has_runs else MOST_BLOCKS)
    weights = units.unit_weights(len(lengths))
    totals = weights @ values / (weights @ lengths)[:, None] * lengths.sum()
    of = units.blocks(len(lengths))
    return {
        key: medians.around(float(totals[0, column]), totals[:, column], of)
        for column, key in enumerate(keys)
    }


def _blocks(values: Floats, lengths: Floats, most: int) -> tuple[Floats, Floats]:
    """Neighbouring windows added up to `most` blocks or fewer, by the time that they stand for."""
    numbers = np.array(units.block_numbers([round(one) for one in lengths], most))
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    return np.add.reduceat(values, starts, axis=0), np.add.reduceat(lengths, starts)


def time_by_level(windows: Sequence[Window]) -> dict[str, int]:
    """Length of the windows of each level, richest first."""
    times = dict.fromkeys(LEVELS, 0)
    for window in windows:
        times[window.level] = times.get(window.level, 0) + window.end_ns - window.start_ns
    return {level: time_ns for level, time_ns in times.items() if time_ns}
