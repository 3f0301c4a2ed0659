# SPDX-License-Identifier: GPL-2.0-only
"""An account that was told before is told by what changed: to a reader it is the same."""

import io
from pathlib import Path

import pytest

from tlstax import TlstaxError
from tlstax.collectors.recording.stream.account_totals import Account, AccountTotals
from tlstax.collectors.recording.stream_recording import import_stream
from tlstax.tests.unit.recording.streams import COMMAND_ON_CPU, SECOND, change, slot, stream

Parts = list[tuple[str, bytes]]
LATER = {"steal_ns": 5, "handed_ns": -7, "state": 2, "owner": 2}
CELLS = {COMMAND_ON_CPU: 3 * SECOND, 2 * 8 + 2: 11, 128 + 12: 4}
EXITED = 2


def taken(*parts: tuple[str, bytes]) -> AccountTotals:
    totals = AccountTotals()
    takers = dict(totals.takers())
    for kind, content in parts:
        takers[kind](content)
    return totals


def only(totals: AccountTotals) -> Account:
    (account,) = totals.live.values()
    return account


def test_it_is_what_the_whole_account_would_be() -> None:
    first = ("SLOT", slot(7, {COMMAND_ON_CPU: SECOND, 9 * 8: 2}, SECOND, span=3))
    changed = only(taken(first, ("CHANGE", change(CELLS, 3 * SECOND, **LATER))))
    whole = only(taken(first, ("SLOT", slot(7, CELLS, 3 * SECOND, span=3, **LATER))))
    assert changed.view == whole.view
    assert (changed.span, changed.cells) == (whole.span, whole.cells)
    assert changed.cells[9 * 8] == 2, "what it does not name stays"


def test_a_recording_of_changes_is_the_same_capture(parts: Parts, tmp_path: Path) -> None:
    places = [at for at, (kind, _) in enumerate(parts) if kind == "SLOT"]
    assert len(places) == 3
    with_changes = list(parts)
    for number, at in enumerate(places[1:], start=2):
        with_changes[at] = "CHANGE", change({COMMAND_ON_CPU: number * SECOND}, number * SECOND)
    captures = [tmp_path / "whole.tlstax", tmp_path / "changes.tlstax"]
    for capture, made in zip(captures, (parts, with_changes), strict=True):
        import_stream(io.BytesIO(stream(made)), "x.stream", capture, overwrite=False)
    assert captures[0].read_bytes() == captures[1].read_bytes()


def test_it_is_of_the_account_that_was_told_last_for_its_slot() -> None:
    ended = ("SLOT", slot(7, {}, 2 * SECOND, status=EXITED))
    other = ("SLOT", slot(8, {}, 3 * SECOND, thread_start_ns=2 * SECOND))
    totals = taken(
        ("SLOT", slot(7, {}, SECOND)), ended, other, ("CHANGE", change(CELLS, 4 * SECOND))
    )
    (before,) = totals.ended.values()
    assert before.cells[COMMAND_ON_CPU] == 0
    assert only(totals).cells[COMMAND_ON_CPU] == CELLS[COMMAND_ON_CPU]


def test_a_thread_that_ended_does_not_change(parts: Parts, tmp_path: Path) -> None:
    first = next(at for at, (kind, _) in enumerate(parts) if kind == "WINDOW")
    planted = [
        ("SLOT", slot(7, {}, SECOND, status=EXITED)),
        ("CHANGE", change({COMMAND_ON_CPU: 2 * SECOND}, 2 * SECOND)),
    ]
    made = stream([*parts[: first + 1], *planted, *parts[first + 1 :]])
    with pytest.raises(TlstaxError, match="no recorder writes"):
        import_stream(io.BytesIO(made), "x.stream", tmp_path / "a.tlstax", overwrite=False)
