# SPDX-License-Identifier: GPL-2.0-only
"""Stacks whose callers are kept apart from the instruction: each sample must get its own leaf."""

from typing import cast

import pytest

from tlstax.collectors.capture import schema
from tlstax.collectors.process.symbols import Place, Symbolizer
from tlstax.collectors.recording import stack_store
from tlstax.collectors.recording.stack_store import StackStore

CALLERS = {7: (0x2001, 0x3001)}
WALKED = 7


class Places:
    """Names every address by itself."""

    def locate(self, address: int) -> Place:
        return Place("file", "", address, f"at {address:#x}", 0, "none", "")


def frames_of(rows: list[schema.Row], stack: int | None) -> list[int]:
    """The addresses of a stored stack."""
    offsets = {row.frame_id: row.offset_bytes for row in rows if isinstance(row, schema.Frame)}
    stacks = {row.stack_id: row.frame_ids for row in rows if isinstance(row, schema.Stack)}
    assert stack is not None
    return [offsets[int(frame)] for frame in stacks[stack].split()]


def test_two_instructions_share_their_callers() -> None:
    store = StackStore(lambda stack: CALLERS.get(stack, ()), cast(Symbolizer, Places()))
    rows: list[schema.Row] = []
    first = store.user(WALKED, rows, 0x1000)
    second = store.user(WALKED, rows, 0x1004)
    assert first != second
    assert frames_of(rows, first) == [0x1000, 0x2000, 0x3000]
    assert frames_of(rows, second) == [0x1004, 0x2000, 0x3000]
    assert store.user(WALKED, rows, 0x1000) == first


def test_a_wait_has_its_own_instruction_on_its_stack() -> None:
    store = StackStore(lambda stack: CALLERS.get(stack, ()), cast(Symbolizer, Places()))
    rows: list[schema.Row] = []
    assert frames_of(rows, store.user(WALKED, rows)) == [0x2001, 0x3000]


def test_a_sample_without_callers_keeps_its_function() -> None:
    store = StackStore(lambda stack: CALLERS.get(stack, ()), cast(Symbolizer, Places()))
    rows: list[schema.Row] = []
    assert frames_of(rows, store.user(-1, rows, 0x1000)) == [0x1000]
    assert store.user(-1, rows) is None


def test_a_long_recording_needs_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round sends a stack under a new number: weeks of recording must not keep them all."""
    monkeypatch.setattr(stack_store, "_IDS_MOST", 100)
    store = StackStore(lambda stack: (0x2001, 0x3001), cast(Symbolizer, Places()))
    rows: list[schema.Row] = []
    first = {store.user(WALKED, rows, 0x1000)}
    for number in range(1000):
        first.add(store.user(number, rows, 0x1000))
    assert len(first) == 1
    assert len(store._ids) + len(store._older_ids) <= 200
    assert len(rows) == 3 + 1


def test_a_stack_in_use_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its addresses may be gone by then: it must keep its callers without them."""
    monkeypatch.setattr(stack_store, "_IDS_MOST", 100)
    known: dict[int, tuple[int, ...]] = dict(CALLERS)
    store = StackStore(lambda stack: known.get(stack, (1,)), cast(Symbolizer, Places()))
    rows: list[schema.Row] = []
    stored = store.user(WALKED, rows, 0x1000)
    known[WALKED] = ()
    for number in range(1000, 2000):
        store.user(number, rows, 0x1000)
        assert store.user(WALKED, rows, 0x1000) == stored
    assert store.forgotten_count == 0


def test_a_lost_stack_is_counted_each_time() -> None:
    store = StackStore(lambda stack: (), cast(Symbolizer, Places()))
    rows: list[schema.Row] = []
    assert frames_of(rows, store.user(WALKED, rows, 0x1000, 4)) == [0x1000]
    assert store.wait(WALKED, rows, 3) is None
    store.user(WALKED, rows, 0x1000, 2)
    store.user(-1, rows, 0x1000, 100)
    assert store.forgotten_count == 4 + 3 + 2


def test_beyond_its_bound_a_store_keeps_the_leaf_and_counts_the_loss() -> None:
    stacks = {number: (0x1000, 0x2000 + number) for number in range(10)}
    store = StackStore(
        lambda stack: stacks.get(stack, ()), cast(Symbolizer, Places()), stacks_most=3
    )
    rows: list[schema.Row] = []
    kept = [store.user(number, rows) for number in stacks]
    assert [len(frames_of(rows, one)) for one in kept] == [2] * 3 + [1] * 7
    assert len(set(kept)) == 4
    assert store.forgotten_count == 7
    assert store.user(9, rows, count=5) == kept[9]
    assert store.forgotten_count == 12
    assert store.user(0, rows) == kept[0]


def test_beyond_its_bound_a_store_knows_the_stacks_that_it_has() -> None:
    """The programs forget stacks: the same one comes again under another number."""
    stacks: dict[int, tuple[int, ...]] = {20: (0x1000,)}
    stacks |= {number: (0x1000, 0x2000 + number % 10) for number in range(20)}
    store = StackStore(
        lambda stack: stacks.get(stack, ()), cast(Symbolizer, Places()), stacks_most=3
    )
    rows: list[schema.Row] = []
    kept = [store.user(number, rows) for number in range(3)]
    assert [store.user(number, rows) for number in (10, 11, 12)] == kept
    assert store.forgotten_count == 0
    frames_count = len(rows)
    assert frames_of(rows, store.user(13, rows, count=4)) == [0x1000]
    assert store.forgotten_count == 4
    assert len(rows) == frames_count + 1, "the callers of a stack that is cut are not stored"
    assert frames_of(rows, store.user(20, rows)) == [0x1000]
    assert store.forgotten_count == 4, "a leaf alone is whole"


def test_a_loss_is_that_of_one_instruction() -> None:
    """Instructions share their callers: what was stored before the bound was reached is whole."""
    store = StackStore(lambda stack: CALLERS[stack], cast(Symbolizer, Places()), stacks_most=1)
    rows: list[schema.Row] = []
    whole = store.user(WALKED, rows, 0x1000)
    assert frames_of(rows, store.user(WALKED, rows, 0x1004, 3)) == [0x1004]
    assert store.user(WALKED, rows, 0x1000, 10) == whole
    assert store.forgotten_count == 3
