# SPDX-License-Identifier: GPL-2.0-only
"""Composition, stacks, latencies, handshakes and taxonomy files: sums are conserved."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tlstax import TlstaxError
from tlstax.analysis.classify import composition, stacks, taxonomy
from tlstax.analysis.model.tables import FlameNode
from tlstax.analysis.rows import handshakes, latency
from tlstax.analysis.rows.coverage import cover
from tlstax.analysis.rows.tables import Group
from tlstax.analysis.rows.window_units import WindowUnits
from tlstax.analysis.statistics import units
from tlstax.collectors.capture.schema import (
    Frame,
    Handshake,
    Latency,
    OffcpuStack,
    SampleStack,
    Stack,
)
from tlstax.collectors.capture.vocabulary import CATEGORIES, PHASES, STATES

GROUP = Group("all", "", "", "", (), frozenset({1}))
KEYS = st.tuples(st.sampled_from(PHASES), st.sampled_from(STATES))
TOTALS = st.dictionaries(KEYS, st.integers(0, 10**12), max_size=20)
FRAMES = [
    Frame(1, "/usr/lib/libcrypto.so.3", "", 0, "EVP_MD_fetch", 0, "dynsym", ""),
    Frame(2, "/usr/lib/libcrypto.so.3", "", 0, "[libcrypto.so.3+0x10]", 0, "none", "bignum"),
    Frame(3, "/usr/sbin/mariadbd", "", 0, "do_command;\n", 0, "dynsym", ""),
    Frame(4, "kernel", "", 0, "tcp_sendmsg", 0, "kallsyms", ""),
    Frame(5, "", "", 0, "", 0, "none", ""),
]
STACKS = [
    Stack(1, "1 3"), Stack(2, "2"), Stack(3, "3"), Stack(4, "4"), Stack(5, "5 77 x -1 3"),
    Stack(6, ""), Stack(7, " ".join(["3", "1"] * 400)),
]  # fmt: skip
RESOLVED = composition.Stacks(FRAMES, STACKS)
IDS = st.one_of(st.none(), st.integers(1, 9))
SAMPLES = st.lists(
    st.builds(
        SampleStack,
        st.just(1),
        st.sampled_from(PHASES),
        st.sampled_from((-1, 44, 999)),
        IDS,
        IDS,
        st.integers(1, 1000),
    ),
    max_size=20,
)
WAITS = st.lists(
    st.builds(
        OffcpuStack,
        st.just(1),
        st.sampled_from(PHASES),
        st.sampled_from(STATES),
        st.sampled_from((-1, 7)),
        IDS,
        IDS,
        st.integers(1, 9),
        st.integers(0, 10**9),
    ),
    max_size=20,
)


def counts_of(rows: list[SampleStack]) -> composition.Counts:
    counts = composition.count_samples(rows, RESOLVED, taxonomy.builtin())
    return composition.add_counts(counts, {1})


def one(counts: composition.Counts) -> composition.UnitCounts:
    """Samples of a single round."""
    return composition.UnitCounts([counts], units.rounds(1))


@given(totals=TOTALS, rows=SAMPLES)
def test_categories_sum_to_the_exact_total(
    totals: dict[tuple[str, str], int], rows: list[SampleStack]
) -> None:
    parts = [counts_of(rows[place::9]) for place in range(9)]
    made = composition.compose(GROUP, totals, composition.UnitCounts(parts, units.rounds(9)))
    for phase in made.phases:
        assert phase.on_cpu_ns == totals[phase.phase, "on_cpu"]
        if phase.shares:
            assert sum(share.share for share in phase.shares) == pytest.approx(1)
            assert sum(share.time_ns for share in phase.shares) == pytest.approx(phase.on_cpu_ns)
        for share in phase.shares:
            if share.low is None or share.high is None:
                assert share.unit_count == 1
                continue
            assert 0 <= share.low <= share.share + 1e-12
            assert share.share - 1e-12 <= share.high <= 1
    if made.phases:
        assert sum(share.share for share in made.total) == pytest.approx(1)


def test_a_share_needs_a_thousand_samples() -> None:
    counts = {
        ("command", "server"): 999,
        ("handshake", "server"): 500,
        ("handshake", "cipher"): 500,
    }
    totals = {("command", "on_cpu"): 10, ("handshake", "on_cpu"): 10, ("sign", "on_cpu"): 10}
    made = {part.phase: part for part in composition.compose(GROUP, totals, one(counts)).phases}
    assert (made["command"].enough, made["command"].sample_count) == (False, 999)
    assert (made["handshake"].enough, made["handshake"].sample_count) == (True, 1000)
    assert (made["sign"].enough, made["sign"].exact) == (True, True)
    assert [share.category for share in made["sign"].shares] == ["asymmetric"]


def test_missing_stacks_and_frames_are_unknown_not_errors() -> None:
    assert counts_of([SampleStack(1, "command", -1, 99, None, 3)]) == {("command", "unknown"): 3}
    assert counts_of([SampleStack(1, "command", -1, 5, 6, 3)]) == {("command", "unknown"): 3}


def leaves(node: FlameNode) -> float:
    """Sum of own times; also checks that no node is smaller than its children."""
    inside = sum(child["value"] for child in node["children"])
    assert inside <= node["value"] * (1 + 1e-9) + 1e-6
    return node["value"] - inside + sum(leaves(child) for child in node["children"])


def depth(node: FlameNode) -> int:
    return 1 + max((depth(child) for child in node["children"]), default=0)


@settings(deadline=None)
@given(totals=TOTALS, rows=SAMPLES)
def test_on_cpu_stacks_sum_to_the_ledger(
    totals: dict[tuple[str, str], int], rows: list[SampleStack]
) -> None:
    folded, samples = stacks.fold_on_cpu(rows, {1}, totals, RESOLVED, taxonomy.builtin())
    exact = sum(ns for (_, state), ns in totals.items() if state == "on_cpu")
    assert sum(folded.values()) == pytest.approx(exact)
    assert samples == sum(row.sample_count for row in rows)
    check_graph(folded, exact)


@settings(deadline=None)
@given(totals=TOTALS, rows=WAITS)
def test_off_cpu_stacks_sum_to_the_ledger(
    totals: dict[tuple[str, str], int], rows: list[OffcpuStack]
) -> None:
    folded, _ = stacks.fold_off_cpu(rows, {1}, totals, RESOLVED, taxonomy.builtin())
    exact = sum(
        ns
        for (phase, state), ns in totals.items()
        if state != "on_cpu" and phase not in ("idle", "background", "unknown")
    )
    assert sum(folded.values()) == pytest.approx(exact)
    check_graph(folded, exact)


def check_graph(folded: stacks.Folded, exact: int) -> None:
    graph = stacks.flame_graph(GROUP, "on_cpu", "on CPU", stacks.FoldedStacks(folded, 3))
    assert graph.total_ns == graph.root["value"] == pytest.approx(exact)
    assert leaves(graph.root) == pytest.approx(exact)
    assert depth(graph.root) <= stacks.MAX_DEPTH + 1
    assert {node["name"] for node in graph.root["children"]} <= {*PHASES, stacks.SMALL}
    json.dumps(graph.root)
    lines = stacks.folded_lines(folded)
    assert all(line.count("\n") == 0 and line.rsplit(" ", 1)[1].isdigit() for line in lines)
    assert sum(int(line.rsplit(" ", 1)[1]) for line in lines) == pytest.approx(
        exact, abs=len(lines)
    )


def test_frames_that_are_too_small_are_merged_and_counted() -> None:
    frame = stacks.FoldedFrame
    phase = frame("command", "unknown")
    folded: stacks.Folded = {(phase, frame("big", "server")): 1e6}
    for number in range(50):
        folded[phase, frame(f"small{number}", "server"), frame("leaf", "server")] = 1.0
    graph = stacks.flame_graph(GROUP, "on_cpu", "on CPU", stacks.FoldedStacks(folded, 1))
    (branch,) = graph.root["children"]
    assert [child["name"] for child in branch["children"]] == ["big", stacks.SMALL]
    assert graph.dropped_ns == 50


@given(values=st.lists(st.integers(0, 10**11), min_size=1, max_size=300), q=st.floats(0, 1))
def test_quantiles_of_buckets_bound_the_exact_ones(values: list[int], q: float) -> None:
    buckets = latency.bucketize(values)
    assert sum(buckets.values()) == len(values)
    for low, high in buckets:
        assert high - low <= max(1, 0.04 * low)
    exact = latency.exact_quantile(sorted(values), q)
    found = latency.quantile(buckets, q)
    assert found.low_ns <= found.value_ns <= found.high_ns
    assert found.low_ns <= exact.value_ns <= found.high_ns


def test_buckets_of_windows_merge() -> None:
    rows = [
        Latency(1, "handshake", 100, 104, 2),
        Latency(2, "handshake", 100, 104, 3),
        Latency(2, "handshake", 50, 52, 5),
        Latency(3, "handshake", 50, 52, 99),
        Latency(1, "connect", 10, 11, 1),
    ]
    merged = latency.merge(rows, {1, 2})
    assert merged == {"connect": {(10, 11): 1}, "handshake": {(50, 52): 5, (100, 104): 5}}
    made = latency.distribution("n", "l", "handshake", merged["handshake"])
    assert made.mean_ns == (51 * 5 + 102 * 5) / 10
    assert [bucket.cumulative for bucket in made.buckets] == [0.5, 1.0]
    assert [quantile.q for quantile in made.quantiles] == [0.5, 1.0]
    assert latency.distribution("n", "l", "handshake", {}).mean_ns is None


def test_quantiles_need_values_beyond_them() -> None:
    assert latency.wanted_quantiles(10) == [0.5]
    assert latency.wanted_quantiles(100) == [0.5, 0.9, 0.95]
    assert latency.wanted_quantiles(5000) == [0.5, 0.9, 0.95, 0.99, 0.999]


TIMES = st.integers(0, 10**8)
SHAKES = st.lists(
    st.builds(
        Handshake,
        st.just(1),
        st.just(1),
        st.just(5),
        st.integers(0, 10**12),
        st.integers(10**12, 2 * 10**12),
        *[TIMES] * 9,
        st.just(3),
        st.just(2),
        st.sampled_from(("success", "failure", "abandoned")),
        st.just("TLSv1.3"),
        st.just("A"),
        st.just("X25519"),
        st.none(),
    ),
    max_size=40,
)


ALONE = WindowUnits({1: 0}, units.rounds(1))


@given(rows=SHAKES)
def test_parts_of_handshakes_sum_to_their_wall_time(rows: list[Handshake]) -> None:
    table = handshakes.summarize(GROUP, rows, cover([], ()), ALONE)
    good = [row for row in rows if row.outcome == "success"]
    assert table.count == len(rows) == sum(table.outcomes.values())
    assert table.distribution.count == len(good)
    if good:
        mean_ns = sum(row.end_ns - row.start_ns for row in good) / len(good)
        assert table.mean is not None
        assert table.mean.value_ns == pytest.approx(mean_ns)
        assert sum(part.mean.value_ns for part in table.parts) == pytest.approx(mean_ns, abs=1e-3)
    else:
        assert table.mean is None
        assert table.parts == []


GOOD_RULE = """
[[rule]]
id = "a"
name = "A"
category = "server"
evidence = "e"
description = "d"
match = [{ side = "user" }]
"""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[[rule", "Expected"),
        ('[[rule]]\nid = "a"', "must have the keys"),
        (GOOD_RULE + GOOD_RULE, "used twice"),
        (GOOD_RULE.replace('"server"', '"magic"'), "does not exist"),
        (GOOD_RULE.replace("{ side", "{ shape"), "unknown keys"),
        (GOOD_RULE.replace('{ side = "user" }', "{}"), "empty match"),
        (GOOD_RULE.replace('side = "user"', 'symbol = "("'), "bad pattern"),
        (GOOD_RULE.replace('side = "user"', 'phase = ["moon"]'), "phase that does not exist"),
        (GOOD_RULE.replace('side = "user"', 'symbol = "$moon"'), "not defined"),
    ],
)
def test_a_taxonomy_that_is_wrong_is_one_error(text: str, why: str) -> None:
    with pytest.raises(TlstaxError, match=r"cannot use the taxonomy x\.toml") as caught:
        taxonomy.parse({"x.toml": text})
    assert why in caught.value.why


def test_rules_that_disagree_make_a_sample_unknown() -> None:
    other = GOOD_RULE.replace('"a"', '"b"').replace('"server"', '"cipher"')
    rules = taxonomy.parse({"x.toml": GOOD_RULE + other})
    sample = taxonomy.Sample("command", -1, (FRAMES[0],), ())
    assert len(rules.hits(sample)) == 2
    assert rules.category(sample) == "unknown"


def test_ids_are_used_once_and_texts_are_there() -> None:
    rules = taxonomy.builtin().rules
    assert len({rule.id for rule in rules}) == len(rules)
    assert {rule.category for rule in rules} == set(CATEGORIES) - {"unknown"}
    values: list[Any] = [getattr(rule, key) for rule in rules for key in ("name", "evidence")]
    assert all(values)


def test_a_quantile_of_all_rounds_has_an_interval_by_rounds() -> None:
    rounds = [latency.bucketize(range(1000 * n, 1000 * n + 2000)) for n in range(8)]
    merged: latency.Buckets = {}
    for mine in rounds:
        for key, count in mine.items():
            merged[key] = merged.get(key, 0) + count
    merged = dict(sorted(merged.items()))
    found = latency.distribution("n", "l", "command", merged, rounds, units.rounds(8))
    p95 = next(one for one in found.quantiles if one.q == 0.95)
    assert p95.value_ns == pytest.approx(8200, rel=0.03), "of all values, not a median of rounds"
    assert p95.sampling is not None
    assert p95.sampling.low_ns is not None
    assert p95.sampling.high_ns is not None
    assert p95.sampling.low_ns < 7000 < p95.value_ns < p95.sampling.high_ns
    few = latency.distribution("n", "l", "command", merged, rounds[:7], units.rounds(7))
    assert {one.sampling for one in few.quantiles} == {None}
