# SPDX-License-Identifier: GPL-2.0-only
"""The score of `make check-whatif`: wide intervals pay, wrong ones pay more."""

import pytest

from tlstax.analysis.model.tables import Measure
from tlstax.analysis.model.whatif import Forecast
from tlstax.tests.truth.whatif import score
from tlstax.tests.truth.whatif.cases import CASES, HELD_OUT


def forecast(now: tuple[float, float], then: tuple[float, float] | None) -> Forecast:
    def measure(low: float, high: float) -> Measure:
        return Measure((low + high) / 2, low, high, 8)

    wished = None if then is None else measure(*then)
    return Forecast("server_cpu", "", measure(*now), wished, {}, None, is_wide=False, reason="")


def test_the_score_is_the_width_and_what_is_outside() -> None:
    assert score.interval_score(2.0, 5.0, 3.0) == 3.0
    assert score.interval_score(2.0, 5.0, 6.0) == pytest.approx(3.0 + 40.0)
    assert score.interval_score(2.0, 5.0, 1.5) == pytest.approx(3.0 + 20.0)


@pytest.mark.parametrize(
    ("then", "contains", "better"),
    [
        ((4.0, 6.0), True, True),
        ((0.0, 300.0), True, False),
        ((7.0, 7.2), False, True),
        ((0.1, 0.2), False, False),
    ],
)
def test_a_prediction_is_held_against_no_change(
    then: tuple[float, float], contains: bool, better: bool
) -> None:
    """Measured: 5; in the recording it was 9 to 10, so that no change scores 161."""
    (found,) = score.of_forecast(forecast((9.0, 10.0), then), 5.0)
    assert found.of_no_change == pytest.approx(161.0)
    assert (found.contains, found.is_better) == (contains, better)


def test_nine_of_ten_must_be_right_and_better() -> None:
    right, wrong = score.Scored(True, 1.0, 2.0), score.Scored(False, 3.0, 2.0)
    assert score.is_enough([right] * 9 + [wrong])
    assert not score.is_enough([right] * 8 + [wrong] * 2)
    assert not score.is_enough([right] * 8 + [score.Scored(True, 3.0, 2.0)] * 2)
    assert not score.is_enough([])
    assert score.of_forecast(forecast((9.0, 10.0), None), 5.0) == []
    assert "9 of 10 intervals contain" in score.summary([right] * 9 + [wrong])


def test_nothing_was_fitted_on_what_is_held_out() -> None:
    known = [one for case in CASES for one in (case.before, case.after)]
    fitted = {(one.key, one.threads, one.scenario) for one in known}
    for case in HELD_OUT:
        assert (case.before.key, case.before.threads, case.before.scenario) not in fitted
    names = [one.name for case in HELD_OUT for one in (case.before, case.after)]
    assert len({*names}) > len(HELD_OUT)
