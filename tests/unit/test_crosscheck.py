# SPDX-License-Identifier: GPL-2.0-only
"""What `make crosscheck` calls agreement: equal counts and close figures pass, others do not."""

import random

import pytest

from tlstax.tests.crosscheck import agreement

MS = 1_000_000


def times(shift: float = 1.0, count: int = 300) -> list[int]:
    draw = random.Random(1)
    return [round(draw.uniform(4, 6) * shift * MS) for _ in range(count)]


def doubling(values: list[int]) -> list[tuple[int, int, int]]:
    buckets: dict[int, int] = {}
    for value in values:
        low = 1 << (value.bit_length() - 1)
        buckets[low] = buckets.get(low, 0) + 1
    return [(low, 2 * low, count) for low, count in sorted(buckets.items())]


def test_counts_must_be_equal() -> None:
    seen = {
        "native": agreement.Seen(handshake_count=302),
        "bcc": agreement.Seen(handshake_count=301),
        "perf": agreement.Seen(),
    }
    assert agreement.compare_counts(seen, 302, 302).disagree == ("bcc",)
    assert agreement.compare_counts(seen, 302, 303).disagree == ("server", "bcc")
    assert "perf" not in agreement.compare_counts(seen, 302, 302).said


@pytest.mark.parametrize(("shift", "agrees"), [(1.0, True), (1.03, True), (1.07, False)])
def test_means_may_differ_by_five_per_cent(shift: float, agrees: bool) -> None:
    seen = {
        "native": agreement.Seen(times_ns=times(), wait_ns=100),
        "bpftrace": agreement.Seen(times_ns=times(shift), wait_ns=round(100 * shift)),
    }
    mean, _, wait = agreement.compare_times(seen, waits=True)
    assert (mean.disagree == ()) == (wait.disagree == ()) == agrees


def test_a_histogram_bounds_the_mean_and_holds_the_quantile() -> None:
    buckets = doubling(times())
    low, high = agreement.bounds_of_mean(buckets)
    assert low < 5 * MS < high < 2.01 * low
    first, last = agreement.quantile_interval(times(), 0.99)
    assert sorted(times())[-8] <= first < last <= max(times())
    seen = {
        "native": agreement.Seen(times_ns=times(), wait_ns=1),
        "bcc": agreement.Seen(buckets=buckets),
    }
    assert [line.disagree for line in agreement.compare_times(seen, waits=True)] == [(), (), ()]
    seen["bcc"].buckets = doubling(times(4.0))
    mean, p99, _ = agreement.compare_times(seen, waits=True)
    assert mean.disagree == p99.disagree == ("bcc",)


def test_shares_must_lie_within_each_others_intervals() -> None:
    seen = {
        "native": agreement.Seen(categories={"cipher": 200, "server": 700, "kernel_other": 100}),
        "perf": agreement.Seen(categories={"cipher": 215, "server": 680, "kernel_other": 105}),
        "bcc": agreement.Seen(
            categories={"unknown": 880, "kernel_other": 120}, tells_nameless=False
        ),
    }
    assert not any(line.disagree for line in agreement.compare_shares(seen))
    by_name = {line.what: line.said.keys() for line in agreement.compare_shares(seen)}
    assert "bcc" not in by_name["on CPU: cipher"]
    assert "bcc" in by_name["on CPU: kernel_other"]
    seen["perf"].categories = {"cipher": 400, "server": 500, "kernel_other": 100}
    wrong = {line.what: line.disagree for line in agreement.compare_shares(seen)}
    assert wrong["on CPU: cipher"] == wrong["on CPU: server"] == ("perf",)
