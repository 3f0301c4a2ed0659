# SPDX-License-Identifier: GPL-2.0-only
"""The largest stacks of each hour, with the frames that they lead to."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from tlstax.analysis.classify.composition import EXACT, Stacks
from tlstax.analysis.classify.taxonomy import Taxonomy
from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import HOUR_NS, Row
from tlstax.analysis.fleet.rollup.recording import Recording, hash_of
from tlstax.analysis.rows import ledger
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.schema import Frame, SampleStack

MOST: Final = 12
"""Stacks of each phase, state, hour and kind that have a row of their own."""
KERNEL: Final = "kernel"


class _Place(NamedTuple):
    """What a row is about, with the stacks as the capture numbers them."""

    phase: str
    state: str
    category: str
    syscall: int
    user_stack_id: int | None
    kernel_stack_id: int | None


class _Weight(NamedTuple):
    time_ns: float
    events_count: int


def roll_up(
    tables: Tables, of: Recording, resolved: Stacks, taxonomy: Taxonomy
) -> dict[type[Row], list[Row]]:
    """Rows of `stacks`, `stack` and `frame`."""
    hours: dict[int, set[int]] = defaultdict(set)
    for window in tables.windows:
        hours[of.start_of(window, HOUR_NS)].add(window.window_id)
    made: dict[type[Row], list[Row]] = {columns.Stacks: [], columns.Stack: [], columns.Frame: []}
    for hour, ids in sorted(hours.items()):
        totals = ledger.served(ledger.totals(tables.ledger, ids))
        kinds = {
            "on_cpu": _on_cpu(tables, ids, totals, resolved, taxonomy),
            "off_cpu": _off_cpu(tables, ids, totals),
        }
        names = _Names(hour, resolved)
        for kind, found in kinds.items():
            for place, weight in _largest(found):
                made[columns.Stacks].append(
                    columns.Stacks(
                        *(of.host, hour, of.source_id, kind, place.phase, place.state),
                        *(place.category, place.syscall),
                        names.stack(place.user_stack_id),
                        names.stack(place.kernel_stack_id),
                        round(weight.time_ns),
                        weight.events_count,
                    )
                )
        made[columns.Stack] += names.stacks.values()
        made[columns.Frame] += names.frames.values()
    return made


def _on_cpu(
    tables: Tables, ids: set[int], totals: ledger.Totals, resolved: Stacks, taxonomy: Taxonomy
) -> dict[_Place, _Weight]:
    """CPU time, which the samples of each phase split."""
    counts: dict[SampleStack, int] = defaultdict(int)
    per_phase: dict[str, int] = defaultdict(int)
    for row in tables.samples:
        if row.window_id in ids and row.sample_count > 0:
            counts[row._replace(window_id=0, sample_count=0)] += row.sample_count
            per_phase[row.phase] += row.sample_count
    on_cpu = ledger.on_cpu(totals)
    found = {}
    for row, count in counts.items():
        category = EXACT.get(row.phase) or taxonomy.category(resolved.sample(row))
        place = _Place(
            *(row.phase, "on_cpu", category, row.syscall, row.user_stack_id, row.kernel_stack_id)
        )
        if time_ns := on_cpu.get(row.phase, 0) * count / per_phase[row.phase]:
            found[place] = _Weight(time_ns, count)
    for phase, time_ns in on_cpu.items():
        if time_ns and not per_phase.get(phase):
            found[_rest(phase, "on_cpu")] = _Weight(time_ns, 0)
    return found


def _off_cpu(tables: Tables, ids: set[int], totals: ledger.Totals) -> dict[_Place, _Weight]:
    """Waiting time, which the stacks of the waits of each phase and state split."""
    wanted = {key: ns for key, ns in totals.items() if key[1] != "on_cpu" and ns > 0}
    seen: dict[_Place, list[int]] = defaultdict(lambda: [0, 0])
    sums: dict[tuple[str, str], int] = defaultdict(int)
    for row in tables.waits:
        if row.window_id in ids and (row.phase, row.state) in wanted and row.time_ns > 0:
            place = _Place(
                *(row.phase, row.state, "", row.syscall, row.user_stack_id, row.kernel_stack_id)
            )
            seen[place][0] += row.time_ns
            seen[place][1] += row.wait_count
            sums[row.phase, row.state] += row.time_ns
    found = {}
    for place, (time_ns, count) in seen.items():
        key = place.phase, place.state
        found[place] = _Weight(wanted[key] * time_ns / sums[key], count)
    for key, ns in wanted.items():
        if not sums.get(key):
            found[_rest(*key)] = _Weight(ns, 0)
    return found


def _rest(phase: str, state: str) -> _Place:
    return _Place(phase, state, "", -1, None, None)


def _largest(found: Mapping[_Place, _Weight]) -> Iterator[tuple[_Place, _Weight]]:
    """The largest, then what is left of each phase and state."""
    ordered = sorted(found.items(), key=lambda item: (-item[1].time_ns, str(item[0])))
    rest: dict[_Place, _Weight] = {}
    taken: dict[_Place, int] = defaultdict(int)
    for place, weight in ordered:
        into = _rest(place.phase, place.state)
        taken[into] += 1
        if taken[into] <= MOST and (place.user_stack_id, place.kernel_stack_id) != (None, None):
            yield place, weight
            continue
        known = rest.get(into, _Weight(0.0, 0))
        rest[into] = _Weight(
            known.time_ns + weight.time_ns, known.events_count + weight.events_count
        )
    yield from rest.items()


class _Names:
    """Stacks and frames of one hour by the hash of what they are."""

    def __init__(self, hour: int, resolved: Stacks) -> None:
        self._hour = hour
        self._resolved = resolved
        self.stacks: dict[int, Row] = {}
        self.frames: dict[int, Row] = {}
        self._known: dict[int, int] = {}

    def stack(self, stack_id: int | None) -> int:
        """The id of a stack of the capture in the data set; 0 for none."""
        if stack_id is None:
            return 0
        if stack_id not in self._known:
            frames = self._resolved.frames(stack_id)
            ids = [self._frame(frame) for frame in frames]
            key = hash_of(str(one) for one in ids) if ids else 0
            self._known[stack_id] = key
            if ids:
                self.stacks[key] = columns.Stack(key, self._hour, ids)
        return self._known[stack_id]

    def _frame(self, frame: Frame) -> int:
        key = hash_of(_identity(frame))
        if key not in self.frames:
            is_kernel = frame.object == KERNEL
            self.frames[key] = columns.Frame(
                *(key, self._hour),
                "" if is_kernel else frame.build_id,
                0 if is_kernel else frame.offset_bytes,
                *(frame.object, frame.symbol, frame.code),
            )
        return key


def _identity(frame: Frame) -> Iterable[str]:
    """What a frame is known by."""
    if frame.object != KERNEL and frame.build_id:
        return (frame.build_id, str(frame.offset_bytes))
    return (frame.object, frame.symbol)
