# SPDX-License-Identifier: GPL-2.0-only
"""A comparison of TLS libraries as one HTML page with one picture: stacked bars, no script."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from markupsafe import Markup

from tlstax import __version__
from tlstax.analysis import quantities
from tlstax.analysis.report import texts
from tlstax.analysis.report.html import bars
from tlstax.analysis.report.html import page as html
from tlstax.analysis.report.html.bars import Bar, Part
from tlstax.analysis.report.html.palette import category_colours

Json = Mapping[str, Any]

OTHERS: Final = "#979ca3"
"""Colour of a category without one of its own."""
STYLES: Final = ("report.css", "charts.css", "bars.css", "libraries.css")
COSTS: Final = (
    ("handshake", "One handshake", "CPU time of the server that TLS adds to a connect"),
    ("record", "One KB of result", "CPU time of the server that TLS adds to a KB that it sends"),
)


def render(document: Json) -> str:
    """The page for a comparison (as plain values)."""
    style = "\n".join(html.asset(name) for name in STYLES)
    servers = document["servers"]
    charts = [(title, text, _chart(servers, cost)) for cost, title, text in COSTS]
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
            hot_sentence=texts.hot_sentence,
        )
    )


def _chart(servers: Sequence[Json], cost: str) -> bars.Picture:
    """A bar for each server; a category that takes away cannot be drawn and is in the table."""
    return bars.picture([_bar(server, cost) for server in servers if server[cost]], has_axis=False)


def _bar(server: Json, cost: str) -> Bar:
    colours, start, parts = category_colours(), 0.0, []
    for entry in sorted(server[cost]["categories"], key=lambda entry: -entry["cost"]["value_ns"]):
        value_ns = entry["cost"]["value_ns"]
        if value_ns <= 0:
            continue
        name = quantities.name(entry["category"])
        title = f"{server['name']}, {name}: {quantities.time(value_ns)}"
        fill = colours.get(entry["category"], OTHERS)
        parts.append(Part(start, start + value_ns, fill, title))
        start += value_ns
    total = server[cost]["total"]
    text = quantities.time(total["value_ns"])
    return Bar(server["name"], parts, text, total["low_ns"], total["high_ns"])


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
