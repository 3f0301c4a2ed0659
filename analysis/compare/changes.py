# SPDX-License-Identifier: GPL-2.0-only
"""Changes per operation by category, function and wait.

Each is computed for every unit of its side, so its bounds include the noise of the machine and of
sampling. CPU time is the exact time of each phase, split by its samples.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

import numpy as np

from tlstax.analysis.classify.composition import EXACT
from tlstax.analysis.classify.hot_functions import function_name
from tlstax.analysis.classify.taxonomy import Taxonomy
from tlstax.analysis.compare.replicates import Replicates
from tlstax.analysis.model.difference import Change
from tlstax.analysis.rows import ledger
from tlstax.analysis.rows.ledger import SERVED_PHASES
from tlstax.analysis.statistics import medians, verdicts
from tlstax.analysis.statistics.units import Floats
from tlstax.collectors.capture.schema import SampleStack
from tlstax.collectors.capture.vocabulary import CATEGORIES, HANDSHAKE_PHASES

MOST_FUNCTIONS: Final = 40
"""Functions that are compared: those with most time on either side."""
KERNEL: Final = "kernel"
_LEAST_SHARE: Final = 0.002
"""Of the time of an operation; smaller changes are left out."""

Key = tuple[str, str]
Times = dict[Key, Floats]
"""Time per operation by name and kind: of all units together, then of each."""


def tabulate(
    sides: tuple[Replicates, Replicates], times: tuple[Times, Times], *, is_paired: bool
) -> list[Change]:
    """The changes of what either side has, largest first; each judged by itself."""
    before, after = sides
    units = before.units, after.units
    none = np.zeros(len(before.weights)), np.zeros(len(after.weights))
    lines = []
    for key in {**times[0], **times[1]}:
        old, new = times[0].get(key, none[0]), times[1].get(key, none[1])
        found = medians.difference(old, new, units, is_paired=is_paired)
        ends = (medians.estimate(old, units[0]).value, medians.estimate(new, units[1]).value)
        p = verdicts.p_value(old, new, units, is_paired=is_paired)
        lines.append(
            Change(
                *key,
                *ends,
                found.measure(),
                verdicts.judge(found),
                sample_counts=[],
                p_value=p,
            )
        )
    return sorted(lines, key=lambda line: (-abs(line.difference.value_ns), line.name))


def shown(lines: list[Change], total_ns: float) -> list[Change]:
    """Lines of a size that matters in an operation."""
    least = _LEAST_SHARE * total_ns
    return [line for line in lines if max(line.before_ns, line.after_ns) >= least]


def waits(side: Replicates) -> Times:
    """Waiting per operation, by state and phase: exact."""
    rows: dict[Key, Floats] = defaultdict(lambda: np.zeros(side.size))
    for window_id, row in side.rows.items():
        for (phase, state), time_ns in side.sums.get(window_id, {}).items():
            if phase in SERVED_PHASES and state != "on_cpu":
                rows[state, _merged(phase)][row] += time_ns
    return {key: side.weights @ values / side.operations for key, values in rows.items()}


def _merged(phase: str) -> str:
    return "handshake" if phase in HANDSHAKE_PHASES else phase


def categories(side: Replicates) -> Times:
    """CPU time per operation by category."""
    parts: dict[str, dict[Key, Floats]] = defaultdict(dict)
    for window_id, row in side.rows.items():
        for (phase, category), count in side.counts.get(window_id, {}).items():
            if phase in SERVED_PHASES:
                name = EXACT.get(phase, category)
                mine = parts[phase].setdefault((name, ""), np.zeros(side.size))
                mine[row] += count
    return _split(side, parts)


def functions(side: Replicates, taxonomy: Taxonomy) -> tuple[Times, dict[Key, int]]:
    """CPU time per operation by function and category, and the samples of each."""
    parts: dict[str, dict[Key, Floats]] = defaultdict(dict)
    samples: dict[Key, int] = defaultdict(int)
    for row in side.tables.samples:
        place = side.rows.get(row.window_id)
        if place is None or row.phase not in SERVED_PHASES or row.sample_count <= 0:
            continue
        key = _function(side, row, taxonomy)
        mine = parts[row.phase].setdefault(key, np.zeros(side.size))
        mine[place] += row.sample_count
        samples[key] += row.sample_count
    return _split(side, parts), samples


def _function(side: Replicates, row: SampleStack, taxonomy: Taxonomy) -> Key:
    """Name and category of the function; the kernel is one function, as its samples accumulate."""
    category = taxonomy.category(side.stacks.sample(row))
    leaf = side.stacks.frames(row.user_stack_id)[:1]
    if row.kernel_stack_id is not None or not leaf:
        return (KERNEL, category)
    return (function_name(leaf[0]), category)


def _split(side: Replicates, parts: Mapping[str, Mapping[Key, Floats]]) -> Times:
    """The exact time of each phase by its samples; a phase without samples is unknown.

    A unit without samples in a phase is split like all units together.
    """
    times: Times = {}
    for phase, cpu_ns in _on_cpu(side).items():
        mine = parts.get(phase) or {(EXACT.get(phase, "unknown"), ""): np.ones(side.size)}
        # Of thousands of functions few are shown: only these are computed.
        kept = sorted(mine, key=lambda key: -float(mine[key].sum()))[:MOST_FUNCTIONS]
        whole = side.weights @ np.sum([mine[key] for key in mine], axis=0)
        per_operation = side.weights @ cpu_ns / side.operations
        for key in kept:
            hits = side.weights @ mine[key]
            pooled = np.full_like(whole, hits[0] / whole[0] if whole[0] else 0.0)
            share = np.divide(hits, whole, out=pooled, where=whole > 0)
            times[key] = times.get(key, 0.0) + per_operation * share
    return times


def _on_cpu(side: Replicates) -> dict[str, Floats]:
    """CPU time by phase and row."""
    found: dict[str, Floats] = {}
    for window_id, row in side.rows.items():
        for phase, time_ns in ledger.on_cpu(side.sums.get(window_id, {})).items():
            if phase in SERVED_PHASES and time_ns:
                found.setdefault(phase, np.zeros(side.size))[row] += time_ns
    return found


def in_order(lines: list[Change]) -> list[Change]:
    """Categories in the order of the vocabulary."""
    return sorted(
        lines,
        key=lambda line: CATEGORIES.index(line.name) if line.name in CATEGORIES else 99,
    )
