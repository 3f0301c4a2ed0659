# SPDX-License-Identifier: GPL-2.0-only
"""Many small real changes do not let noise into the list of those that are large enough."""

from typing import Any

import numpy as np
import pytest

from tlstax.analysis.fleet import change_groups, changes, metric_changes, metrics, networks
from tlstax.analysis.fleet.host_sums import Sums
from tlstax.analysis.statistics.units import Floats
from tlstax.analysis.statistics.verdicts import FALSE_SHARE

HOSTS, PERIODS, PLANTED = 8000, 12, 10
SMALL, QUIET, NOISY = 0.05, 0.02, 0.25
"""In logarithms: a change that does not count, and the spread of periods of two kinds of hosts."""


def signatures(logs: Floats) -> Sums:
    """Hosts whose signatures take as long as these logarithms say, in each period."""
    by_name = {name: np.zeros(logs.shape) for name in metrics.needed(metrics.METRICS)}
    signed = np.full(logs.shape, 1000.0)
    by_name |= {"signed": signed, metrics.seen("signed"): signed}
    by_name["sign_ns"] = signed * 300e3 * np.exp(logs)
    return Sums([f"h{number:05d}" for number in range(len(logs))], list(range(PERIODS)), by_name)


def fleet(seed: int) -> tuple[Sums, Sums]:
    """Half of the hosts are quiet and change by 5 %; the others are noisy, and ten change much."""
    random = np.random.default_rng(seed)
    spread = np.where(np.arange(HOSTS) < HOSTS // 2, NOISY, QUIET)[:, None]
    sides = [random.normal(0, spread, (HOSTS, PERIODS)) for _ in range(2)]
    sides[1][HOSTS // 2 :] += SMALL * random.choice([-1, 1], HOSTS // 2)[:, None]
    sides[1][:PLANTED] += 1.2
    return signatures(sides[0]), signatures(sides[1])


def test_small_changes_let_no_noise_into_the_list() -> None:
    noise = named = found = 0
    seeds = range(6)
    for seed in seeds:
        marked, _ = changes.mark(*fleet(seed), with_load=False)
        rows = {mark.row for mark in marked}
        named += len(rows)
        noise += sum(row >= PLANTED for row in rows)
        found += sum(row < PLANTED for row in rows)
    assert found >= 0.9 * PLANTED * len(seeds)
    assert noise / named <= FALSE_SHARE


CHANGED = ("sign_ns", "resumed_share", "failed_share", "commands_per_connection")
UNSURE = "waiting_share"
_PATTERN = np.linspace(-1, 1, 12) ** 3


def unsure(least: float) -> Floats:
    """Differences of 12 hosts a little above what counts: not zero (t = 3), but maybe smaller."""
    found: Floats = 1.2 * least + _PATTERN / _PATTERN.std(ddof=1) * np.sqrt(12) * 0.4 * least
    return found


def of_hosts() -> tuple[Sums, Sums]:
    """Four metrics of all hosts change by half of what counts; of a fifth it is not sure."""
    random = np.random.default_rng(1)
    made = []
    for is_after in (False, True):
        by_name = {name: np.zeros(12) for name in metrics.needed(metrics.METRICS)}
        for name in (*CHANGED, UNSURE):
            metric = metrics.BY_NAME[name]
            growth = random.normal(metric.least_change / 2 * is_after, 1e-3, 12)
            if name == UNSURE:
                growth = unsure(metric.least_change) * is_after
            by_name[metric.below] = by_name[metrics.seen(metric.below)] = np.full(12, 1e9)
            by_name[metric.above] = 1e9 * (np.exp(growth) if metric.is_log else 0.4 + growth)
        made.append(Sums([f"h{number}" for number in range(12)], [], by_name))
    return made[0], made[1]


def test_a_metric_of_all_hosts_counts_only_if_it_surely_changed_so_much() -> None:
    """Beside four small changes it was enough that it is not zero."""
    lines = metric_changes.over_hosts(*of_hosts(), is_paired=True)
    more = [line.metric.name for line in lines if line.verdict == "more"]
    assert more == [*CHANGED, UNSURE]
    assert change_groups._counting(lines) == []


def test_a_network_is_named_only_if_it_surely_changed_so_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random = np.random.default_rng(1)
    least = metrics.BY_NAME["resumed_share"].least_change
    small = [random.normal(least / 2, 1e-3, 12) for _ in range(8)]
    growth = np.concatenate([*small, unsure(least), np.full(12, 0.3)])
    sides = []
    for resumed in (np.full(len(growth), 0.4), 0.4 + growth):
        counts = {"resumed_count": 1e6 * resumed, "full_count": 1e6 * (1 - resumed)}
        sides.append(counts | {"failed_count": np.zeros(len(growth))})
    names = [*(f"small{number}" for number in range(8)), "unsure", "large"]
    hosts = [f"h{number}" for number in range(12)]
    at = np.repeat(np.arange(10), 12), np.tile(np.arange(12), 10)
    pairs = networks._Pairs(names, hosts, *at, (sides[0], sides[1]))
    monkeypatch.setattr(networks, "_sums", lambda *_: None)
    monkeypatch.setattr(networks, "_paired", lambda *_: pairs)
    none: Any = None
    (group,) = networks.changes(none, none, none, set(hosts))
    assert "Clients of large" in group.sentence


@pytest.mark.parametrize("growth", [0.6, -0.6])
def test_a_large_change_of_all_hosts_counts(growth: float) -> None:
    random = np.random.default_rng(1)
    shape = 12, PERIODS
    sides = [signatures(random.normal(mean, 0.02, shape)).whole() for mean in (0, growth)]
    (line,) = change_groups._counting(metric_changes.over_hosts(sides[0], sides[1], is_paired=True))
    assert line.metric.name == "sign_ns"
