# SPDX-License-Identifier: GPL-2.0-only
"""All rows of the data set that one capture makes."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from tlstax.analysis.classify.composition import Counts, Stacks, count_samples
from tlstax.analysis.classify.taxonomy import Taxonomy, builtin
from tlstax.analysis.findings.gathered import findings_of
from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import HOUR_NS, SECOND_NS, TIERS, Row
from tlstax.analysis.fleet.rollup import intervals, record_split, stacks
from tlstax.analysis.fleet.rollup.host_facts import host_rows
from tlstax.analysis.fleet.rollup.record_split import Split
from tlstax.analysis.fleet.rollup.recording import Recording, damaged, identify
from tlstax.analysis.rows import tables as capture_tables
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.reader import CaptureReader

TierRows = dict[str, dict[type[Row], list[Row]]]
"""Rows by tier and table."""


class RolledUp(NamedTuple):
    """A capture as rows of the data set."""

    recording: Recording
    rows: TierRows


def read(path: Path, host: str = "", cluster: str = "") -> RolledUp:
    """The rows of a capture. Raises TlstaxError (CAPTURE, USAGE), see `recording.identify`."""
    with CaptureReader.open(path) as reader:
        return roll_up(capture_tables.load(reader), str(path), host, cluster)


def roll_up(tables: Tables, path: str, host: str = "", cluster: str = "") -> RolledUp:
    """The same of a capture that was read."""
    of = identify(tables, path, host, cluster)
    tables = _with_names(tables)
    counted = _count(tables)
    sums = intervals.sum_up(tables, of, counted.samples)
    found = _record_split(tables, counted)
    if found is not None:
        record_split.add_to(sums.interval, found, of, min(TIERS.values()) * SECOND_NS)
    made: TierRows = {}
    for tier, seconds in TIERS.items():
        sums = intervals.merged(sums, seconds * SECOND_NS)
        shown = intervals.without_roles(sums) if tier == "10s" else sums
        made[tier] = intervals.rows(shown, of, is_longest=tier == "1h")
    made["1h"][columns.Host] = host_rows(tables, of)
    made["1h"].update(_causes(tables, of, counted))
    made["1h"][columns.RecordSplit] = record_split.rows(found, of) if found else []
    for by_table in made.values():
        for rows in by_table.values():
            if not intervals.is_sane(rows):
                raise damaged(path, "its sums are beyond what a recording can hold")
    return RolledUp(of, made)


def _with_names(tables: Tables) -> Tables:
    """Without samples if no function has a name, as in a recording that was killed.

    They would tell that none of the time in records is TLS's.
    """
    if tables.frames and all(frame.source == "none" for frame in tables.frames):
        return replace(tables, samples=[])
    return tables


class _Counted(NamedTuple):
    """The samples of a capture by category, and what that was told by."""

    stacks: Stacks
    taxonomy: Taxonomy
    samples: dict[int, Counts]


def _count(tables: Tables) -> _Counted:
    resolved, taxonomy = Stacks(tables.frames, tables.stacks), builtin()
    return _Counted(resolved, taxonomy, count_samples(tables.samples, resolved, taxonomy))


def _record_split(tables: Tables, counted: _Counted) -> Split | None:
    return record_split.split(tables, counted.samples, counted.stacks, counted.taxonomy)


def explained(tables: Tables, of: Recording) -> dict[type[Row], list[Row]]:
    """The rows about causes, and what samples tell of the records of intervals.

    Those of `interval` have nothing but that: it belongs into rows of the shortest tier.
    """
    tables = _with_names(tables)
    counted = _count(tables)
    made = _causes(tables, of, counted)
    found = _record_split(tables, counted)
    if found is not None:
        sums = intervals.no_sums()
        record_split.add_to(sums.interval, found, of, min(TIERS.values()) * SECOND_NS)
        made[columns.Interval] = intervals.rows(sums, of, is_longest=True)[columns.Interval]
        made[columns.RecordSplit] = record_split.rows(found, of)
    return made


def _causes(tables: Tables, of: Recording, counted: _Counted) -> dict[type[Row], list[Row]]:
    """The rows about causes: findings, and the largest stacks of each hour."""
    resolved, taxonomy, counts = counted
    parts = capture_tables.groups(tables)
    found, _ = findings_of(parts, tables, counts, resolved, taxonomy)
    first = min(of.start_of(window, HOUR_NS) for window in tables.windows)
    made: dict[type[Row], list[Row]] = {
        columns.Finding: [
            columns.Finding(
                *(of.host, first, of.source_id, line.id, line.name),
                *(line.share.value, line.size.value_ns, line.sentence),
            )
            for line in found
        ]
    }
    return made | stacks.roll_up(tables, of, resolved, taxonomy)
