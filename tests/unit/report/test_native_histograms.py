# SPDX-License-Identifier: GPL-2.0-only
"""Who gets native histograms, and what is in them. A real Prometheus reads them in tests/e2e."""

import math
import sys
import urllib.request
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import HistogramMetricFamily

from tlstax.analysis.fleet import histograms
from tlstax.analysis.fleet.continuous.counters import Counters
from tlstax.analysis.fleet.continuous.server_counters import ServerCounters
from tlstax.analysis.report.live import protobuf_exposition
from tlstax.analysis.report.live.prometheus import Exposition
from tlstax.analysis.report.live.protobuf_exposition import in_seconds, is_wanted

PROTOBUF = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
)
TEXTS = "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
COUNTS = st.dictionaries(st.integers(0, histograms.MOST), st.integers(1, 10**6), max_size=20)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (f"{PROTOBUF},{TEXTS}", True),  # Prometheus 2.42 with native histograms
        (f"{PROTOBUF};q=0.7,text/plain;version=0.0.4;q=0.3,*/*;q=0.1", True),
        (f"application/openmetrics-text;version=1.0.0,{TEXTS}", False),  # and without them
        (f"{PROTOBUF};q=0.2,text/plain;q=0.9", False),
        ("application/vnd.google.protobuf;proto=other;encoding=delimited", False),
        (PROTOBUF.replace("delimited", "text"), False),
        (f"{PROTOBUF};q=none", False),
        (f"text/plain,{PROTOBUF}", True),  # as much as a text
        (f"text/plain;q=nan,{PROTOBUF};q=0.5", True),
        (f"text/plain;q=inf,{PROTOBUF};q=0.5", True),
        (f"{PROTOBUF};q=0", False),
        ("*/*", False),
        ("", False),
    ],
)
def test_the_format_is_the_one_that_the_scraper_likes_best(accept: str, expected: bool) -> None:
    assert is_wanted(accept) is expected


@pytest.mark.parametrize(
    ("query", "kind"), [("", "application/vnd.google.protobuf"), ("?name[]=x", "text/plain")]
)
def test_a_scraper_that_names_metrics_gets_those_alone(query: str, kind: str) -> None:
    served = Exposition(ServerCounters({"db1": Counters()}), "127.0.0.1", 0)
    asked = urllib.request.Request(
        f"http://127.0.0.1:{served.port}/metrics{query}", headers={"Accept": PROTOBUF}
    )
    try:
        with urllib.request.urlopen(asked) as answer:
            assert answer.headers.get_content_type() == kind
            assert (answer.read() == b"") == bool(query)
    finally:
        served.close()


def test_without_protobuf_a_scraper_gets_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf.descriptor_pb2", None)
    protobuf_exposition._family.cache_clear()
    try:
        assert not is_wanted(f"{PROTOBUF},{TEXTS}")
    finally:
        protobuf_exposition._family.cache_clear()


@given(COUNTS)
def test_a_count_is_kept_and_moves_to_no_bucket_that_its_own_does_not_overlap(
    counts: dict[int, int],
) -> None:
    assert sum(in_seconds(counts).values()) == sum(counts.values())
    for index, count in counts.items():
        for second, part in in_seconds({index: count}).items():
            assert part > 0
            low_s, high_s = 2 ** ((second - 1) / 4), 2 ** (second / 4)
            assert low_s < histograms.upper(index) / 1e9
            assert high_s > histograms.lower(index) / 1e9


def test_a_full_bucket_is_divided_by_its_shares() -> None:
    index = histograms.bucket(1e9)  # 1 s ends a bucket of Prometheus, and lies within one here
    share = 4 * (math.log2(1e9) - math.log2(histograms.lower(index)))
    below = sum(part for second, part in in_seconds({index: 10_000}).items() if second <= 0)
    assert below == pytest.approx(10_000 * share, abs=1)


@given(COUNTS, st.lists(COUNTS, max_size=10))
def test_no_bucket_shrinks_while_counts_grow(
    first: dict[int, int], more: list[dict[int, int]]
) -> None:
    whole = [first]
    for grown in more:
        last = whole[-1]
        whole.append({key: last.get(key, 0) + grown.get(key, 0) for key in {*last, *grown}})
    for before, after in pairwise(map(in_seconds, whole)):
        assert all(after.get(index, 0) >= count for index, count in before.items())


def read_back(counts: dict[int, int]) -> dict[int, int]:
    """The native buckets of a message, as Prometheus takes them apart."""
    total = sum(counts.values())
    family = HistogramMetricFamily("tlstax_x", "Of x.", buckets=[("+Inf", total)], sum_value=1.5)
    family.native_counts = {(): counts}  # type: ignore[attr-defined]
    content = protobuf_exposition.render([family])
    size, shift, at = 0, 0, 0
    while content[at] > 127:
        size, shift, at = size | (content[at] & 127) << shift, shift + 7, at + 1
    size |= content[at] << shift
    assert len(content) == at + 1 + size
    message = protobuf_exposition._family().FromString(content[at + 1 :])
    (metric,) = message.metric
    found = metric.histogram
    assert (message.name, message.type, found.schema) == ("tlstax_x", 4, histograms.SCALE)
    assert (found.sample_count, found.sample_sum) == (total, 1.5)
    assert found.zero_threshold > 0
    made, index, count = {}, 0, 0
    deltas = iter(found.positive_delta)
    for span in found.positive_span:
        index += span.offset
        for _ in range(span.length):
            count += next(deltas)
            made[index], index = count, index + 1
    assert list(deltas) == []
    return made


@given(COUNTS)
def test_a_message_has_the_buckets_of_the_counts(counts: dict[int, int]) -> None:
    assert read_back(counts) == in_seconds(counts)


def test_an_empty_histogram_and_times_of_zero_are_native_too() -> None:
    assert read_back({}) == {}
    assert read_back({histograms.LEAST: 3}) == {}
