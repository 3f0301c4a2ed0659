# SPDX-License-Identifier: GPL-2.0-only
"""How often each kind of interval contains what it estimates: simulated.

`make statistics-docs` writes the table of docs/statistics.md with it. Units are drawn
from four distributions: normal, lognormal (skewed), with one disturbed unit in eight (by five
standard deviations), and neighbouring windows with an autocorrelation of 0.8. Starts of a server
are drawn like that, and each of their rounds around its start.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from tlstax.analysis.statistics import medians, shares, units
from tlstax.analysis.statistics.calibrated import LEAST_STRETCHES, Stretch, part_of
from tlstax.analysis.statistics.medians import Estimate
from tlstax.analysis.statistics.sources import ErrorSources
from tlstax.analysis.statistics.units import Floats, Units
from tlstax.collectors.capture.order_statistics import LEAST_UNITS
from tlstax.tests.unit.statistics.start_units import (
    CENTRE,
    ROUNDS_OF_START,
    START_COUNTS,
    Draw,
    of_server_starts,
    rows,
    starts,
)

REPETITIONS: Final = 2000
LEAST: Final = 0.93
"""Coverage of what is printed as a 95 % interval."""
UNIT_COUNTS: Final = (4, 8, 14)
WINDOWS: Final = {4: 4, 8: 48, 14: 140}
"""Windows of as many blocks; four windows are four units of a range."""
_DISTURBANCE: Final = 50.0
_AUTOCORRELATION: Final = 0.8
_SAMPLES: Final = 300


class Case(NamedTuple):
    """One row of the table."""

    kind: str
    units: str
    coverage: float
    has_interval: bool


def normal(generator: np.random.Generator, count: int) -> Floats:
    """Units around CENTRE."""
    return generator.normal(CENTRE, 10.0, count)


def lognormal(generator: np.random.Generator, count: int) -> Floats:
    """The same median, skewed."""
    drawn: Floats = CENTRE * np.exp(generator.normal(0.0, 0.5, count))
    return drawn


def disturbed(generator: np.random.Generator, count: int) -> Floats:
    """One unit in eight took much longer; the median of the others is estimated."""
    drawn = normal(generator, count)
    drawn[: max(1, count // 8)] += _DISTURBANCE
    return drawn


def autocorrelated(generator: np.random.Generator, count: int) -> Floats:
    """Windows of which each resembles the one before."""
    noise = generator.normal(0.0, 10.0, count)
    noise[1:] *= np.sqrt(1 - _AUTOCORRELATION**2)
    for place in range(1, count):
        noise[place] += _AUTOCORRELATION * noise[place - 1]
    shifted: Floats = CENTRE + noise
    return shifted


DISTRIBUTIONS: Final[dict[str, Draw]] = {
    "normal": normal,
    "lognormal": lognormal,
    "one disturbed in eight": disturbed,
}


def blocks_of(windows: Floats) -> tuple[Floats, Units]:
    """Windows merged into blocks."""
    numbers = np.array(units.block_numbers([1] * len(windows)))
    count = int(numbers[-1]) + 1
    sums = np.bincount(numbers, windows) / np.bincount(numbers)
    return rows(sums), units.blocks(count)


def covered(
    make: Callable[[np.random.Generator], Estimate], truth: float, repetitions: int = REPETITIONS
) -> tuple[float, bool]:
    """The share of intervals that contain the truth, and whether they claim 95 %."""
    generator = np.random.default_rng(11)
    hits = 0
    for _ in range(repetitions):
        found = make(generator)
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= truth <= found.high
    return hits / repetitions, medians.has_interval(found.unit_count)


def cases(repetitions: int = REPETITIONS) -> Iterator[Case]:
    """Every kind of interval with every distribution and number of units."""
    for name, draw in DISTRIBUTIONS.items():
        for count in UNIT_COUNTS:
            for kind, make, truth in _of_rounds(draw, count):
                yield Case(kind, f"{count} rounds, {name}", *covered(make, truth, repetitions))
        for count in START_COUNTS:
            text = f"{count} server starts of {ROUNDS_OF_START} rounds, {name}"
            for kind, make, truth in of_server_starts(draw, starts(count)):
                yield Case(kind, text, *covered(make, truth, repetitions))
    for name, draw in {**DISTRIBUTIONS, "autocorrelation 0.8": autocorrelated}.items():
        for count, windows in WINDOWS.items():
            text = f"{windows} windows in {count} blocks, {name}"
            one = _of_blocks(draw, windows)
            yield Case("median of blocks", text, *covered(one, CENTRE, repetitions))
            if windows >= WINDOWS[LEAST_UNITS] and draw is not disturbed:
                # A disturbance is part of a mean: there is no other to estimate.
                mean = CENTRE * (float(np.exp(0.125)) if draw is lognormal else 1.0)
                whole = covered(_of_mean(draw, windows), mean, repetitions)
                yield Case("mean or total of a recording", text, *whole)
            two = _of_two_recordings(draw, windows)
            yield Case("difference of two recordings", text, *covered(two, 0.0, repetitions))
    for count in UNIT_COUNTS:
        made = covered(_of_samples(count), 0.3, repetitions)
        yield Case("share of samples", f"{count} rounds, shares 0.3 ± 0.03", *made)
        if count >= LEAST_UNITS:
            quantile = covered(_of_histograms(count), *_true_quantile(), repetitions)
            yield Case("p95 of merged histograms", f"{count} rounds, lengths ± 10 %", *quantile)
            forecast = covered(_of_forecast(count), 2 * CENTRE, repetitions)
            yield Case("prediction from units and costs", f"{count} rounds, normal", *forecast)
    for name, course in COURSES.items():
        for count in (LEAST_STRETCHES, 14, 30):
            made = covered(_of_stretches(course, count), 1.0, repetitions)
            yield Case("part of a time, calibrated", f"{count} stretches, {name}", *made)


def _of_rounds(
    draw: Draw, count: int
) -> Iterator[tuple[str, Callable[[np.random.Generator], Estimate], float]]:
    """Intervals over rounds: one arm, two arms of the same rounds, two experiments."""
    sides = units.rounds(count), units.rounds(count)

    def single(generator: np.random.Generator) -> Estimate:
        return medians.estimate(rows(draw(generator, count)), sides[0])

    def arms(generator: np.random.Generator) -> tuple[Floats, Floats]:
        # What the machine does to a round it does to both of its arms.
        common = generator.normal(0.0, 20.0, count)
        return rows(500.0 + common), rows(500.0 + common + draw(generator, count))

    def paired(generator: np.random.Generator) -> Estimate:
        return medians.difference(*arms(generator), sides, is_paired=True)

    def paired_ratio(generator: np.random.Generator) -> Estimate:
        before = generator.normal(500.0, 20.0, count)
        after = before * draw(generator, count) / CENTRE
        return medians.ratio(rows(before), rows(after), sides, is_paired=True)

    def independent(generator: np.random.Generator) -> Estimate:
        before, after = rows(draw(generator, count)), rows(draw(generator, count))
        return medians.difference(before, after, sides, is_paired=False)

    def independent_ratio(generator: np.random.Generator) -> Estimate:
        before, after = rows(draw(generator, count)), rows(draw(generator, count))
        return medians.ratio(before, after, sides, is_paired=False)

    yield "median", single, CENTRE
    yield "difference of paired arms", paired, CENTRE
    yield "ratio of paired arms", paired_ratio, 1.0
    yield "difference of two experiments", independent, 0.0
    yield "ratio of two experiments", independent_ratio, 1.0


def _of_blocks(draw: Draw, windows: int) -> Callable[[np.random.Generator], Estimate]:
    # Blocks are means of windows: of a skewed distribution their median is near its mean.
    scale = float(np.exp(0.125)) if draw is lognormal else 1.0

    def make(generator: np.random.Generator) -> Estimate:
        values, blocks = blocks_of(draw(generator, windows) / scale)
        return medians.estimate(values, blocks)

    return make


def _of_mean(draw: Draw, windows: int) -> Callable[[np.random.Generator], Estimate]:
    """The mean of all windows (a total, the mean handshake) within the bounds of its blocks."""

    def make(generator: np.random.Generator) -> Estimate:
        windows_ns = draw(generator, windows)
        values, blocks = blocks_of(windows_ns)
        return medians.around(float(windows_ns.mean()), values, blocks)

    return make


def _of_two_recordings(draw: Draw, windows: int) -> Callable[[np.random.Generator], Estimate]:
    def make(generator: np.random.Generator) -> Estimate:
        (before, first), (after, second) = (blocks_of(draw(generator, windows)) for _ in range(2))
        return medians.difference(before, after, (first, second), is_paired=False)

    return make


def _of_samples(count: int) -> Callable[[np.random.Generator], Estimate]:
    def make(generator: np.random.Generator) -> Estimate:
        totals = generator.poisson(_SAMPLES, count).astype(np.float64)
        each = np.clip(generator.normal(0.3, 0.03, count), 0.0, 1.0)
        hits = generator.binomial(totals.astype(np.int64), each).astype(np.float64)
        return shares.share(hits, totals, units.rounds(count))

    return make


def _lengths(generator: np.random.Generator, count: int) -> Floats:
    """Values of each round: exponential, with a length of their own."""
    drawn: Floats = generator.exponential(1.0, (count, _SAMPLES)) * np.exp(
        generator.normal(0.0, 0.1, (count, 1))
    )
    return drawn


def _true_quantile() -> tuple[float]:
    many = _lengths(np.random.default_rng(3), 4000)
    return (float(np.quantile(many, 0.95)),)


def _of_histograms(count: int) -> Callable[[np.random.Generator], Estimate]:
    def make(generator: np.random.Generator) -> Estimate:
        values = _lengths(generator, count)
        merged = np.sort(values.ravel())

        def at(q: float) -> float:
            return float(merged[min(len(merged) - 1, int(q * len(merged)))])

        below = (values < at(0.95)).sum(axis=1).astype(np.float64)
        equal = (values == at(0.95)).sum(axis=1).astype(np.float64)
        totals = np.full(count, float(_SAMPLES))
        return shares.quantile(0.95, at, below, equal, totals, units.rounds(count))

    return make


def _of_forecast(count: int) -> Callable[[np.random.Generator], Estimate]:
    """A recording plus a cost that was measured apart."""

    def make(generator: np.random.Generator) -> Estimate:
        rounds = units.rounds(count)
        layout = ErrorSources({"recording": rounds})
        recorded = rows(draw := normal(generator, count))
        recorded[0] = np.median(draw)
        cost = generator.normal(CENTRE, 5.0)
        costs = layout.draw(cost, cost - 1.96 * 5, cost + 1.96 * 5)
        total = layout.rows_of("recording", recorded) + costs
        low, high = layout.interval(total, {})
        return Estimate(float(total[0]), low, high, count)

    return make


_SECONDS: Final = 240
_PART: Final = 0.2
_HITS: Final = 20.0
"""Samples in the part in a second; a stretch takes a fifth of one."""


def _steady(generator: np.random.Generator) -> Floats:
    return np.exp(generator.normal(0.0, 0.02, _SECONDS))


def _drifting(generator: np.random.Generator) -> Floats:
    turn = np.linspace(0.0, 2 * np.pi, _SECONDS) + generator.uniform(0.0, 2 * np.pi)
    return np.exp(0.3 * np.sin(turn))


def _stepping(generator: np.random.Generator) -> Floats:
    return np.where(np.arange(_SECONDS) < generator.integers(_SECONDS), 1.0, 1.5)


def _bursting(generator: np.random.Generator) -> Floats:
    return np.where(generator.random(_SECONDS) < 0.1, 10.0, 1.0)


COURSES: Final[dict[str, Callable[[np.random.Generator], Floats]]] = {
    "steady": _steady,
    "drifting": _drifting,
    "one step by half": _stepping,
    "ten times as much in a tenth of the time": _bursting,
}
"""The part in each second."""


def _of_stretches(
    course: Callable[[np.random.Generator], Floats], count: int
) -> Callable[[np.random.Generator], Estimate]:
    """The part of a recording, over the true one; samples see 80 to 95 % of it."""

    def make(generator: np.random.Generator) -> Estimate:
        load = np.exp(generator.normal(0.0, 0.3, _SECONDS))
        each = course(generator)
        seen = np.where(each > each.mean(), 0.95, 0.8)
        hits = generator.poisson(_HITS * seen * load * each)
        at = ((np.arange(count) + generator.random(count)) * _SECONDS / count).astype(int)
        wholes = load[at] * np.exp(generator.normal(0.0, 0.1, count)) / 5
        parts = wholes * each[at] * _PART * np.exp(generator.normal(0.0, 0.05, count))
        few = generator.poisson(_HITS * seen[at] * wholes * each[at])
        stretches = [Stretch(*one) for one in zip(wholes, parts, few.tolist(), strict=True)]
        found = part_of(stretches, float(load.sum()), int(hits.sum()))
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        true = float((load * each).sum()) * _PART
        return Estimate(found.value / true, found.low / true, found.high / true, found.unit_count)

    return make


def write(path: Path) -> None:
    """Replace the table of the page."""
    lines = ["| interval | units | contains the truth | printed as |", "|---|---|---|---|"]
    for case in cases():
        what = "95 % interval" if case.has_interval else "range"
        lines.append(f"| {case.kind} | {case.units} | {case.coverage * 100:.1f} % | {what} |")
    text = path.read_text()
    start = text.index(lines[0])
    end = text.index("\n\n", start)
    path.write_text(text[:start] + "\n".join(lines) + text[end:])


if __name__ == "__main__":
    write(Path(sys.argv[1]))
