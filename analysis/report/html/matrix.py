# SPDX-License-Identifier: GPL-2.0-only
"""A matrix as one HTML page that opens from disk: tables, pictures, a waterfall for each pair."""

from collections.abc import Mapping
from typing import Any, Final

from markupsafe import Markup

from tlstax import __version__
from tlstax.analysis import quantities
from tlstax.analysis.report import texts
from tlstax.analysis.report.html import lines, matrix_pictures, side_breakdown, waterfall
from tlstax.analysis.report.html import page as html

Json = Mapping[str, Any]

STYLES: Final = ("report.css", "charts.css", "bars.css", "lines.css", "matrix.css")


def render(document: Json) -> str:
    """The page for a matrix (as plain values)."""
    style = "\n".join(html.asset(name) for name in STYLES)
    pairs = {pair["cell_id"]: pair for pair in document["pairs"]}
    return (
        html.environment()
        .get_template("matrix.html.j2")
        .render(
            doc=document,
            version=__version__,
            style=Markup(style),
            policy=html.policy([], [style]),
            pair_of=pairs,
            pictures=matrix_pictures.pictures(document),
            waterfalls=[waterfall.of_pair(pair) for pair in document["pairs"]],
            both_sides=[side_breakdown.of_pair(pair) for pair in document["pairs"]],
            chart=lines,
            side_kinds=side_breakdown.KINDS,
            side_states=side_breakdown.STATES,
            rate=quantities.three_digits,
            figure=texts.figure,
            ratio=quantities.ratio,
            ratio_interval=texts.ratio_interval,
            number_interval=texts.number_interval,
            unexplained=texts.unexplained,
            intermediaries=texts.intermediaries,
        )
    )
