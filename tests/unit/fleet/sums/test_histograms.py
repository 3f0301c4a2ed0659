# SPDX-License-Identifier: GPL-2.0-only
"""Latencies of many hosts add up exactly, and a quantile lies in the bucket of the true value."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tlstax.analysis.fleet import histograms
from tlstax.analysis.fleet.histograms import SCALE, Histogram, add, bucket, dense, lower, upper

times = st.integers(min_value=0, max_value=1 << 62)


@given(times)
def test_a_time_lies_in_its_bucket(value_ns: int) -> None:
    index = bucket(value_ns)
    assert value_ns <= upper(index) or index == histograms.MOST
    assert value_ns > lower(index) or index == histograms.LEAST


@pytest.mark.parametrize("power", range(3, 60))
def test_bounds_belong_to_the_bucket_below_as_otlp_says(power: int) -> None:
    # OTLP: bucket i is (base^i, base^(i+1)], base = 2^(2^-scale).
    assert bucket(2**power) == (power << SCALE) - 1
    assert bucket(2**power + 1) == power << SCALE


@given(st.lists(st.lists(times, max_size=20), max_size=6))
def test_adding_is_counting_all_values_together(parts: list[list[int]]) -> None:
    each = [dense(Counter(bucket(value) for value in part)) for part in parts]
    together = dense(Counter(bucket(value) for part in parts for value in part))
    assert add(each) == together


def test_an_empty_histogram_has_no_quantile() -> None:
    assert dense({}) == Histogram(0, [])
    assert histograms.quantile({}, 0.5) is None


@pytest.mark.parametrize("q", [0.01, 0.5, 0.95, 0.99, 1.0])
def test_a_quantile_is_off_by_less_than_a_bucket(q: float) -> None:
    values = np.sort(np.random.default_rng(1).lognormal(13, 1, 20_000))
    counts = Counter(bucket(value) for value in values)
    found = histograms.quantile(counts, q) or 0.0
    true = values[max(0, math.ceil(q * len(values)) - 1)]
    assert found == pytest.approx(true, rel=2 ** (1 / (1 << SCALE)) - 1)
    below = np.array(list(counts.values())) @ histograms.parts_below(list(counts), found)
    assert below == pytest.approx(q * len(values), rel=0.01)
