# SPDX-License-Identifier: GPL-2.0-only
"""make check-canary can fail: for another difference, and for rounds that tell nothing."""

from tlstax.tests.truth.canary.check import Round, judge

MS = 1e6


def rounds(apart_ms: float, scatter_ms: float) -> list[Round]:
    """Twelve rounds in which TLS adds 3 ms by the lab's arms."""
    return [
        Round(3 * MS, (3 + apart_ms + scatter_ms * (-1) ** number) * MS) for number in range(12)
    ]


def test_the_same_difference_agrees() -> None:
    assert judge(rounds(0.0, 0.2), most=0.5).agrees


def test_another_difference_does_not() -> None:
    found = judge(rounds(1.0, 0.2), most=0.5)
    assert not found.agrees
    assert found.text.startswith("WRONG")


def test_rounds_that_scatter_are_no_agreement() -> None:
    found = judge(rounds(0.0, 4.0), most=0.5)
    assert found.half_width > 0.5
    assert not found.agrees
    assert found.text.startswith("UNDECIDED")


def test_a_lab_without_a_difference_is_no_agreement() -> None:
    nothing = [Round(0.0, 0.0)] * 12
    assert not judge(nothing, most=0.5).agrees
