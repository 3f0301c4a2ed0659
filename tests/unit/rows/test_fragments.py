# SPDX-License-Identifier: GPL-2.0-only
"""Dense windows that a budget cut short are no units of their own."""

from tlstax.analysis.rows import window_units
from tlstax.analysis.rows.tables import Group
from tlstax.collectors.capture.schema import Window

MS = 1_000_000


def windows(*lengths_ms: int) -> list[Window]:
    """One a second."""
    return [
        Window(number, None, number * 1000 * MS, (number * 1000 + length) * MS)
        for number, length in enumerate(lengths_ms)
    ]


def units_of(*lengths_ms: int) -> tuple[list[int], int]:
    made = windows(*lengths_ms)
    group = Group("all", "", "", "", (), frozenset(range(len(made))))
    found = window_units.of_group(group, made)
    return [found.unit_of[window.window_id] for window in made], found.units.count


def test_windows_of_20_ms_beside_a_second_belong_to_the_window_before_them() -> None:
    """As recorded: waits of 48 ms in all windows, and 0 % of the time in those of 25 ms."""
    assert units_of(1000, 25, 27, 1000, 20, 900) == ([0, 0, 0, 1, 1, 2], 3)


def test_a_fragment_at_the_beginning_belongs_to_the_first_window() -> None:
    assert units_of(20, 1000, 1000) == ([0, 0, 1], 2)


def test_windows_of_one_length_are_what_they_were() -> None:
    assert units_of(*[500] * 5) == ([0, 1, 2, 3, 4], 5)
    assert units_of(*[500] * 11, 402)[1] == 7
    assert units_of() == ([], 0)
