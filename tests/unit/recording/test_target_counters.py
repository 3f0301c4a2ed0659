# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's counters of a target: quotas and TCP timers are told from other causes by them."""

from pathlib import Path

import pytest

from tlstax.collectors.preflight.cgroups import Group
from tlstax.collectors.recording import proc_clocks


def throttle(place: Path, periods: int, throttled: int) -> None:
    place.mkdir(exist_ok=True, parents=True)
    (place / "cpu.stat").write_text(
        f"usage_usec 5\nnr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec 9\n"
    )


def test_the_group_that_is_throttled_most_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quota of a pod is above the container's, which has none."""
    pod, container = tmp_path / "pod", tmp_path / "pod/container"
    throttle(pod, 100, 40)
    throttle(container, 0, 0)
    group = Group(container, tmp_path, is_v2=True)
    monkeypatch.setattr(proc_clocks, "group_of", lambda pid, name: group)
    counters = proc_clocks.counters_of(1)
    throttle(pod, 110, 48)
    assert counters.growth()[:2] == (10, 8)
    assert counters.growth()[:2] == (0, 0), "what was told once is not told again"


def test_a_host_without_cgroups_has_no_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proc_clocks, "group_of", lambda pid, name: None)
    assert proc_clocks.counters_of(1).growth()[:2] == (0, 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nr_periods 12\nnr_throttled 3\n", (12, 3)),
        ("usage_usec 5\n", (0, 0)),
        ("nr_periods x\nnr_throttled 3\n", (0, 0)),
        ("", (0, 0)),
    ],
)
def test_what_is_no_quota_is_no_throttling(text: str, expected: tuple[int, int]) -> None:
    assert proc_clocks.quota_periods(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("IpExt: A B\nIpExt: 1 2\nTcpExt: X DelayedACKs\nTcpExt: 5 77\n", (77, None)),
        ("TcpExt: ListenOverflows DelayedACKs\nTcpExt: 5 77\n", (77, 5)),
        ("TcpExt: X Y\nTcpExt: 5 77\n", (None, None)),
        ("TcpExt: X DelayedACKs\n", (None, None)),
        ("", (None, None)),
    ],
)
def test_counts_of_tcp_that_cannot_be_read_are_unknown_and_not_none(
    text: str, expected: tuple[int | None, int | None]
) -> None:
    assert proc_clocks.tcp_counts(text) == expected


def test_a_target_that_has_ended_counts_nothing() -> None:
    counters = proc_clocks.counters_of(2**22 + 1)
    assert counters.growth().delayed_ack_count is None
