# SPDX-License-Identifier: GPL-2.0-only
"""Who asked for what the CPU did: each sample's category, and the function that it works for.

Memory, locks and system calls serve everybody. The *caller* of a sample is the nearest function up
its stack that has another category and is none of these services: a malloc in OpenSSL's fetch of a
method belongs to the fetch. The *task* is the outermost function that is neither the server's nor
the protocol's: what the handshake was busy with, for example EVP_DigestSignInit, whatever that did
inside; without one, the innermost function of the protocol. If the protocol has a named function
below its entry, the task names that too: ASN1_item_d2i_ex in d2i_SSL_SESSION. A function without a
name has that of its nearest named caller in the same file.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from tlstax.analysis.classify.composition import EXACT, Counts, Stacks
from tlstax.analysis.classify.hot_functions import function_name
from tlstax.analysis.classify.taxonomy import Taxonomy, is_named
from tlstax.analysis.model.composition import CallerShare, Composition, PhaseComposition
from tlstax.analysis.model.tables import HandshakeTable, HandshakeTask
from tlstax.analysis.rows.samples import Place, columns_of
from tlstax.analysis.rows.window_units import WindowUnits
from tlstax.analysis.statistics.shares import share as share_of
from tlstax.analysis.statistics.units import Floats, Units
from tlstax.collectors.capture.schema import Frame, SampleStack

SERVICES: Final = frozenset(
    {"memory", "lock_spin", "kernel_network", "kernel_other", "probe", "unknown"}
)
_OUTER: Final = SERVICES | {"server", "tls_protocol"}
_HELPERS: Final = re.compile(r"OPENSSL_(sk|LH|DIR)_|OSSL_(PARAM|LIB)_|CRYPTO_|ERR_")
"""Containers and the like, which work for whoever calls them."""
LEAST_SHARE: Final = 0.005
"""Functions below this share of a phase are counted together."""


class Asker(NamedTuple):
    """A function up the stack, and its category; both '' where there is none."""

    category: str
    function: str


NOBODY: Final = Asker("", "")
SEVERAL: Final = "(several)"


class Filing(NamedTuple):
    """Where a sample is counted."""

    phase: str
    category: str
    caller: Asker
    task: Asker


@dataclass(frozen=True)
class Filed:
    """Samples by window and filing."""

    filings: Sequence[Filing]
    windows: Mapping[int, Mapping[int, int]]
    """Samples by window, then by the number of the filing."""

    def counts(self) -> dict[int, Counts]:
        """Samples by window, phase and category."""
        made: dict[int, Counts] = {}
        for window_id, mine in self.windows.items():
            counts: Counts = defaultdict(int)
            for number, count in mine.items():
                filing = self.filings[number]
                counts[filing.phase, filing.category] += count
            made[window_id] = dict(counts)
        return made


def file_samples(rows: Iterable[SampleStack], stacks: Stacks, taxonomy: Taxonomy) -> Filed:
    """Every sample's phase, category, caller and task."""
    samples = columns_of(rows)
    numbers: dict[Filing, int] = {}
    askers = _Askers(stacks, taxonomy)
    labels = {}
    for place in samples.places:
        filing = askers.file(place)
        labels[place] = numbers.setdefault(filing, len(numbers))
    return Filed(list(numbers), samples.by_window(labels))


class _Askers:
    """Callers and tasks of stacks."""

    def __init__(self, stacks: Stacks, taxonomy: Taxonomy) -> None:
        self._stacks = stacks
        self._taxonomy = taxonomy

    def file(self, place: Place) -> Filing:
        """The filing of a sample there."""
        phase, _, user_id, _ = place
        category = self._stacks.category(place, self._taxonomy)
        if phase in EXACT:
            return Filing(phase, category, NOBODY, NOBODY)
        frames = self._stacks.frames(user_id)
        found = self._stacks.frame_categories(phase, user_id, self._taxonomy)
        return Filing(phase, category, _caller(frames, found, category), _task(frames, found))


def _caller(frames: Sequence[Frame], categories: Sequence[str], category: str) -> Asker:
    for index, other in enumerate(categories):
        if other != category and other not in SERVICES and not _is_helper(frames[index]):
            return Asker(other, _name(frames, index))
    return NOBODY


def _task(frames: Sequence[Frame], categories: Sequence[str]) -> Asker:
    protocol, within = NOBODY, ""
    for index in range(len(frames) - 1, -1, -1):
        frame = frames[index]
        if _is_helper(frame):
            continue
        if categories[index] not in _OUTER:
            name = _name(frames, index)
            return Asker(categories[index], f"{name} in {within}" if within else name)
        if categories[index] == "tls_protocol":
            if protocol is not NOBODY and is_named(frame):
                within = function_name(frame)
            protocol = Asker("tls_protocol", _name(frames, index))
    return protocol


def _is_helper(frame: Frame) -> bool:
    return _HELPERS.match(frame.symbol) is not None


def _name(frames: Sequence[Frame], index: int) -> str:
    """The function's name, or that of its nearest named caller in the same file."""
    for frame in frames[index:]:
        if frame.object != frames[index].object:
            break
        if is_named(frame) and not _is_helper(frame):
            return function_name(frame)
    return function_name(frames[index])


def with_callers(made: Composition, filed: Filed, of: WindowUnits) -> Composition:
    """The composition with the callers and tasks of each phase that samples split."""
    by_unit: list[dict[int, int]] = [defaultdict(int) for _ in range(of.units.count)]
    for window_id, unit in of.unit_of.items():
        for number, count in filed.windows.get(window_id, {}).items():
            by_unit[unit][number] += count
    phases = [
        phase if phase.exact else _with_askers(phase, filed.filings, by_unit, of.units)
        for phase in made.phases
    ]
    return replace(made, phases=phases)


def _with_askers(
    phase: PhaseComposition,
    filings: Sequence[Filing],
    by_unit: Sequence[Mapping[int, int]],
    units: Units,
) -> PhaseComposition:
    mine = {number: one for number, one in enumerate(filings) if one.phase == phase.phase}
    totals = np.zeros(units.count)
    callers: dict[tuple[str, Asker], Floats] = defaultdict(lambda: np.zeros(units.count))
    tasks: dict[tuple[str, Asker], Floats] = defaultdict(lambda: np.zeros(units.count))
    for unit, counts in enumerate(by_unit):
        for number, count in counts.items():
            if filing := mine.get(number):
                totals[unit] += count
                callers[filing.category, filing.caller][unit] += count
                tasks["", filing.task][unit] += count
    return replace(
        phase,
        callers=list(_lines(callers, totals, units, phase.on_cpu_ns)),
        tasks=list(_lines(tasks, totals, units, phase.on_cpu_ns)),
    )


def _lines(
    found: Mapping[tuple[str, Asker], Floats], totals: Floats, units: Units, on_cpu_ns: int
) -> Iterator[CallerShare]:
    """A line for each, most samples first; small functions of one category are one line."""
    least = LEAST_SHARE * float(totals.sum())
    merged: dict[tuple[str, Asker], Floats] = {}
    for (category, asker), hits in found.items():
        is_small = asker.function and hits.sum() < least
        key = category, Asker(asker.category, SEVERAL) if is_small else asker
        merged[key] = merged[key] + hits if key in merged else hits
    for (category, asker), hits in sorted(
        merged.items(), key=lambda item: (-float(item[1].sum()), item[0])
    ):
        value, low, high, unit_count, _ = share_of(hits, totals, units)
        yield CallerShare(
            category,
            asker.category,
            asker.function,
            value,
            low,
            high,
            value * on_cpu_ns,
            round(float(hits.sum())),
            unit_count,
        )


def with_tasks(table: HandshakeTable, compositions: Iterable[Composition]) -> HandshakeTable:
    """The handshakes with their other computing split by task, if samples can split it."""
    phases = {
        phase.phase: phase for one in compositions for phase in one.phases if one.name == table.name
    }
    other_ns = {part.name: part.mean.value_ns for part in table.parts}.get("other_cpu", 0.0)
    if "handshake" not in phases or not phases["handshake"].enough or other_ns <= 0:
        return table
    tasks = [
        HandshakeTask(
            one.function,
            one.caller,
            one.share * other_ns,
            one.share,
            one.low,
            one.high,
            one.sample_count,
            one.unit_count,
        )
        for one in phases["handshake"].tasks
    ]
    return replace(table, other_tasks=tasks)
