# SPDX-License-Identifier: GPL-2.0-only
"""Units, ranks and verdicts, against published values and by hand."""

import math
from fractions import Fraction

import numpy as np
import pytest

from tlstax.analysis.statistics import medians, shares, units, verdicts
from tlstax.analysis.statistics.medians import Estimate
from tlstax.analysis.statistics.sources import ErrorSources
from tlstax.collectors.capture.order_statistics import median_ranks

EIGHT = np.array([0.0, 5.0, 1.0, 8.0, 3.0, 2.0, 7.0, 4.0, 6.0])


def test_windows_become_blocks_that_hardly_resemble_each_other() -> None:
    def of_equal(count: int) -> list[int]:
        return units.block_numbers([7] * count)

    assert of_equal(0) == []
    assert of_equal(3) == [0, 1, 2]
    assert max(of_equal(47)) == 6, "fewer than eight blocks: a range"
    assert of_equal(48) == [place // 6 for place in range(48)]
    assert max(of_equal(140)) == 13
    assert max(of_equal(10_000)) == 29


def test_blocks_last_as_long_as_each_other_and_none_is_empty() -> None:
    """As a budget cuts dense windows: short ones first."""
    short_first = [100, 100, 200, 200, 500, *[2000] * 9]
    numbers = units.block_numbers(short_first)
    lasts = np.bincount(numbers, short_first)
    assert len(lasts) == 7
    assert lasts.max() <= 2 * lasts.min(), lasts
    assert units.block_numbers([1, 1, 1, 1000]) == [0, 1, 2, 3]
    assert max(units.block_numbers([1] * 10 + [0] * 10, 3)) == 2, "windows without a length"
    assert units.block_numbers([1000, 1, 1, 1, *[1] * 4]) == [0, 1, 2, 3, 4, 5, 6, 6]


def test_the_first_row_is_everything_and_the_others_one_unit_each() -> None:
    weights = units.unit_weights(3)
    assert weights.tolist() == [[1, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_the_ranks_of_a_median() -> None:
    # Two-sided binomial: 1 of 8 from each end holds 99.2 %, 2 of 8 hold 92.97 %.
    found = medians.estimate(EIGHT, units.rounds(8))
    assert found.value == 4.5
    assert found.low is not None
    assert 1.9 < found.low < 2, "between the first and the second, near the second"
    assert found.high == pytest.approx(9 - found.low)
    serial = medians.estimate(EIGHT, units.blocks(8))
    assert serial.low is not None
    assert 1 < serial.low < 1.3, "blocks of a recording: nearly their range"


def test_one_disturbed_round_of_eight_moves_little() -> None:
    disturbed = np.where(EIGHT == 8, 1000.0, EIGHT)
    found = medians.estimate(disturbed, units.rounds(8))
    assert found.value == 4.5
    assert found.high is not None
    assert found.high < 75


def test_few_units_have_their_range_and_their_count() -> None:
    found = medians.estimate(np.array([0.0, 3.0, 1.0, 2.0]), units.rounds(3))
    assert found == Estimate(2.0, 1.0, 3.0, 3)
    assert medians.estimate(np.array([0.0, 3.0]), units.rounds(1)) == Estimate(3.0, unit_count=1)


def test_units_without_operations_do_not_count() -> None:
    values = np.append(EIGHT, [np.nan, np.inf])
    assert medians.estimate(values, units.rounds(10)).unit_count == 8
    assert medians.estimate(np.array([7.0, np.nan]), units.rounds(1)) == Estimate(7.0, unit_count=0)


def test_a_total_lies_within_its_bounds() -> None:
    found = medians.around(50.0, EIGHT, units.rounds(8))
    assert (found.value, found.high) == (50.0, 50.0)


@pytest.mark.parametrize(
    ("t", "freedom", "p"), [(12.706, 1, 0.05), (4.303, 2, 0.05), (2.365, 7, 0.05), (3.707, 6, 0.01)]
)
def test_student_against_any_table(t: float, freedom: int, p: float) -> None:
    assert verdicts.student_tail(t, freedom) == pytest.approx(p, rel=2e-3)
    assert verdicts.student_tail(0.0, freedom) == 1.0


@pytest.mark.parametrize("freedom", [1, 2, 3, 8, 11, 200])
def test_many_tails_are_those_of_one(freedom: int) -> None:
    t = np.array([-40.0, -1.0, 0.0, 0.3, 2.0, 9.0])
    found = verdicts.student_tails(t, freedom)
    assert found == pytest.approx([verdicts.student_tail(one, freedom) for one in t.tolist()])
    assert (found >= 0).all()


@pytest.mark.parametrize("count", [8, 9, 40, 333])
@pytest.mark.parametrize("level", [0.95, 0.99])
def test_the_ranks_of_a_median_are_those_of_the_binomial_distribution(
    count: int, level: float
) -> None:
    rank, weight = median_ranks(count, level)

    def outside(at: int) -> Fraction:
        return Fraction(2 * sum(math.comb(count, k) for k in range(at)), 2**count)

    assert outside(rank) <= 1 - level < outside(rank + 1) or (rank, weight) == (1, 0.0)
    assert 0 <= weight < 1


def test_the_ranks_of_ten_thousand_hosts_are_near_those_of_the_normal_distribution() -> None:
    rank, weight = median_ranks(10_000, 0.95)
    assert rank + weight == pytest.approx(5000.5 - 1.96 * 50, abs=0.5)


def test_the_published_example_of_benjamini_and_hochberg() -> None:
    # Their 15 comparisons of thrombolysis: four are rejected.
    published = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344]
    published += [0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0]
    assert verdicts.largest_marked(published) == 0.0095
    assert verdicts.largest_marked([0.2, 0.9]) is None


def test_wilson_against_published_values() -> None:
    # Newcombe 1998, table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29.
    for hits, total, low, high in (
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ):
        assert shares.wilson(hits, total) == pytest.approx((low, high), abs=1e-4)
    assert shares.wilson(0, 0) == (0.0, 1.0)


def test_samples_that_cluster_in_rounds_are_worth_fewer() -> None:
    totals = np.full(8, 100.0)
    even = shares.share(np.full(8, 30.0), totals, units.rounds(8))
    uneven = shares.share(np.array([10.0, 50.0] * 4), totals, units.rounds(8))
    assert even.value == uneven.value == pytest.approx(0.3)
    assert even.low is not None
    assert uneven.low is not None
    assert even.low - uneven.low > 0.08


def test_independent_errors_add_up_by_their_squares() -> None:
    layout = ErrorSources({"first": units.rounds(8), "second": units.rounds(8)})
    low, high = layout.interval(
        layout.rows_of("first", EIGHT) + layout.rows_of("second", EIGHT), {"second": 2.0}
    )
    one = medians.estimate(EIGHT, units.rounds(8))
    assert one.high is not None
    assert high == pytest.approx(2 * one.value + (one.high - one.value) * math.sqrt(3))
    assert low == pytest.approx(4 * one.value - high), "the units are symmetric"
