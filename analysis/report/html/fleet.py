# SPDX-License-Identifier: GPL-2.0-only
"""Answers about many hosts as one HTML page that opens from disk; it has no script."""

from collections.abc import Mapping
from typing import Any, Final

from markupsafe import Markup

from tlstax import __version__
from tlstax.analysis.fleet import figures
from tlstax.analysis.model.fleet import Figure
from tlstax.analysis.report.html import bars
from tlstax.analysis.report.html import page as html
from tlstax.analysis.report.html.bars import Bar, Part

Json = Mapping[str, Any]

STYLES: Final = ("report.css", "charts.css", "bars.css", "libraries.css")
_FILL: Final = "var(--state-on_cpu)"


def top(document: Json) -> str:
    """The page of a ranking: distribution, outliers, first hosts, findings."""
    unit = document["metric"]["unit"]
    rows = [
        Bar(
            f"{figures.value_text(unit, one['low'])} to {figures.value_text(unit, one['high'])}",
            [Part(0.0, one["host_count"], _FILL, f"{one['host_count']:,} hosts")],
            f"{one['host_count']:,}",
        )
        for one in document["ranges"]
    ]
    return _render("fleet_top.html.j2", document, ranges=bars.picture(rows, has_axis=False))


def comparison(document: Json) -> str:
    """The page of a comparison: who changed, then all hosts together."""
    return _render("fleet_comparison.html.j2", document)


def _render(template: str, document: Json, **further: Any) -> str:
    style = "\n".join(html.asset(name) for name in STYLES)
    environment = html.environment()
    environment.filters.update(
        {
            "metric_value": lambda value, unit: figures.value_text(unit, value),
            "metric_bounds": lambda plain, unit: figures.value_bounds(unit, _figure(plain)),
            "change": lambda value, factor: figures.change_text(value, is_factor=factor),
            "change_bounds": lambda plain, factor: figures.change_bounds(
                _figure(plain), is_factor=factor
            ),
        }
    )
    return environment.get_template(template).render(
        doc=document,
        version=__version__,
        style=Markup(style),
        policy=html.policy([], [style]),
        **further,
    )


def _figure(plain: Json) -> Figure:
    return Figure(plain["value"], plain["low"], plain["high"], plain["host_count"])
