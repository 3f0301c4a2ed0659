# SPDX-License-Identifier: GPL-2.0-only
"""How much of the commands of level `flow` is record crypto: an estimate by their CPU samples.

That level has one phase for all that a command does. Stacks and system calls of samples tell what a
sample belongs to, as in findings (`flow_commands`), which calibration stretches correct where there
are any. The share is that of a whole recording, or of an hour of a watch; its interval is that of
the samples alone.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np

from tlstax.analysis.classify import work
from tlstax.analysis.classify.command_split import EXECUTE
from tlstax.analysis.classify.composition import MINIMUM_SAMPLES, Counts, Stacks
from tlstax.analysis.classify.taxonomy import Taxonomy
from tlstax.analysis.findings import flow_commands
from tlstax.analysis.findings.flow_commands import TDE, Windows
from tlstax.analysis.findings.window_metrics import RECORD_PHASES
from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import HOUR_NS
from tlstax.analysis.fleet.rollup.intervals import TLS_CODE, Key, Numbers
from tlstax.analysis.fleet.rollup.recording import Recording
from tlstax.analysis.rows import ledger, window_units
from tlstax.analysis.rows.tables import Group, Tables
from tlstax.analysis.statistics.shares import share
from tlstax.collectors.capture.schema import Window

LEAST_SAMPLES: Final = MINIMUM_SAMPLES
"""Samples of commands in a recording, or in an hour of a watch; with fewer nothing is estimated."""
_OF_COMMANDS: Final = (*RECORD_PHASES, EXECUTE, TDE)


class Split(NamedTuple):
    """What the samples say of the commands of a recording."""

    share: float
    low: float
    high: float
    """Of the CPU time of commands."""
    windows: Mapping[int, Window]
    """Those of level `flow`."""
    spent_ns: Mapping[int, int]
    """CPU time of commands, by window."""
    samples: Mapping[int, tuple[int, int]]
    """Samples in record crypto, and all of commands, by window."""


def split(
    tables: Tables, counts: Mapping[int, Counts], resolved: Stacks, taxonomy: Taxonomy
) -> Split | None:
    """The split of a recording; None without level `flow`, or with too few samples."""
    at_flow = {window.window_id: window for window in tables.windows if window.level == "flow"}
    if not at_flow:
        return None
    works = work.count_work(
        tables.samples, resolved, tables.frames, tables.meta.get("cpu_flags", "")
    )
    before = ledger.by_window(tables.ledger)
    windows = Windows(before, counts, works)
    whole = Group("all", "", "", "", (), frozenset(at_flow))
    windows = flow_commands.split(windows, whole, tables, resolved, taxonomy)
    spent_ns = {at: before.get(at, {}).get((EXECUTE, "on_cpu"), 0) for at in at_flow}
    samples = {at: _hits(windows.counts.get(at, {})) for at in at_flow}
    whole_ns, (hits, total) = sum(spent_ns.values()), _added(samples.values())
    if total < LEAST_SAMPLES or not whole_ns:
        return None
    found = _interval(whole, at_flow, samples)
    corrected = _crypto_ns(windows, at_flow) / whole_ns
    scale = corrected * total / hits if hits else 1.0
    low, high = (scale * end if end is not None else corrected for end in found)
    return Split(corrected, min(low, corrected), max(high, corrected), at_flow, spent_ns, samples)


def _hits(counts: Counts) -> tuple[int, int]:
    """Samples in record crypto, and all of commands."""
    mine = {key: count for key, count in counts.items() if key[0] in _OF_COMMANDS}
    crypto = (
        count
        for (phase, name), count in mine.items()
        if phase in RECORD_PHASES and name in TLS_CODE
    )
    return sum(crypto), sum(mine.values())


def _added(samples: Iterable[tuple[int, int]]) -> tuple[int, int]:
    hits, totals = zip(*samples, strict=True)
    return sum(hits), sum(totals)


def _interval(
    part: Group, at_flow: Mapping[int, Window], samples: Mapping[int, tuple[int, int]]
) -> tuple[float | None, float | None]:
    """The bounds of the share of samples, where samples of one time resemble each other."""
    of = window_units.of_group(part, at_flow.values())
    hits, totals = (np.zeros(of.units.count) for _ in range(2))
    for at, (mine, whole) in samples.items():
        if at in of.unit_of:
            hits[of.unit_of[at]] += mine
            totals[of.unit_of[at]] += whole
    found = share(hits, totals, of.units)
    return found.low, found.high


def _crypto_ns(windows: Windows, at_flow: Mapping[int, Window]) -> float:
    """CPU time of reading and answering in TLS code, with what stretches correct."""
    spent: dict[str, float] = defaultdict(float)
    hits: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for at in at_flow:
        for phase in RECORD_PHASES:
            spent[phase] += windows.sums.get(at, {}).get((phase, "on_cpu"), 0)
        for (phase, category), count in windows.counts.get(at, {}).items():
            hits[phase][0] += count if category in TLS_CODE else 0
            hits[phase][1] += count
    return sum(
        spent[phase] * hits[phase][0] / hits[phase][1] for phase in RECORD_PHASES if hits[phase][1]
    )


def add_to(intervals: dict[Key, Numbers], found: Split, of: Recording, length_ns: int) -> None:
    """Put the estimate into the sums of intervals."""
    for at, window in found.windows.items():
        mine = intervals[of.start_of(window, length_ns),]
        mine["record_observed_ns"] += window.end_ns - window.start_ns
        mine["record_crypto_ns"] += round(found.share * found.spent_ns[at])


def rows(found: Split, of: Recording) -> list[columns.Row]:
    """What stands behind the estimate, by hour."""
    by_hour: dict[int, list[int]] = defaultdict(list)
    for at, window in found.windows.items():
        by_hour[of.start_of(window, HOUR_NS)].append(at)
    made: list[columns.Row] = []
    for hour, ids in sorted(by_hour.items()):
        spent_ns = sum(found.spent_ns[at] for at in ids)
        hits, total = _added(found.samples[at] for at in ids)
        crypto_ns, low_ns, high_ns = (
            round(part * spent_ns) for part in (found.share, found.low, found.high)
        )
        made.append(
            columns.RecordSplit(
                of.host,
                hour,
                of.source_id,
                spent_ns,
                crypto_ns,
                low_ns,
                high_ns,
                total,
                hits,
            )
        )
    return made
