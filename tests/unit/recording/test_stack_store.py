# SPDX-License-Identifier: GPL-2.0-only
"""Stacks whose callers are kept apart from the instruction: each sample must get its own leaf."""

from typing import cast

from tlstax.collectors.capture import schema
from tlstax.collectors.process.symbols import Place, Symbolizer
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
