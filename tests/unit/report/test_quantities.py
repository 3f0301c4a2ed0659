# SPDX-License-Identifier: GPL-2.0-only
"""How numbers are written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tlstax.analysis import quantities


@pytest.mark.parametrize(
    ("value_ns", "text"),
    [
        (0, "0 ns"),
        (1e-9, "0 ns"),
        (7, "7 ns"),
        (7.25, "7.25 ns"),
        (999, "999 ns"),
        (999.6, "1.00 µs"),
        (381_000, "381 µs"),
        (999_949, "1.00 ms"),
        (2_812_000, "2.81 ms"),
        (12_345_678, "12.3 ms"),
        (-2_812_000, "−2.81 ms"),
        (61e9, "61.0 s"),
        (4_321e9, "4,321 s"),
        (None, "–"),
        (float("nan"), "–"),
    ],
)
def test_time(value_ns: float | None, text: str) -> None:
    assert quantities.time(value_ns).replace("\u00a0", " ") == text


def test_time_change_always_has_a_sign_unless_it_is_nothing() -> None:
    assert quantities.time_change(1500) == "+1.50\u00a0µs"
    assert quantities.time_change(-1500) == "−1.50\u00a0µs"
    assert quantities.time_change(1e-7) == "0\u00a0ns"


def test_interval_has_one_unit_for_both_bounds() -> None:
    assert quantities.time_interval(2.43e6, 2.4e6, 2.461e6) == "[2.40, 2.46]\u00a0ms"
    assert quantities.time_interval(934, 560, 1310) == "[0.56, 1.31]\u00a0µs"
    assert quantities.time_interval(5, None, 7) == ""
    assert quantities.time_interval(0, 0, 0) == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 %"),
        (1, "100 %"),
        (0.00999, "1.0 %"),
        (0.0042, "0.42 %"),
        (0.97, "97.0 %"),
        (0.9951, "99.51 %"),
        (-0.172, "−17.2 %"),
        (-0.000001, "0.00 %"),
        (None, "–"),
    ],
)
def test_share(value: float | None, text: str) -> None:
    assert quantities.share(value).replace("\u00a0", " ") == text


def test_counts_ratios_sizes_and_names() -> None:
    assert quantities.count(18234) == "18,234"
    assert quantities.count(2.5) == "2.50"
    assert quantities.ratio(7.381) == "7.38\u00a0×"
    assert quantities.size(30_212_096) == "28.8\u00a0MiB"
    assert quantities.rate(6172.8) == "6,173\u00a0/s"
    assert quantities.fraction(1.0041) == "1.004"
    assert quantities.quantile(0.999) == "p99.9"
    assert quantities.quantile(1.0) == "max"
    assert quantities.name("blocked_network") == "blocked network"
    assert quantities.name("on_cpu") == "on CPU"


def test_no_line_breaks_between_a_number_and_its_unit() -> None:
    assert quantities.typeset("takes 2.81 ms, 48 % of it") == "takes 2.81\u00a0ms, 48\u00a0% of it"
    assert quantities.typeset("4 samples") == "4 samples"


@given(st.floats(min_value=0.01, max_value=9e17))
def test_three_digits_are_kept(value_ns: float) -> None:
    text = quantities.time(value_ns)
    number, unit = text.split("\u00a0")
    scale = {"ns": 1.0, "µs": 1e3, "ms": 1e6, "s": 1e9}[unit]
    shown_ns = float(number.replace(",", "")) * scale
    assert shown_ns == pytest.approx(value_ns, rel=0.006, abs=0.0051)
