# SPDX-License-Identifier: GPL-2.0-only
"""The unit that each round of an experiment belongs to: itself, or the server start it ran on.

What differs from one start of a server to the next (addresses, order of allocations, the state of
its caches) is the same in all rounds of a start. They are no independent units for a claim about
the server, so rounds of a start are summed up where a recording has several starts.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tlstax.analysis.statistics import units
from tlstax.analysis.statistics.units import Units
from tlstax.collectors.capture.schema import Run


@dataclass(frozen=True)
class RoundUnits:
    """The units of some rounds."""

    unit_of: Mapping[int, int]
    """By round; numbered from 0."""
    units: Units

    @property
    def start_count(self) -> int:
        """Server starts that are units; 1 where rounds are."""
        return self.units.count if self.units.are_starts else 1


def of_starts(starts: Mapping[int, int], name: str = "rounds") -> RoundUnits:
    """Of rounds in ascending order; `starts` has the server start of each."""
    numbers = sorted(starts)
    known = sorted(set(starts.values()))
    if len(known) < 2:
        return RoundUnits(
            {number: at for at, number in enumerate(numbers)}, units.rounds(len(numbers), name)
        )
    place = {start: at for at, start in enumerate(known)}
    return RoundUnits(
        {number: place[starts[number]] for number in numbers}, units.server_starts(len(known))
    )


def of_runs(
    runs: Iterable[Run], rounds: Sequence[int] | None = None, name: str = "rounds"
) -> RoundUnits:
    """Of the rounds of these runs, or of some of them."""
    starts = {run.round: run.server_start for run in runs}
    wanted = starts if rounds is None else {number: starts[number] for number in rounds}
    return of_starts(wanted, name)
