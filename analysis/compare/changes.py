# SPDX-License-Identifier: GPL-2.0-only
"""Changes per operation by category, function and wait.

Each is resampled with the rounds of its side, so its interval includes the noise of the machine and
of sampling. CPU time is the exact time of each phase, split by its samples.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

import numpy as np

from tlstax.analysis.classify.composition import EXACT
from tlstax.analysis.classify.hot_functions import function_name
from tlstax.analysis.classify.taxonomy import Taxonomy
from tlstax.analysis.compare.replicates import Replicates
from tlstax.analysis.compare.waterfall import judge
from tlstax.analysis.model.difference import Change
from tlstax.analysis.model.tables import Measure
from tlstax.analysis.rows import ledger
from tlstax.analysis.rows.ledger import SERVED_PHASES
from tlstax.analysis.statistics.bootstrap import Floats, estimate
from tlstax.collectors.capture.schema import SampleStack
from tlstax.collectors.capture.vocabulary import CATEGORIES, HANDSHAKE_PHASES

MOST_FUNCTIONS: Final = 40
"""Functions that are compared: those with most time on either side."""
KERNEL: Final = "kernel"
_LEAST_SHARE: Final = 0.002
"""Of the time of an operation; smaller changes are left out."""

Key = tuple[str, str]
Times = dict[Key, Floats]
"""Time per operation of each resample, by name and kind."""


def measure(before: Floats, after: Floats, sizes: tuple[int, int]) -> Measure:
    """The difference of two resampled values: the first is the estimate itself."""
    return Measure(*estimate(after - before, min(sizes)))


def tabulate(sides: tuple[Replicates, Replicates], times: tuple[Times, Times]) -> list[Change]:
    """The changes of what either side has, largest first."""
    before, after = sides
    none = np.zeros(len(before.weights))
    lines = []
    for key in {**times[0], **times[1]}:
        old, new = times[0].get(key, none), times[1].get(key, none)
        difference = measure(old, new, (before.size, after.size))
        lines.append(
            Change(
                *key, float(old[0]), float(new[0]), difference, judge(difference), sample_counts=[]
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
    """The exact time of each phase by its samples; a phase without samples is unknown."""
    times: Times = {}
    for phase, cpu_ns in _on_cpu(side).items():
        mine = parts.get(phase) or {(EXACT.get(phase, "unknown"), ""): np.ones(side.size)}
        # Of thousands of functions few are shown: only these are resampled.
        kept = sorted(mine, key=lambda key: -float(mine[key].sum()))[:MOST_FUNCTIONS]
        whole = side.weights @ np.sum([mine[key] for key in mine], axis=0)
        per_operation = side.weights @ cpu_ns / side.operations
        for key in kept:
            share = np.divide(
                side.weights @ mine[key], whole, out=np.zeros_like(whole), where=whole > 0
            )
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
