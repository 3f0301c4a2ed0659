# SPDX-License-Identifier: GPL-2.0-only
"""Commands of level `flow`, split for the rules that look at reading, answering and decrypting.

At that level one phase holds all that a command does, so that what a rule asks of records would be
nothing. Stacks and system calls of samples tell what a sample belongs to, as in the report's own
split (`command_split`), whose estimate corrects them where there are enough calibration stretches.
Waits are not split.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tlstax.analysis.classify import command_split, work
from tlstax.analysis.classify.command_split import EXECUTE
from tlstax.analysis.classify.composition import Counts, Stacks, count_samples
from tlstax.analysis.classify.taxonomy import Taxonomy
from tlstax.analysis.rows.ledger import Totals
from tlstax.analysis.rows.samples import Place, columns_of
from tlstax.analysis.rows.tables import Group, Tables

TDE: Final = "tde"
_AT_REST: Final = re.compile(r"my_aes_crypt_|fil_space_(en|de)crypt|Encryption(::|\d+)(en|de)crypt")
"""Functions of servers inside of which pages are en- and decrypted."""
UNCOUNTED: Final = ("writes_per_command", "bytes_per_write")
"""Metrics that need the boundaries of records."""


@dataclass(frozen=True)
class Windows:
    """What rules are judged by, by window."""

    sums: Mapping[int, Totals]
    counts: Mapping[int, Counts]
    works: Mapping[int, Counts]


def split(
    windows: Windows, part: Group, tables: Tables, stacks: Stacks, taxonomy: Taxonomy
) -> Windows:
    """The same with the CPU time and the samples of a group's commands by what they do."""
    if not (at_flow := windows_at_flow(part, tables)):
        return windows
    samples = columns_of(tables.samples).of_windows(at_flow)
    samples = samples.in_phases(lambda place: phase_of(place, stacks))
    counts = count_samples(samples, stacks, taxonomy)
    weights = _weights(tables, part, stacks, counts)
    sums = {at: _split(windows.sums.get(at, {}), counts.get(at, {}), weights) for at in at_flow}
    works = work.count_work(samples, stacks, tables.frames, tables.meta.get("cpu_flags", ""))
    return Windows(
        {**windows.sums, **sums}, {**windows.counts, **counts}, {**windows.works, **works}
    )


def uncounted(part: Group, tables: Tables) -> tuple[str, ...]:
    """Metrics that a group has no count for, if some of it was recorded at level `flow`."""
    return UNCOUNTED if windows_at_flow(part, tables) else ()


def windows_at_flow(part: Group, tables: Tables) -> set[int]:
    """The windows of a group that were recorded at level `flow`."""
    return {
        window.window_id
        for window in tables.windows
        if window.level == "flow" and window.window_id in part.window_ids
    }


def phase_of(place: Place, stacks: Stacks) -> str:
    """The phase of a sample: in commands, the part of them that its stack belongs to."""
    if place[0] != EXECUTE:
        return place[0]
    sample = stacks.sample_at(place)
    part = command_split.part_of_sample(sample)
    if part == EXECUTE and any(_AT_REST.search(frame.symbol) for frame in sample.user):
        return TDE
    return part


def _weights(
    tables: Tables, part: Group, stacks: Stacks, counts: Mapping[int, Counts]
) -> Mapping[str, float]:
    """How much time a sample of each part stands for, against the mean sample; empty: unknown."""
    found = command_split.split(tables, part, stacks)
    hits: Counter[str] = Counter()
    for mine in counts.values():
        for (phase, _), count in mine.items():
            hits[EXECUTE if phase == TDE else phase] += count
    whole = sum(hits[name] for name in command_split.PARTS)
    weights = {
        line.phase: line.share * whole / hits[line.phase]
        for line in (found.lines if found else ())
        if hits[line.phase]
    }
    return {**weights, TDE: weights.get(EXECUTE, 1.0)}


def _split(totals: Totals, counts: Counts, weights: Mapping[str, float]) -> Totals:
    """The CPU time of a window's commands, by the parts that its samples belong to."""
    parts = (*command_split.PARTS, TDE)
    hits = {
        name: weights.get(name, 1.0) * sum(n for (phase, _), n in counts.items() if phase == name)
        for name in parts
    }
    whole_ns, all_hits = totals.get((EXECUTE, "on_cpu"), 0), sum(hits.values())
    if not whole_ns or not all_hits:
        return totals
    made = {key: time_ns for key, time_ns in totals.items() if key != (EXECUTE, "on_cpu")}
    for name, weight in hits.items():
        if weight:
            known_ns = made.get((name, "on_cpu"), 0)
            made[name, "on_cpu"] = known_ns + round(whole_ns * weight / all_hits)
    return made
