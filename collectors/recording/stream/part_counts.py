# SPDX-License-Identifier: GPL-2.0-only
"""Captures of one recording, one after the other: what each has of counts that only grow."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tlstax.collectors.capture import schema


class Counts(NamedTuple):
    """What only grows while a recording goes on, at one time, as its stream tells it."""

    hits: Mapping[int, tuple[int, int, int]]
    """Hits, phases begun and phases healed, by the number of the site."""
    programs: Mapping[str, tuple[int, int]]
    """Run time in ns and runs, by program."""
    walks: Mapping[str, int]
    """Walks of stacks by WALK_COUNTS."""

    def of_probe(self, place: int | str) -> tuple[int, int, int]:
        """Hits, phases begun and healed of a site by its number, or of a program by its name."""
        if isinstance(place, str):
            return self.programs.get(place, (0, 0))[1], 0, 0
        return self.hits.get(place, (0, 0, 0))


NO_COUNTS = Counts({}, {}, {})


def between(
    probes: Sequence[tuple[int | str, schema.Probe]], earlier: Counts, now: Counts
) -> list[schema.Probe]:
    """The probes, each with its place, with what was counted from one time to another."""
    made = []
    for place, row in probes:
        hits, begun, healed = (
            after - before
            for after, before in zip(now.of_probe(place), earlier.of_probe(place), strict=True)
        )
        made.append(row._replace(hits_count=hits, begun_count=begun, healed_count=healed))
    return made
