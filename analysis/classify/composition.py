# SPDX-License-Identifier: GPL-2.0-only
"""What the CPU did inside each phase: exact ledger totals, split by samples."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from tlstax.analysis.classify.taxonomy import Sample, Taxonomy, is_named
from tlstax.analysis.model.composition import Composition, PhaseComposition, Share
from tlstax.analysis.rows import ledger, operations
from tlstax.analysis.rows.samples import Place, columns_of
from tlstax.analysis.rows.tables import Group
from tlstax.analysis.rows.window_units import WindowUnits
from tlstax.analysis.statistics.shares import share as share_of
from tlstax.analysis.statistics.units import Units
from tlstax.collectors.capture import frame_ids
from tlstax.collectors.capture.schema import Frame, InlinedFrame, SampleStack, Stack
from tlstax.collectors.capture.vocabulary import ASYMMETRIC_PHASES, CATEGORIES

MINIMUM_SAMPLES: Final = 1000
"""Samples that must stand behind a printed share."""
EXACT: Final[Mapping[str, str]] = {
    **dict.fromkeys(ASYMMETRIC_PHASES, "asymmetric"),
    "certificate": "certificate",
}
"""Phases that are one category by definition: their split needs no samples."""

PROCESS: Final = "all"
"""The phase of samples that are not split by phase."""

Counts = dict[tuple[str, str], int]
"""Samples by (phase, category)."""


@dataclass(frozen=True)
class UnitCounts:
    """Samples of each round or block."""

    by_unit: Sequence[Counts]
    units: Units

    @property
    def total(self) -> Counts:
        """All of them together."""
        return add_counts(dict(enumerate(self.by_unit)), range(len(self.by_unit)))


class Stacks:
    """Stacks and frames by id, each resolved when it is asked for. Unknown ids are empty stacks."""

    def __init__(
        self,
        frames: Iterable[Frame],
        stacks: Iterable[Stack],
        inlined: Iterable[InlinedFrame] = (),
    ) -> None:
        self._inlined: dict[int, list[str]] = {}
        for row in sorted(inlined):
            self._inlined.setdefault(row.frame_id, []).append(row.symbol)
        self._by_id = {frame.frame_id: frame for frame in frames}
        self._ids = {stack.stack_id: stack.frame_ids for stack in stacks}
        self._frames: dict[int, tuple[Frame, ...]] = {}
        self._taxonomy: Taxonomy | None = None
        self._categories: dict[Place, str] = {}
        self._frame_categories: dict[tuple[str, int | None], list[str]] = {}

    def frames(self, stack_id: int | None) -> tuple[Frame, ...]:
        """The frames of a stack, leaf first; none for NULL and for ids that are missing."""
        if stack_id is None:
            return ()
        found = self._frames.get(stack_id)
        if found is None:
            by_id = self._by_id
            ids = frame_ids.parse(self._ids.get(stack_id, ""))
            found = _believable(by_id[one] for one in ids if one in by_id)
            self._frames[stack_id] = found
        return found

    def inlined(self, frame: Frame) -> Sequence[str]:
        """Functions that the compiler inlined at a frame, outermost first."""
        return self._inlined.get(frame.frame_id, ())

    def with_more(self, stacks: Iterable[Stack]) -> "Stacks":
        """The same, with further stacks."""
        made = Stacks((), stacks)
        made._by_id, made._inlined = self._by_id, self._inlined
        made._ids = self._ids | made._ids
        return made

    def sample(self, row: SampleStack) -> Sample:
        """What the taxonomy sees of a sample."""
        return self.sample_at((row.phase, row.syscall, row.user_stack_id, row.kernel_stack_id))

    def sample_at(self, place: Place) -> Sample:
        """The same of any sample there."""
        phase, syscall, user_id, kernel_id = place
        return Sample(phase, syscall, self.frames(user_id), self.frames(kernel_id))

    def category(self, place: Place, taxonomy: Taxonomy) -> str:
        """The category of samples; found once, as several parts of a report ask for it."""
        self._forget_others(taxonomy)
        known = self._categories.get(place)
        if known is None:
            known = self._categories[place] = taxonomy.category(self.sample_at(place))
        return known

    def frame_categories(self, phase: str, stack_id: int | None, taxonomy: Taxonomy) -> list[str]:
        """The category of each frame of a user stack, as if it were the leaf; found once."""
        self._forget_others(taxonomy)
        key = phase, stack_id
        known = self._frame_categories.get(key)
        if known is None:
            known = taxonomy.frame_categories(phase, self.frames(stack_id))
            self._frame_categories[key] = known
        return known

    def _forget_others(self, taxonomy: Taxonomy) -> None:
        """What is known is by one taxonomy."""
        if self._taxonomy is not taxonomy:
            self._taxonomy = taxonomy
            self._categories.clear()
            self._frame_categories.clear()


def _believable(frames: Iterable[Frame]) -> tuple[Frame, ...]:
    """The frames, leaf first, up to the first address above the leaf that lies in no file.

    Code that uses the frame pointer for other data (bignum and AES-GCM assembly) misleads the walk;
    the addresses after it are no callers.
    """
    kept: list[Frame] = []
    for frame in frames:
        if kept and not frame.object:
            break
        kept.append(frame)
    return tuple(kept)


def count_samples(
    rows: Iterable[SampleStack], stacks: Stacks, taxonomy: Taxonomy
) -> dict[int, Counts]:
    """Samples by window, phase and category."""
    samples = columns_of(rows)
    numbers: dict[tuple[str, str], int] = {}
    labels = {
        place: numbers.setdefault((place[0], stacks.category(place, taxonomy)), len(numbers))
        for place in samples.places
    }
    keys = list(numbers)
    return {
        window_id: {keys[number]: count for number, count in mine.items()}
        for window_id, mine in samples.by_window(labels).items()
    }


def add_counts(counts: Mapping[int, Counts], window_ids: Collection[int]) -> Counts:
    """Samples by phase and category over these windows."""
    sums: Counts = defaultdict(int)
    for window_id, mine in counts.items():
        if window_id in window_ids:
            for key, count in mine.items():
                sums[key] += count
    return dict(sums)


def count_by_unit(counts: Mapping[int, Counts], of: WindowUnits) -> UnitCounts:
    """Samples by window as samples by unit."""
    by_unit: list[Counts] = [{} for _ in range(of.units.count)]
    for window_id, unit in of.unit_of.items():
        for key, count in counts.get(window_id, {}).items():
            by_unit[unit][key] = by_unit[unit].get(key, 0) + count
    return UnitCounts(by_unit, of.units)


def compose(group: Group, totals: ledger.Totals, counts: UnitCounts) -> Composition:
    """The composition of one group's connection work, by phase and in total."""
    phases = [
        _phase(phase, on_cpu_ns, counts, group.operation_count)
        for phase, on_cpu_ns in ledger.on_cpu(ledger.served(totals)).items()
        if on_cpu_ns > 0
    ]
    return Composition(group.name, group.label, MINIMUM_SAMPLES, phases, _total(phases))


def compose_phases(
    on_cpu_ns: Mapping[str, int], counts: UnitCounts, operation_count: int
) -> list[PhaseComposition]:
    """The composition of these phases, whoever they are of."""
    return [_phase(phase, time_ns, counts, operation_count) for phase, time_ns in on_cpu_ns.items()]


def compose_process(group: Group, cpu_ns: int, counts: UnitCounts) -> list[Composition]:
    """The composition of the whole process: its CPU time by the scheduler, split by all samples.

    Nothing without samples. Its one phase is called `all`.
    """
    merged: list[Counts] = [defaultdict(int) for _ in counts.by_unit]
    for whole, mine in zip(merged, counts.by_unit, strict=True):
        for (_, category), count in mine.items():
            whole[PROCESS, category] += count
    if not any(merged):
        return []
    of_process = UnitCounts(merged, counts.units)
    line = _phase(PROCESS, cpu_ns, of_process, group.operation_count)
    label = f"{group.label}, all threads, by samples alone"
    return [Composition(f"{group.name}/process", label, MINIMUM_SAMPLES, [line], _total([line]))]


def _phase(
    phase: str, on_cpu_ns: int, counts: UnitCounts, operation_count: int
) -> PhaseComposition:
    """The split of one phase."""
    mine = {category: count for (name, category), count in counts.total.items() if name == phase}
    sample_count = sum(mine.values())
    exact = phase in EXACT
    if exact:
        category = EXACT[phase]
        shares = [Share(category, 1.0, 1.0, 1.0, float(on_cpu_ns), mine.get(category, 0))]
    else:
        totals = np.array(
            [
                sum(count for (name, _), count in one.items() if name == phase)
                for one in counts.by_unit
            ],
            dtype=np.float64,
        )
        shares = []
        for name in _known_first(mine):
            hits = np.array([float(one.get((phase, name), 0)) for one in counts.by_unit])
            found = share_of(hits, totals, counts.units)
            time_ns = found.value * on_cpu_ns
            line = (found.value, found.low, found.high, time_ns, mine[name], found.unit_count)
            shares.append(Share(name, *line))
        shares.sort(key=lambda share: -share.share)
    return PhaseComposition(
        phase,
        on_cpu_ns,
        operations.per_operation(on_cpu_ns, operation_count),
        exact,
        sample_count,
        exact or sample_count >= MINIMUM_SAMPLES,
        shares,
    )


def _known_first(names: Iterable[str]) -> list[str]:
    """Categories in the vocabulary's order, then those that only a client has."""
    return sorted(names, key=lambda n: CATEGORIES.index(n) if n in CATEGORIES else len(CATEGORIES))


def _total(phases: Collection[PhaseComposition]) -> list[Share]:
    """All phases together; a phase without samples is `unknown`."""
    time_ns: dict[str, float] = defaultdict(float)
    samples: dict[str, int] = defaultdict(int)
    for phase in phases:
        if not phase.shares:
            time_ns["unknown"] += phase.on_cpu_ns
        for share in phase.shares:
            time_ns[share.category] += share.time_ns
            samples[share.category] += share.sample_count
    whole = sum(time_ns.values())
    shares = [
        Share(name, time_ns[name] / whole, None, None, time_ns[name], samples[name])
        for name in CATEGORIES
        if name in time_ns
    ]
    return sorted(shares, key=lambda share: -share.share)


class SymbolQuality(NamedTuple):
    """Samples by how well they could be named and filed."""

    sample_count: int
    named_count: int
    unknown_count: int
    bare_count: int
    sources: dict[str, int]


def symbol_quality(
    rows: Iterable[SampleStack], stacks: Stacks, taxonomy: Taxonomy
) -> SymbolQuality:
    """Samples: all, with a named leaf, unknown to the taxonomy, without stack, by name source."""
    total = named = unknown = bare = 0
    sources: dict[str, int] = defaultdict(int)
    for place, count in columns_of(rows).by_place().items():
        phase, syscall, user_id, kernel_id = place
        sample = Sample(phase, syscall, stacks.frames(user_id), stacks.frames(kernel_id))
        total += count
        if phase not in EXACT:
            unknown += count * (stacks.category(place, taxonomy) == "unknown")
        if not sample.frames:
            bare += count
            continue
        named += count * is_named(sample.frames[0])
        sources[sample.frames[0].source] += count
    ordered = dict(sorted(sources.items(), key=lambda item: -item[1]))
    return SymbolQuality(total, named, unknown, bare, ordered)
