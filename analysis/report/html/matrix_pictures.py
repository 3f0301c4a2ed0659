# SPDX-License-Identifier: GPL-2.0-only
"""Where the lines and dots of a matrix's pictures stand. Computes no number."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tlstax.analysis import quantities
from tlstax.analysis.report import texts

Json = Mapping[str, Any]

WIDTH: Final = 760.0
HEIGHT: Final = 280.0
LEFT, RIGHT, TOP, FOOT = 70.0, 12.0, 12.0, 34.0
COLOURS: Final = 5  # --series-0 .. --series-4
LINES_MAX: Final = 10  # in one picture; more cannot be told apart


class Tick(NamedTuple):
    """A line of the grid."""

    at: float
    text: str


class Line(NamedTuple):
    """One series."""

    name: str
    colour: int
    dashed: bool
    path: str
    dots: list[tuple[float, float]]
    bars: list[tuple[float, float, float]]  # x, low y, high y


class Picture(NamedTuple):
    """One chart."""

    title: str
    text: str
    x_label: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    lines: list[Line]


Scale = Callable[[float], float]


def pictures(document: Json) -> list[Picture]:
    """Throughput by threads, distributions and single operations, for each load that has them."""
    found: list[Picture] = []
    for title, cells in _by(document["cells"], without=("threads", "tls", "key")):
        if len({cell["place"]["threads"] for cell in cells}) > 1:
            found.append(_by_threads(title, cells))
    for title, cells in _by(document["cells"], without=("tls", "key", "transport")):
        with_cdf = [cell for cell in cells if cell["cdf"]]
        for start in range(0, len(with_cdf), LINES_MAX):
            found.append(_cdf(title, with_cdf[start : start + LINES_MAX]))
        connecting = [cell for cell in cells if cell["dots"]]
        for start in range(0, len(connecting), LINES_MAX):
            found.append(_scatter(title, connecting[start : start + LINES_MAX]))
    return found


def _by(cells: Iterable[Json], without: Sequence[str]) -> list[tuple[str, list[Json]]]:
    """Cells that lie alike but in some dimensions, by what they share."""
    found: dict[str, list[Json]] = {}
    for cell in cells:
        place = {
            name: value
            for name, value in cell["place"].items()
            if name not in without and value not in ("off", 0)
        }
        title = " ".join(
            f"{value} {name}" if name == "threads" else str(value) for name, value in place.items()
        )
        found.setdefault(title, []).append(cell)
    return list(found.items())


def _name(cell: Json, cells: Sequence[Json]) -> str:
    """What tells a cell from the others of its picture."""
    names = [
        name
        for name in cell["place"]
        if len({other["place"][name] for other in cells}) > 1 and name != "threads"
    ]
    return ", ".join(
        f"{'TLS ' if name == 'tls' else ''}{cell['place'][name]}" for name in names
    ) or str(cell["label"])


def _by_threads(title: str, cells: Sequence[Json]) -> Picture:
    """Mean and standard deviation of operations/s over threads."""
    threads = sorted({cell["place"]["threads"] for cell in cells})
    top = max(_upper(cell) for cell in cells)
    x = _scale([math.log2(count) for count in threads], LEFT + 20, WIDTH - RIGHT - 20)
    y = _scale([0.0, top], HEIGHT - FOOT, TOP)
    series: dict[str, list[Json]] = {}
    for cell in cells:
        series.setdefault(_name(cell, cells), []).append(cell)
    lines = []
    for number, (name, mine) in enumerate(series.items()):
        mine.sort(key=lambda cell: cell["place"]["threads"])
        points = [
            (x(math.log2(cell["place"]["threads"])), y(cell["operations_per_s"]["mean"]))
            for cell in mine
        ]
        bars = [
            (point[0], y(_lower(cell)), y(_upper(cell)))
            for point, cell in zip(points, mine, strict=True)
        ]
        dashed = number >= COLOURS
        lines.append(Line(name, number % COLOURS, dashed, _path(points), points, bars))
    return Picture(
        f"Operations per second by threads: {title}",
        "Mean of the rounds; the bars are one standard deviation to each side.",
        "client threads",
        [Tick(x(math.log2(count)), str(count)) for count in threads],
        [Tick(y(value), texts.rate(value)) for value in _round_values(0.0, top)],
        lines,
    )


def _upper(cell: Json) -> float:
    return float(cell["operations_per_s"]["mean"] + (cell["operations_per_s"]["sd"] or 0.0))


def _lower(cell: Json) -> float:
    spread = cell["operations_per_s"]
    return max(0.0, float(spread["mean"] - (spread["sd"] or 0.0)))


def _cdf(title: str, cells: Sequence[Json]) -> Picture:
    """Cumulative distributions of the latency of an operation, as the clients saw it."""
    values = [math.log10(max(point[0], 1.0)) for cell in cells for point in cell["cdf"]]
    x, y = _scale(values, LEFT, WIDTH - RIGHT), _scale([0.0, 1.0], HEIGHT - FOOT, TOP)
    lines = []
    for number, cell in enumerate(cells):
        points = [(x(math.log10(max(at, 1.0))), y(share)) for at, share in cell["cdf"]]
        name = _name(cell, cells)
        lines.append(Line(name, number % COLOURS, number >= COLOURS, _path(points), [], []))
    return Picture(
        f"Latency of an operation at the client: {title}",
        "Share of operations that took no longer.",
        "latency, logarithmic",
        _decades(min(values), max(values), x),
        [Tick(y(share), quantities.share(share)) for share in (0.0, 0.25, 0.5, 0.75, 1.0)],
        lines,
    )


def _scatter(title: str, cells: Sequence[Json]) -> Picture:
    """One dot for each operation that was kept, in the order in which they ended."""
    values = [math.log10(max(value, 1)) for cell in cells for value in cell["dots"]]
    most = max(len(cell["dots"]) for cell in cells)
    x = _scale([0.0, float(max(1, most - 1))], LEFT, WIDTH - RIGHT)
    y = _scale(values, HEIGHT - FOOT, TOP)
    lines = []
    for number, cell in enumerate(cells):
        dots = [
            (x(place), y(math.log10(max(value, 1)))) for place, value in enumerate(cell["dots"])
        ]
        name = _name(cell, cells)
        lines.append(Line(name, number % COLOURS, number >= COLOURS, "", dots, []))
    return Picture(
        f"Single operations: {title}",
        "One dot for each operation that was kept, in the order in which they ended.",
        "operations in their order",
        [],
        _decades(min(values), max(values), y),
        lines,
    )


def _scale(values: Sequence[float], start: float, end: float) -> Scale:
    """From values to places."""
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    return lambda value: start + (value - low) / span * (end - start)


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) if points else ""


def _decades(low: float, high: float, scale: Scale) -> list[Tick]:
    """Round times on a logarithmic axis: 1, 2 and 5 where there are few decades."""
    steps = (1, 2, 5) if high - low < 2.5 else (1,)
    values = [
        step * 10.0**power
        for power in range(math.floor(low), math.ceil(high) + 1)
        for step in steps
    ]
    return [
        Tick(scale(math.log10(value)), quantities.time(value))
        for value in values
        if low - 0.02 <= math.log10(value) <= high + 0.02
    ]


def _round_values(low: float, high: float) -> list[float]:
    rough = (high - low) / 4 or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * nice for nice in (1, 2, 5, 10) if power * nice >= rough)
    return [low + step * number for number in range(int((high - low) / step) + 1)]
