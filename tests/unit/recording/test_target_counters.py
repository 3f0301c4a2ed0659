# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's counters of a target: quotas and TCP timers are told from other causes by them."""

from collections.abc import Iterator

import pytest

from tlstax.collectors.recording.proc_clocks import Readings, TargetCounters

UNKNOWN = (None, None)


def counters_of(*readings: Readings) -> TargetCounters:
    """Those that are read one after the other."""
    left: Iterator[Readings] = iter(readings)
    return TargetCounters(lambda: next(left))


def test_the_group_that_is_throttled_most_counts() -> None:
    """The quota of a pod is above the container's, which has none."""
    first: Readings = ({0: (0, 0), 1: (100, 40)}, UNKNOWN)
    then: Readings = ({0: (0, 0), 1: (110, 48)}, UNKNOWN)
    counters = counters_of(first, then, then)
    assert counters.growth()[:2] == (10, 8)
    assert counters.growth()[:2] == (0, 0), "what was told once is not told again"


def test_a_host_without_cgroups_has_no_quota() -> None:
    assert counters_of(({}, UNKNOWN), ({}, UNKNOWN)).growth()[:2] == (0, 0)


@pytest.mark.parametrize(
    ("before", "after", "grown"),
    [
        ((70, None), (77, None), (7, None)),
        ((70, 1), (77, 5), (7, 4)),
        ((70, 1), (None, None), (None, None)),
        ((None, None), (77, 5), (None, None)),
    ],
)
def test_counts_of_tcp_that_cannot_be_read_are_unknown_and_not_none(
    before: tuple[int | None, int | None],
    after: tuple[int | None, int | None],
    grown: tuple[int | None, int | None],
) -> None:
    assert counters_of(({}, before), ({}, after)).growth()[2:] == grown
