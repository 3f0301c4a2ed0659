# SPDX-License-Identifier: GPL-2.0-only
"""Captures of one recording, one after the other: what each has of counts that only grow."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tlstax.collectors.capture import schema


class Counts(NamedTuple):
    """What only grows while a recording goes on, at one time."""

    probes: Mapping[int, tuple[int, int, int]]
    """Hits, phases begun and phases healed, by probe."""
    walks: Mapping[str, int]
    """Walks of stacks by WALK_COUNTS."""

    def of(self, rows: Sequence[schema.Probe]) -> list[schema.Probe]:
        """The probes with the counts of this time."""
        return [_with(row, self.probes.get(row.probe_id, (0, 0, 0))) for row in rows]


def counts_of(rows: Sequence[schema.Probe], walks: Mapping[str, int]) -> Counts:
    """The counts of these probes."""
    return Counts({row.probe_id: _counted(row) for row in rows}, walks)


def since(rows: Sequence[schema.Probe], earlier: Counts) -> list[schema.Probe]:
    """The probes without what earlier captures have."""
    made = []
    for row in rows:
        hits, begun, healed = earlier.probes.get(row.probe_id, (0, 0, 0))
        now = _counted(row)
        made.append(_with(row, (now[0] - hits, now[1] - begun, now[2] - healed)))
    return made


def _counted(row: schema.Probe) -> tuple[int, int, int]:
    return row.hits_count, row.begun_count, row.healed_count


def _with(row: schema.Probe, counts: tuple[int, int, int]) -> schema.Probe:
    hits, begun, healed = counts
    return row._replace(hits_count=hits, begun_count=begun, healed_count=healed)
