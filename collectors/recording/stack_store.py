# SPDX-License-Identifier: GPL-2.0-only
"""Stacks of addresses become rows: each address is one frame, each stack is stored once.

While recording, a frame holds only the place of its address (file, build-id, offset). Names are
looked up at the end, on the host that recorded, in a forked child, because symbol tables are large:
so the recorder stays small, and the report needs neither the host nor the binaries.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from tlstax.collectors.capture import schema
from tlstax.collectors.process.frame_names import FrameNames, PlaceKey
from tlstax.collectors.process.symbols import Place, Symbolizer
from tlstax.collectors.recording.target_rows import SERVER_ID, ids_before

# The recorder's own frames on top of a stack that was walked in the scheduler's tracepoint.
# The last name of the kernel's text is that of a program which is no longer loaded.
_OWN_FRAMES: Final = (
    *("bpf_", "__bpf_", "__traceiter_", "bpf:", "trace_event_raw"),
    "_einittext",
)


_NEW: Final = -1
_Address = tuple[bool, int]  # of the kernel, address
_Key = tuple[bool, int, int]  # of the kernel, stack, leaf
_IDS_MOST: Final = 1 << 17
"""Stacks whose rows are found without their addresses: of this number or more, those asked last."""


class Unnamed(NamedTuple):
    """What names are looked up for."""

    frames: Mapping[_Address, int]
    """Frame ids by address."""
    waits: list[tuple[int, tuple[int, ...]]]
    """Stacks of waits with their frames, leaf first."""


class StackStore:
    """Rows for stacks, made when a stack is seen for the first time."""

    def __init__(
        self,
        addresses_of: Callable[[int], tuple[int, ...]],
        symbolizer: Symbolizer,
        target_id: int = SERVER_ID,
        stacks_most: int | None = None,
    ) -> None:
        """`addresses_of` gives the addresses of a kernel stack id, leaf first.

        Beyond `stacks_most` stacks, of others only the leaf is kept, and the loss counted.
        """
        self.stacks_most = stacks_most
        self._last_frame = self._last_stack = ids_before(target_id)
        self._addresses_of = addresses_of
        self._symbolizer = symbolizer
        # Frame ids by address, of the process and of the kernel: most frames of a new stack are
        # known, and are looked up without a step of Python for each.
        self._frames: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self._unnamed: dict[_Address, int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}
        self._ids: dict[_Key, int | None] = {}
        self._older_ids: dict[_Key, int | None] = {}
        self._forgotten: set[_Key] = set()  # whose addresses, or callers, are not stored
        self.forgotten_count = 0
        """Samples and waits so far whose stack, or its callers, were no longer known."""
        self._waits: set[int] = set()  # kernel stacks that begin with the recorder's own frames

    def user(self, stack: int, rows: list[schema.Row], leaf: int = 0, count: int = 1) -> int | None:
        """The stored id of a user stack, None when there was none; new rows go to `rows`.

        `leaf` is the address of the instruction, where the stack has only its callers. A stack that
        the kernel could not keep has none. `count`: samples or waits that have this stack.
        """
        return self._store(stack, False, rows, leaf, count)

    def kernel(
        self, stack: int, rows: list[schema.Row], leaf: int = 0, count: int = 1
    ) -> int | None:
        """The same for a kernel stack."""
        return self._store(stack, True, rows, leaf, count)

    def wait(self, stack: int, rows: list[schema.Row], count: int = 1) -> int | None:
        """The same for a kernel stack that was walked when the thread left the CPU."""
        stored = self._store(stack, True, rows, 0, count)
        if stored is not None:
            self._waits.add(stored)
        return stored

    def leave(self, unnamed: "UnnamedFrames", *, is_over: bool = False) -> None:
        """Leave the frames without a name to `unnamed`. `is_over`: the process has ended."""
        frames, waits = self.take_unnamed()
        unnamed.add(self._symbolizer, frames, waits, is_over=is_over)

    def take_unnamed(self) -> Unnamed:
        """The frames without a name, and the stacks of waits; they are forgotten here."""
        waits = [(stack, frames) for frames, stack in self._stacks.items() if stack in self._waits]
        taken, self._unnamed = self._unnamed, {}
        return Unnamed(taken, waits)

    def begin_again(self, kept: Collection[int]) -> list[schema.Row]:
        """Forget all but the stacks of these ids, for another capture; the rows that it needs.

        Ids go on: none ever names two stacks, and windows that have it mean the same.
        """
        self._stacks = {frames: stack for frames, stack in self._stacks.items() if stack in kept}
        used = {frame for frames in self._stacks for frame in frames}
        for known in self._frames:
            for address in [address for address, frame in known.items() if frame not in used]:
                del known[address]
        self._unnamed = {
            (bool(kernel), address): frame
            for kernel, known in enumerate(self._frames)
            for address, frame in known.items()
        }
        self._waits.intersection_update(kept)
        ids = self._older_ids | self._ids
        self._ids = {key: stored for key, stored in ids.items() if stored in kept}
        self._older_ids = {}
        self._forgotten.intersection_update(self._ids)
        rows: list[schema.Row] = [
            self._frame_row(frame, address, kernel)
            for (kernel, address), frame in self._unnamed.items()
        ]
        return rows + [_stack_row(stack, frames) for frames, stack in self._stacks.items()]

    def _store(
        self, stack: int, kernel: bool, rows: list[schema.Row], leaf: int, count: int
    ) -> int | None:
        if stack < 0:
            return self._keep((self._frame(leaf, kernel, rows),), rows) if leaf else None
        key = (kernel, stack, leaf)
        stored = self._recall(key)
        if stored == _NEW:
            stored = self._ids[key] = self._new(key, rows)
        if key in self._forgotten:
            self.forgotten_count += count
        return stored

    def _recall(self, key: _Key) -> int | None:
        """The stored id of a stack that was asked for lately, else _NEW."""
        if key in self._ids:
            return self._ids[key]
        if len(self._ids) >= _IDS_MOST:
            self._older_ids, self._ids = self._ids, {}
            self._forgotten.intersection_update(self._older_ids)
        stored = self._older_ids.get(key, _NEW)
        if stored != _NEW:
            self._ids[key] = stored
        return stored

    def _new(self, key: _Key, rows: list[schema.Row]) -> int | None:
        kernel, stack, leaf = key
        addresses = self._addresses_of(stack)
        if not addresses:
            self._forgotten.add(key)
        if leaf:
            addresses = (leaf, *addresses)
        # The return address of a call that never returns can be after the end of the function.
        places = [*addresses[:1], *(address - 1 for address in addresses[1:])]
        if self._is_full and not self._is_stored(places, kernel):
            if len(places) > 1:
                self._forgotten.add(key)
            places = places[:1]
        known = self._frames[kernel]
        for place in places:
            if place not in known:
                self._frame(place, kernel, rows)
        frames = tuple(map(known.__getitem__, places))
        return self._keep(frames, rows) if frames else None

    @property
    def _is_full(self) -> bool:
        return self.stacks_most is not None and len(self._stacks) >= self.stacks_most

    def _is_stored(self, places: Sequence[int], kernel: bool) -> bool:
        """Whether a stack of these frames has a row, under whatever number it came."""
        return tuple(map(self._frames[kernel].get, places)) in self._stacks

    def _keep(self, frames: tuple[int, ...], rows: list[schema.Row]) -> int:
        stored = self._stacks.get(frames)
        if stored is None:
            self._last_stack += 1
            stored = self._stacks[frames] = self._last_stack
            rows.append(_stack_row(stored, frames))
        return stored

    def _frame(self, address: int, kernel: bool, rows: list[schema.Row]) -> int:
        known = self._frames[kernel]
        frame = known.get(address)
        if frame is None:
            self._last_frame += 1
            frame = known[address] = self._unnamed[kernel, address] = self._last_frame
            rows.append(self._frame_row(frame, address, kernel))
        return frame

    def _frame_row(self, frame: int, address: int, kernel: bool) -> schema.Frame:
        return schema.Frame(frame, *(KERNEL if kernel else self._symbolizer.locate(address)))


def stacks_of(rows: Sequence[schema.Row]) -> set[int]:
    """The stacks that a window refers to."""
    of = (schema.SampleStack, schema.OffcpuStack)
    pairs = ((row.user_stack_id, row.kernel_stack_id) for row in rows if isinstance(row, of))
    return {stack for pair in pairs for stack in pair if stack is not None}


class UnnamedFrames:
    """Frames of one or several processes, whose names are looked up together."""

    def __init__(self) -> None:
        self._names = FrameNames()
        self._frames: dict[PlaceKey, list[int]] = {}
        self._waits: list[tuple[int, tuple[int, ...]]] = []

    def add(
        self,
        symbolizer: Symbolizer,
        frames: Mapping[_Address, int],
        waits: Iterable[tuple[int, tuple[int, ...]]],
        *,
        is_over: bool = False,
    ) -> None:
        """Frames of a process, and its stacks of waits."""
        if not frames:
            return
        for (kernel, address), frame in frames.items():
            key = self._names.add(symbolizer, kernel, address, is_over=is_over)
            self._frames.setdefault(key, []).append(frame)
        self._waits += waits

    def needs(self, symbolizer: Symbolizer) -> bool:
        """Whether its files must stay open until rows() has been called."""
        return self._names.needs(symbolizer)

    def rows(self) -> list[schema.Row]:
        """The frames with their names, and the waits without the recorder's own frames."""
        rows: list[schema.Row] = []
        own: set[int] = set()
        for key, place in self._names.look_up().items():
            rows += (schema.Frame(frame, *place) for frame in self._frames[key])
            if is_own(place):
                own.update(self._frames[key])
        rows += without_own(self._waits, own)
        self._frames, self._waits = {}, []
        return rows


KERNEL: Final = Place("kernel", "", 0, "[kernel]", 0, "none", "")


def is_own(place: Place) -> bool:
    """Whether a place is in a program of the recorder, or in what called it."""
    return place.object == KERNEL.object and place.symbol.startswith(_OWN_FRAMES)


def without_own(
    waits: Iterable[tuple[int, tuple[int, ...]]], own: Collection[int]
) -> Iterator[schema.Stack]:
    """The stacks of waits that begin with the recorder's own frames, without these."""
    for stack, frames in waits:
        if frames[0] in own:
            first = next((i for i, frame in enumerate(frames) if frame not in own), 0)
            yield _stack_row(stack, frames[first:])


def _stack_row(stack: int, frames: tuple[int, ...]) -> schema.Stack:
    return schema.Stack(stack, " ".join(map(str, frames)))
