# SPDX-License-Identifier: GPL-2.0-only
"""Stacks of addresses become rows: each address is resolved once, each stack is stored once.

Resolved while recording, on the host that records, so that the report needs neither the host nor
the binaries, and a recording that is killed keeps the names of its finished windows.
"""

from collections.abc import Callable
from typing import Final, Protocol

from tlstax.collectors.capture import schema

# The recorder's own frames on top of a stack that was walked in the scheduler's tracepoint.
_OWN_FRAMES: Final = ("bpf_", "__bpf_", "__traceiter_", "bpf:")


class Place(Protocol):
    """Where an address lies: the fields of schema.Frame but its key."""

    @property
    def object(self) -> str: ...
    @property
    def build_id(self) -> str: ...
    @property
    def offset_bytes(self) -> int: ...
    @property
    def symbol(self) -> str: ...
    @property
    def symbol_offset_bytes(self) -> int: ...
    @property
    def source(self) -> str: ...
    @property
    def code(self) -> str: ...


class Resolver(Protocol):
    """Names addresses of the target and of the kernel."""

    def user(self, address: int) -> Place: ...
    def kernel(self, address: int) -> Place: ...


class StackStore:
    """Rows for stacks, made when a stack is seen for the first time."""

    def __init__(self, addresses_of: Callable[[int], tuple[int, ...]], resolver: Resolver) -> None:
        """`addresses_of` gives the addresses of a kernel stack id, leaf first."""
        self._addresses_of = addresses_of
        self._resolver = resolver
        self._frames: dict[tuple[bool, int], schema.Frame] = {}
        self._frames_count = 0
        self._stacks: dict[str, int] = {}
        self._ids: dict[tuple[bool, int], int | None] = {}

    def user(self, stack: int, rows: list[schema.Row]) -> int | None:
        """The stored id of a user stack, None when there was none; new rows go to `rows`."""
        return self._store(stack, False, rows)

    def kernel(self, stack: int, rows: list[schema.Row]) -> int | None:
        """The same for a kernel stack."""
        return self._store(stack, True, rows)

    def _store(self, stack: int, kernel: bool, rows: list[schema.Row]) -> int | None:
        if stack < 0:
            return None
        known = self._ids.get((kernel, stack), -1)
        if known != -1:
            return known
        frames: list[schema.Frame] = []
        for depth, address in enumerate(self._addresses_of(stack)):
            # A return address can lie behind the end of a function that never returns.
            frames.append(self._frame(address - (depth > 0), kernel, rows))
        if kernel:
            while frames and frames[0].symbol.startswith(_OWN_FRAMES):
                frames.pop(0)
        stored = self._stack(" ".join(str(frame.frame_id) for frame in frames), rows)
        self._ids[kernel, stack] = stored
        return stored

    def _stack(self, frame_ids: str, rows: list[schema.Row]) -> int | None:
        if not frame_ids:
            return None
        stored = self._stacks.get(frame_ids)
        if stored is None:
            stored = len(self._stacks) + 1
            self._stacks[frame_ids] = stored
            rows.append(schema.Stack(stored, frame_ids))
        return stored

    def _frame(self, address: int, kernel: bool, rows: list[schema.Row]) -> schema.Frame:
        frame = self._frames.get((kernel, address))
        if frame is None:
            place = self._resolver.kernel(address) if kernel else self._resolver.user(address)
            self._frames_count += 1
            frame = schema.Frame(
                self._frames_count,
                place.object,
                place.build_id,
                place.offset_bytes,
                place.symbol,
                place.symbol_offset_bytes,
                place.source,
                place.code,
            )
            self._frames[kernel, address] = frame
            rows.append(frame)
        return frame
