# SPDX-License-Identifier: GPL-2.0-only
"""A comparison of TLS libraries as one HTML page with one picture: stacked bars, no script."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from markupsafe import Markup

from tlstax import __version__
from tlstax.analysis import quantities
from tlstax.analysis.report import texts
from tlstax.analysis.report.html import page as html
from tlstax.analysis.report.html.palette import category_colours

Json = Mapping[str, Any]

BARS_FROM: Final = 150.0
BARS_TO: Final = 900.0
BAR: Final = 20.0
GAP: Final = 8.0
COSTS: Final = (
    ("handshake", "One handshake", "CPU time of the server that TLS adds to a connect"),
    ("record", "One KB of result", "CPU time of the server that TLS adds to a KB that it sends"),
)


class Part(NamedTuple):
    """One category in a bar."""

    x: float
    width: float
    colour: str
    title: str


class Bar(NamedTuple):
    """One server."""

    name: str
    y: float
    end: float
    label: str
    low: float | None
    high: float | None
    parts: list[Part]


def render(document: Json) -> str:
    """The page for a comparison (as plain values)."""
    style = html.asset("report.css") + "\n" + html.asset("libraries.css")
    servers = document["servers"]
    charts = [(title, text, *_chart(servers, cost)) for cost, title, text in COSTS]
    tables = [(title, texts.largest_categories(servers, cost), cost) for cost, title, _ in COSTS]
    return (
        html.environment()
        .get_template("libraries.html.j2")
        .render(
            doc=document,
            version=__version__,
            style=Markup(style),
            policy=html.policy([], [style]),
            charts=charts,
            tables=tables,
            legend=_legend(servers),
            bar=BAR,
            left=BARS_FROM,
            width=BARS_TO + 160,
            hot_sentence=texts.hot_sentence,
        )
    )


def _chart(servers: Sequence[Json], cost: str) -> tuple[list[Bar], float]:
    """The bars of one cost, and the height of the picture."""
    present = [server for server in servers if server[cost]]
    widest = max((_reach(server[cost]) for server in present), default=1.0)
    scale = (BARS_TO - BARS_FROM) / widest
    bars = [
        _bar(server, cost, GAP + index * (BAR + GAP), scale) for index, server in enumerate(present)
    ]
    return bars, GAP + len(bars) * (BAR + GAP)


def _reach(cost: Json) -> float:
    """How far to the right a bar and its interval go, in ns; never 0."""
    added = sum(max(0.0, float(entry["cost"]["value_ns"])) for entry in cost["categories"])
    return max(added, float(cost["total"]["high_ns"] or 0.0), 1e-9)


def _bar(server: Json, cost: str, y: float, scale: float) -> Bar:
    """Categories that add, stacked; one that takes away cannot be drawn and is in the table."""
    colours, x, drawn = category_colours(), BARS_FROM, []
    for entry in sorted(server[cost]["categories"], key=lambda entry: -entry["cost"]["value_ns"]):
        value_ns = entry["cost"]["value_ns"]
        if value_ns <= 0:
            continue
        name = quantities.name(entry["category"])
        title = f"{server['name']}, {name}: {quantities.time(value_ns)}"
        drawn.append(Part(x, value_ns * scale, colours.get(entry["category"], "#979ca3"), title))
        x += value_ns * scale
    total = server[cost]["total"]
    low, high = (
        None if total[key] is None else BARS_FROM + max(0.0, total[key]) * scale
        for key in ("low_ns", "high_ns")
    )
    label = quantities.time(total["value_ns"])
    return Bar(server["name"], y, max(x, high or 0.0), label, low, high, drawn)


def _legend(servers: Sequence[Json]) -> list[tuple[str, str]]:
    """Name and colour of each category that occurs."""
    names = {
        entry["category"]
        for server in servers
        for cost, _, _ in COSTS
        if server[cost]
        for entry in server[cost]["categories"]
    }
    return [
        (quantities.name(name), colour)
        for name, colour in category_colours().items()
        if name in names
    ]
