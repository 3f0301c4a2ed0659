# SPDX-License-Identifier: GPL-2.0-only
"""What a recording leaves in the kernel is told from what other processes create and free."""

from itertools import count

import pytest

from tlstax.tests import bpf_objects
from tlstax.tests.bpf_objects import Objects, watch_leftovers

BEFORE, MINE = ("MAP_GET_NEXT_ID", 1), ("PROG_GET_NEXT_ID", 2)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Objects:
    """Its objects; each look shows another one of a neighbour, which nobody holds any more."""
    objects: Objects = {BEFORE}
    neighbours = count(100)
    monkeypatch.setattr(
        bpf_objects, "_identifiers", lambda: objects | {("MAP_GET_NEXT_ID", next(neighbours))}
    )
    monkeypatch.setattr(bpf_objects, "_held_by_others", lambda: set[tuple[str, int]]())
    monkeypatch.setattr(bpf_objects, "_FREED_S", 0.3)
    return objects


def test_what_others_create_and_free_is_no_leftover(kernel: Objects) -> None:
    leftover = watch_leftovers()
    assert leftover() == set()


def test_what_stays_is_one(kernel: Objects) -> None:
    leftover = watch_leftovers()
    kernel.add(MINE)
    assert leftover() == {MINE}
