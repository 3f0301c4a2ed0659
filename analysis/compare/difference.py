# SPDX-License-Identifier: GPL-2.0-only
"""Compare two recordings, or two arms of an experiment, operation by operation.

Every figure is time per operation. Both sides are resampled, rounds of one experiment together, and
every figure is recomputed in each resample, as in `waterfall`.
"""

import dataclasses
from collections.abc import Sequence
from typing import Final

from tlstax.analysis.classify import flames
from tlstax.analysis.classify.profiles import fold as stacks_of
from tlstax.analysis.classify.taxonomy import Taxonomy, builtin
from tlstax.analysis.compare import changes, replicates, selections
from tlstax.analysis.compare.changes import measure
from tlstax.analysis.compare.replicates import Replicates
from tlstax.analysis.compare.rounds import COLUMNS, ArmCosts, close, costs_of
from tlstax.analysis.compare.selections import RecordingSelection
from tlstax.analysis.compare.waterfall import NO_DIFFERENCE, NO_INTERVAL, judge
from tlstax.analysis.compare.waterfall_steps import BESIDE, KINDS, SAMPLED_PHASES
from tlstax.analysis.model.difference import (
    DIFFERENCE_VERSION,
    Change,
    ChangeNode,
    Difference,
    FlamePair,
    LatencyPair,
    PairDifference,
    Step,
)
from tlstax.analysis.model.tables import Measure, Ratio
from tlstax.analysis.quantities import factor_text, measure_text, time_text
from tlstax.analysis.rows import handshakes, latency
from tlstax.analysis.statistics.bootstrap import estimate, interval_note

SHOWN_FUNCTIONS: Final = 20
SHOWN_WAITS: Final = 12
AT_CLIENT: Final = "latency at the client"
AT_SERVER: Final = "time of the server's threads"
_PRUNE_SHARE: Final = 0.001
"""Blocks of a flame graph below this share of it are left out."""


def compare_recordings(
    pairs: Sequence[tuple[RecordingSelection, RecordingSelection]],
    per: str | None = None,
    taxonomy: Taxonomy | None = None,
) -> Difference:
    """The comparison of each pair; `per` counts by connection, handshake or query instead."""
    rules = taxonomy or builtin()
    lines = [compare_pair(before, after, per, rules) for before, after in pairs]
    return Difference(DIFFERENCE_VERSION, "What changed, operation by operation", lines)


def compare_pair(
    before: RecordingSelection, after: RecordingSelection, per: str | None, taxonomy: Taxonomy
) -> PairDifference:
    """One pair, compared or refused."""
    by_driver = per is None and bool(before.group.runs) and bool(after.group.runs)
    unit = selections.choose_unit(before, after, per)
    reasons = selections.refusals(before, after, unit, by_driver=by_driver)
    if reasons:
        return _refused(before, after, unit, reasons)
    both = replicates.paired(before, after, unit, taxonomy, by_driver=by_driver)
    reasons = selections.too_few(
        [side.size for side in both],
        [before.label, after.label],
        "rounds" if by_driver else "windows",
    )
    if reasons:
        return _refused(before, after, unit, reasons)
    return _compared(both, unit, taxonomy, by_driver=by_driver)


def _compared(
    both: tuple[Replicates, Replicates], unit: str, taxonomy: Taxonomy, *, by_driver: bool
) -> PairDifference:
    before, after = both
    old, new = (costs_of(side.arm, side.weights) for side in both)
    close(old, new)
    sizes = (before.size, after.size)
    difference = measure(old.latency_ns, new.latency_ns, sizes)
    ratios = new.latency_ns / old.latency_ns
    steps = _steps(old, new, sizes, by_driver=by_driver)
    total_ns = max(float(old.latency_ns[0]), float(new.latency_ns[0]))
    line = PairDifference(
        name=f"{before.side.label} → {after.side.label}",
        before=selections.facts(before.side, before.size, float(before.operations[0])),
        after=selections.facts(after.side, after.size, float(after.operations[0])),
        refusals=[],
        cautions=selections.cautions(before.side, after.side, unit, by_driver=by_driver),
        sentence="",
        operation=unit,
        total_name=AT_CLIENT if by_driver else AT_SERVER,
        note=_note(both, by_driver=by_driver),
        totals=[
            Measure(*estimate(arm.latency_ns, side.size))
            for arm, side in ((old, before), (new, after))
        ],
        difference=difference,
        ratio=Ratio(*estimate(ratios, min(sizes))),
        verdict=judge(difference),
        steps=[step for step in steps if step.name not in {kind.name for kind in BESIDE}],
        beside=[step for step in steps if step.name in {kind.name for kind in BESIDE}],
        categories=changes.in_order(
            changes.shown(
                changes.tabulate(both, (changes.categories(before), changes.categories(after))),
                total_ns,
            )
        ),
        functions=_functions(both, taxonomy, total_ns),
        waits=changes.shown(
            changes.tabulate(both, (changes.waits(before), changes.waits(after))), total_ns
        )[:SHOWN_WAITS],
        latencies=_latencies(before.side, after.side),
        flames=_flames(both, unit, taxonomy, by_driver=by_driver),
    )
    return dataclasses.replace(line, sentence=_sentence(line))


def _steps(old: ArmCosts, new: ArmCosts, sizes: tuple[int, int], *, by_driver: bool) -> list[Step]:
    """The waterfall; without a driver it excludes the client's steps."""
    position_ns = float(old.latency_ns[0])
    lines = []
    for index, kind in enumerate(COLUMNS):
        if not by_driver and kind.basis == "client":
            continue
        before, after = old.steps_ns[:, index], new.steps_ns[:, index]
        difference = measure(before, after, sizes)
        start_ns = 0.0 if kind in BESIDE else position_ns
        end_ns = start_ns + difference.value_ns
        position_ns = position_ns if kind in BESIDE else end_ns
        lines.append(
            Step(
                *kind,
                before_ns=float(before[0]),
                after_ns=float(after[0]),
                difference=difference,
                verdict=judge(difference),
                start_ns=start_ns,
                end_ns=end_ns,
                sample_counts=[_samples(kind.group, arm) for arm in (old, new)]
                if kind.basis == "sampled"
                else [],
            )
        )
    assert len(lines) <= len(KINDS) + 1 + len(BESIDE)
    return lines


def _samples(group: str, arm: ArmCosts) -> int:
    phases = {"handshake": ("handshake",), "record": ("record_read", "record_write")}
    return sum(arm.sample_counts[phase] for phase in phases.get(group, SAMPLED_PHASES))


def _functions(
    both: tuple[Replicates, Replicates], taxonomy: Taxonomy, total_ns: float
) -> list[Change]:
    """Functions whose time changed, with the samples behind them."""
    (old, old_samples), (new, new_samples) = (changes.functions(side, taxonomy) for side in both)
    lines = [
        dataclasses.replace(
            line,
            sample_counts=[
                old_samples.get((line.name, line.kind), 0),
                new_samples.get((line.name, line.kind), 0),
            ],
        )
        for line in changes.tabulate(both, (old, new))
    ]
    # Functions with a verdict come first.
    lines.sort(key=lambda line: line.verdict == NO_DIFFERENCE)
    return changes.shown(lines, total_ns)[:SHOWN_FUNCTIONS]


def _latencies(before: RecordingSelection, after: RecordingSelection) -> list[LatencyPair]:
    """The distributions of every phase, and of whole handshakes."""
    found = []
    buckets = [
        latency.merge(side.tables.latencies, side.group.window_ids) for side in (before, after)
    ]
    walls = [
        latency.bucketize(
            row.end_ns - row.start_ns
            for row in handshakes.select(side.tables.handshakes, side.group)
            if row.outcome == "success"
        )
        for side in (before, after)
    ]
    for side, wall in zip(buckets, walls, strict=True):
        if wall:
            side["handshake_wall"] = wall
    for phase in {**buckets[0], **buckets[1]}:
        pair = [
            latency.distribution(f"{name}/{phase}", side.label, phase, mine.get(phase, {}))
            for name, side, mine in zip(("before", "after"), (before, after), buckets, strict=True)
        ]
        found.append(LatencyPair(phase, pair[0], pair[1]))
    return found


def _flames(
    both: tuple[Replicates, Replicates], unit: str, taxonomy: Taxonomy, *, by_driver: bool
) -> list[FlamePair]:
    """CPU time and waits of both sides in one tree each."""
    graphs = []
    for kind in ("on_cpu", "off_cpu"):
        profiles = []
        for side in both:
            made = stacks_of(side.side.group, kind, side.side.tables, taxonomy)
            operations = round(side.operations[0])
            label = side.side.label
            profiles.append(flames.Profile(label, made.folded, made.count, operations, unit))
        if not any(profile.folded for profile in profiles):
            continue
        root = flames.difference(*profiles)
        graphs.append(
            FlamePair(
                kind,
                flames.unit(*profiles),
                root.before,
                root.after,
                [profile.count for profile in profiles],
                _tree(root),
            )
        )
    return graphs


def _tree(root: flames.Block) -> ChangeNode:
    """The visible blocks as plain values; without recursion, as stacks can be deep."""
    least = root.width * _PRUNE_SHARE
    top = _node(root)
    waiting = [(root, top)]
    while waiting:
        block, node = waiting.pop()
        for child in sorted(block.children.values(), key=lambda one: (-one.width, one.name)):
            if child.width >= least:
                node["children"].append(_node(child))
                waiting.append((child, node["children"][-1]))
    return top


def _node(block: flames.Block) -> ChangeNode:
    return ChangeNode(
        name=block.name,
        category=block.category,
        before_ns=block.before,
        after_ns=block.after,
        is_noise=block.is_noise,
        children=[],
    )


def _sentence(line: PairDifference) -> str:
    """The result in one sentence, with the step that explains most of it."""
    assert line.difference is not None
    assert line.ratio is not None
    old, new = (time_text(total.value_ns) for total in line.totals)
    what = f"A {line.operation}"
    size = f"{old} → {new} ({measure_text(line.difference)})"
    if line.verdict in (NO_DIFFERENCE, NO_INTERVAL):
        return f"{what}: {line.verdict}, {size}."
    sign = 1 if line.verdict == "more" else -1
    steps = [step for step in line.steps if step.verdict == line.verdict]
    steps.sort(key=lambda step: -sign * step.difference.value_ns)
    because = "; ".join(f"{step.label} {measure_text(step.difference)}" for step in steps[:1])
    tail = f"; most of it in {because}" if because else ", in no single step"
    return f"{what} takes {factor_text(line.ratio.value)}, {size}{tail}."


def _note(both: Sequence[Replicates], *, by_driver: bool) -> str:
    sizes = [side.size for side in both]
    what = "rounds" if by_driver else "stretches of windows"
    is_paired = by_driver and both[0].side.tables is both[1].side.tables
    return interval_note(sizes, f"{'paired' if is_paired else 'independent'} {what}")


def _refused(
    before: RecordingSelection, after: RecordingSelection, unit: str, reasons: list[str]
) -> PairDifference:
    name = f"{before.label} → {after.label}"
    return PairDifference(
        name=name,
        before=selections.facts(before, 0, 0.0),
        after=selections.facts(after, 0, 0.0),
        refusals=reasons,
        cautions=[],
        sentence=f"Not compared: {'; '.join(reasons)}.",
        operation=unit,
        total_name="",
        note="",
        totals=[],
        difference=None,
        ratio=None,
        verdict=NO_INTERVAL,
    )
