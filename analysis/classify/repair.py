# SPDX-License-Identifier: GPL-2.0-only
"""Completes incomplete stacks of the engine with the stacks that perf recorded at the same time.

The kernel walks user stacks by frame pointers, which libcrypto and libssl lack: a sample there has
its innermost functions and loses their callers. perf's DWARF stacks have them. An incomplete sample
gets the callers of perf's samples with the same innermost function in the same phase, in proportion
to their number: counts, phases and totals do not change, only callers are added. A sample whose
function perf did not sample stays unchanged.

If a return probe hides a caller from perf as well, its stack ends in a frame that says so. The rest
is inferred from the phase: the frames that all complete stacks of the phase (of the handshake, for
its parts) have in common from their root on.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, takewhile
from typing import Final

from tlstax.analysis.classify.composition import Stacks
from tlstax.analysis.model.tables import FlameGraph
from tlstax.analysis.quantities import share_text
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture import frame_ids
from tlstax.collectors.capture.schema import Frame, SampleStack, Stack

CUT: Final = "[return probe]"
"""Symbol of the frame at which perf's walk ended because of a return probe."""
ROOT: Final = re.compile(
    r"_?_?clone3?|start_thread|__libc_start_main\w*|__libc_start_call_main|_start"
)
AGREED: Final = 0.9
"""Share of a phase's whole stacks that must have a caller in common."""
FEWEST: Final = 2
"""Frames that a trunk must have."""
_PARTS: Final = frozenset({"sign", "keygen", "derive", "verify", "certificate"})
_NAMELESS: Final = "[unknown]"
_THREAD: Final = "start_thread"

Walk = tuple[tuple[int, ...], int]
"""Frame ids, root first, and how often."""

Key = tuple[str, str, int]
"""Phase, object and start of an innermost function: names differ, as functions have several."""


@dataclass(frozen=True)
class Repaired:
    """Samples with callers, and how many got theirs from perf."""

    samples: Sequence[SampleStack]
    resolved: Stacks
    """The stacks that the samples name, those of the capture and further ones."""
    stacks: list[Stack] = field(default_factory=list)
    """The further ones."""
    repaired_ids: frozenset[int] = frozenset()
    """Stacks that repaired samples have; no other sample has them."""
    sample_count: int = 0
    broken_count: int = 0
    repaired_count: int = 0


@dataclass(frozen=True)
class _Donor:
    stack: tuple[int, ...]  # frame ids, leaf first
    count: int


def repair(tables: Tables, recorded: Stacks | None = None) -> Repaired:
    """The samples of the engine with callers from perf's, where both were recorded.

    `recorded`: the stacks of the capture, if they are resolved already.
    """
    resolved = recorded or Stacks(tables.frames, tables.stacks, tables.inlined)
    if not tables.deep:
        return Repaired(tables.samples, resolved)
    frames = {frame.frame_id: frame for frame in tables.frames}
    stacks = {stack.stack_id: _ids(stack, frames) for stack in tables.stacks}
    broken: list[SampleStack] = []
    kept: list[SampleStack] = []
    for row in tables.samples:
        is_broken = _is_broken(resolved.frames(row.user_stack_id)) and row.sample_count > 0
        (broken if is_broken else kept).append(row)
    trunks = _Trunks(tables, stacks, frames)
    donors = _donors(tables.deep, stacks, frames, trunks)
    made = _Made(max(stacks, default=0) + 1)
    by_key: dict[Key | None, list[SampleStack]] = defaultdict(list)
    for row in broken:
        key = _key(row.phase, resolved.frames(row.user_stack_id))
        by_key[key if key in donors else None].append(row)
    repaired = 0
    for key, rows in by_key.items():
        if key is None:
            kept += rows
            continue
        repaired += sum(row.sample_count for row in rows)
        kept += _given(rows, donors[key], made)
    return Repaired(
        kept,
        resolved.with_more(made.stacks),
        made.stacks,
        frozenset(stack.stack_id for stack in made.stacks),
        sum(row.sample_count for row in tables.samples),
        sum(row.sample_count for row in broken),
        repaired,
    )


def with_repairs(graph: FlameGraph, made: Repaired) -> FlameGraph:
    """The graph with the number of repaired samples."""
    if not made.sample_count:
        return graph
    return replace(
        graph,
        broken_count=made.broken_count,
        repaired_count=made.repaired_count,
        repaired_share=made.repaired_count / made.sample_count,
        repair=sentence(made),
    )


def sentence(made: Repaired) -> str:
    """How much was repaired; '' where perf did not run."""
    if not made.sample_count:
        return ""
    share = share_text(made.repaired_count / made.sample_count)
    return (
        f"The stacks of {made.broken_count:,} of {made.sample_count:,} samples end in code without "
        f"frame pointers; {made.repaired_count:,} of them ({share} of all) got their callers from "
        "perf's stacks of the same function and phase."
    )


def _ids(stack: Stack, frames: Mapping[int, Frame]) -> tuple[int, ...]:
    return tuple(one for one in frame_ids.parse(stack.frame_ids) if one in frames)


def _is_broken(frames: Sequence[Frame]) -> bool:
    """Whether a walk ended before it reached the start of a thread."""
    return bool(frames) and not any(ROOT.fullmatch(_plain(frame)) for frame in frames[-2:])


def _plain(frame: Frame) -> str:
    return frame.symbol.partition("@")[0]


def _key(phase: str, frames: Sequence[Frame]) -> Key | None:
    """Phase and innermost function; None where nothing names it."""
    if not frames or not frames[0].object or frames[0].symbol == _NAMELESS:
        return None
    leaf = frames[0]
    return phase, leaf.object.rpartition("/")[2], leaf.offset_bytes - leaf.symbol_offset_bytes


class _Trunks:
    """What the whole stacks of each phase have in common, from the root on."""

    def __init__(
        self,
        tables: Tables,
        stacks: Mapping[int, tuple[int, ...]],
        frames: Mapping[int, Frame],
    ) -> None:
        self._frames = frames
        self._running = self._whole(
            stacks, ((one.phase, one.user_stack_id, one.sample_count) for one in tables.samples)
        )
        waits = ((one.phase, one.user_stack_id, one.wait_count) for one in tables.waits)
        self._waiting = self._whole(stacks, waits)
        self._trunks: dict[str, tuple[int, ...]] = {}

    def of(self, phase: str) -> tuple[int, ...]:
        """The trunk's frames, leaf first; none where the stacks of the phase do not agree.

        Running and waiting threads have to: those that wait all do so in the same function.
        """
        phase = _outer(phase)
        if phase not in self._trunks:
            running = self._agreed(self._running.get(phase, []))
            waiting = self._agreed(self._waiting.get(phase, []))
            pairs = zip(self._names(running), self._names(waiting), strict=False)
            common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            self._trunks[phase] = running[:common][::-1] if common >= FEWEST else ()
        return self._trunks[phase]

    def _whole(
        self,
        stacks: Mapping[int, tuple[int, ...]],
        counted: Iterable[tuple[str, int | None, int]],
    ) -> dict[str, list[Walk]]:
        """Stacks that reached a root, root first, by phase."""
        found: dict[str, list[Walk]] = defaultdict(list)
        for phase, stack_id, count in counted:
            ids = stacks.get(stack_id or 0, ())
            if count > 0 and ids and not _is_broken([self._frames[one] for one in ids]):
                found[_outer(phase)].append((_from_thread(ids, self._frames)[::-1], count))
        return found

    def _agreed(self, walks: Sequence[Walk]) -> tuple[int, ...]:
        """The longest path from a root that enough of the stacks share; by name, not address."""
        total = sum(count for _, count in walks)
        trunk: list[int] = []
        while walks:
            depth = len(trunk)
            votes: dict[str, int] = defaultdict(int)
            for ids, count in walks:
                if len(ids) > depth:
                    votes[_plain(self._frames[ids[depth]])] += count
            best = max(votes, key=lambda name: (votes[name], name), default="")
            if not best or votes[best] < AGREED * total:
                break
            walks = [
                (ids, count)
                for ids, count in walks
                if len(ids) > depth and _plain(self._frames[ids[depth]]) == best
            ]
            trunk.append(walks[0][0][depth])
        return tuple(trunk)

    def _names(self, ids: Sequence[int]) -> list[str]:
        return [_plain(self._frames[one]) for one in ids]


def _from_thread(ids: tuple[int, ...], frames: Mapping[int, Frame]) -> tuple[int, ...]:
    """Without what lies above a thread's first function: walks by frame pointers end there."""
    for at, one in enumerate(ids):
        if _plain(frames[one]) == _THREAD:
            return ids[: at + 1]
    return ids


def _outer(phase: str) -> str:
    return "handshake" if phase in _PARTS else phase


def _donors(
    rows: Iterable[SampleStack],
    stacks: Mapping[int, tuple[int, ...]],
    frames: Mapping[int, Frame],
    trunks: _Trunks,
) -> dict[Key, list[_Donor]]:
    """Stacks of perf that reach a root, by phase and innermost function, most frequent first."""
    found: dict[Key, dict[tuple[int, ...], int]] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        ids = stacks.get(row.user_stack_id or 0, ())
        key = _key(row.phase, [frames[one] for one in ids[:1]])
        if key is None or row.sample_count <= 0:
            continue
        if frames[ids[-1]].symbol == CUT:
            trunk = trunks.of(row.phase)
            ids = (*ids, *trunk) if trunk else ()
        elif _is_broken([frames[one] for one in ids]):
            ids = ()
        if ids:
            found[key][_from_thread(ids, frames)] += row.sample_count
    return {
        key: sorted(
            (_Donor(ids, count) for ids, count in mine.items()),
            key=lambda donor: (-donor.count, donor.stack),
        )
        for key, mine in found.items()
    }


class _Made:
    """Stacks that were put together, each with an id of its own."""

    def __init__(self, first_id: int) -> None:
        self._next_id = first_id
        self._ids: dict[tuple[int, ...], int] = {}
        self.stacks: list[Stack] = []

    def number(self, ids: tuple[int, ...]) -> int:
        if ids not in self._ids:
            self._ids[ids] = self._next_id
            self.stacks.append(Stack(self._next_id, " ".join(map(str, ids))))
            self._next_id += 1
        return self._ids[ids]


def _given(
    rows: Sequence[SampleStack], donors: Sequence[_Donor], made: _Made
) -> Iterator[SampleStack]:
    """The rows with the donors' stacks, each donor as often as its share is, to one sample."""
    ends = list(accumulate(donor.count for donor in donors))
    whole = sum(row.sample_count for row in rows)
    place = at = 0
    for row in rows:
        left = row.sample_count
        while left:
            # The sample in the middle of its share of the whole decides whose it is.
            while ends[at] * whole < (place + 0.5) * ends[-1]:
                at += 1
            last = min(place + left, max(place + 1, round(ends[at] * whole / ends[-1])))
            yield row._replace(
                user_stack_id=made.number(donors[at].stack), sample_count=last - place
            )
            left -= last - place
            place = last
