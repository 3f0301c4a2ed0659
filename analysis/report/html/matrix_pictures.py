# SPDX-License-Identifier: GPL-2.0-only
"""The charts of a matrix: throughput by threads, distributions, single operations."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tlstax.analysis import quantities
from tlstax.analysis.report.html import bars, lines
from tlstax.analysis.report.html.lines import (
    COLOURS,
    FOOT,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Line,
    Picture,
    Tick,
)

Json = Mapping[str, Any]

LINES_MAX: Final = 10  # in one picture; more cannot be told apart


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
    x = lines.scale([math.log2(count) for count in threads], LEFT + 20, WIDTH - RIGHT - 20)
    y = lines.scale([0.0, top], HEIGHT - FOOT, TOP)
    series: dict[str, list[Json]] = {}
    for cell in cells:
        series.setdefault(_name(cell, cells), []).append(cell)
    drawn = []
    for number, (name, mine) in enumerate(series.items()):
        mine.sort(key=lambda cell: cell["place"]["threads"])
        points = [
            (x(math.log2(cell["place"]["threads"])), y(cell["operations_per_s"]["value"]))
            for cell in mine
        ]
        spreads = [
            (point[0], y(_lower(cell)), y(_upper(cell)))
            for point, cell in zip(points, mine, strict=True)
        ]
        dashed = number >= COLOURS
        drawn.append(Line(name, number % COLOURS, dashed, lines.path(points), points, spreads))
    return Picture(
        f"Operations per second by threads: {title}",
        "Median of the rounds; the bars are its bounds.",
        "client threads",
        [Tick(x(math.log2(count)), str(count)) for count in threads],
        [Tick(y(value), quantities.three_digits(value)) for value in bars.round_values(0.0, top)],
        drawn,
    )


def _upper(cell: Json) -> float:
    rate = cell["operations_per_s"]
    return float(rate["value"] if rate["high"] is None else rate["high"])


def _lower(cell: Json) -> float:
    rate = cell["operations_per_s"]
    return float(rate["value"] if rate["low"] is None else rate["low"])


def _cdf(title: str, cells: Sequence[Json]) -> Picture:
    """Cumulative distributions of the latency of an operation, as the clients saw it."""
    series = [(_name(cell, cells), cell["cdf"]) for cell in cells]
    return lines.cumulative(f"Latency of an operation at the client: {title}", series)


def _scatter(title: str, cells: Sequence[Json]) -> Picture:
    """One dot for each operation that was kept, in the order in which they ended."""
    values = [math.log10(max(value, 1)) for cell in cells for value in cell["dots"]]
    most = max(len(cell["dots"]) for cell in cells)
    x = lines.scale([0.0, float(max(1, most - 1))], LEFT, WIDTH - RIGHT)
    y = lines.scale(values, HEIGHT - FOOT, TOP)
    drawn = []
    for number, cell in enumerate(cells):
        dots = [
            (x(place), y(math.log10(max(value, 1)))) for place, value in enumerate(cell["dots"])
        ]
        name = _name(cell, cells)
        drawn.append(Line(name, number % COLOURS, number >= COLOURS, "", dots, []))
    return Picture(
        f"Single operations: {title}",
        "One dot for each operation that was kept, in the order in which they ended.",
        "operations in their order",
        [],
        lines.decades(min(values), max(values), y),
        drawn,
    )
