# SPDX-License-Identifier: GPL-2.0-only
"""A comparison as one HTML page that opens from disk: sentence, waterfall, tables, flame graphs."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from markupsafe import Markup

from tlstax import __version__
from tlstax.analysis import quantities
from tlstax.analysis.report import layout, texts
from tlstax.analysis.report.html import lines, script_data, waterfall
from tlstax.analysis.report.html import page as html

Json = Mapping[str, Any]

STYLES: Final = ("report.css", "charts.css", "bars.css", "lines.css", "diff.css")
SCRIPTS: Final = ("format.js", "diff.js", "copy.js")
SIDES: Final = ("before", "after")
LEAVES: Final = 12
"""Changed leaves of each flame graph in its text alternative."""


def render(document: Json) -> str:
    """The page for a comparison (as plain values)."""
    style = "\n".join(html.asset(name) for name in STYLES)
    script = "\n".join(html.asset(name) for name in SCRIPTS)
    pairs = document["pairs"]
    flames = [flame for pair in pairs for flame in pair["flames"]]
    return (
        html.environment()
        .get_template("diff.html.j2")
        .render(
            doc=document,
            version=__version__,
            style=Markup(style),
            script=Markup(script),
            policy=html.policy([script], [style]),
            data=Markup(script_data.of_differences(flames)),
            first_flame=_first_flames(pairs),
            waterfalls=[None if pair["refusals"] else waterfall.of_pair(pair) for pair in pairs],
            curves=[
                [_curves(one) for one in pair["latencies"] if _is_drawn(one)] for pair in pairs
            ],
            chart=lines,
            change_name=texts.change_name,
            unexplained=texts.unexplained,
            side_quantile=layout.quantile_text,
            leaves=changed_leaves,
        )
    )


def _is_drawn(pair: Json) -> bool:
    return any(item["high_ns"] > 0 for name in SIDES for item in pair[name]["buckets"])


def _curves(pair: Json) -> lines.Picture:
    """The distributions of a phase, before and after, through the upper ends of the buckets."""
    series = []
    for name in SIDES:
        buckets = pair[name]["buckets"]
        first = [(float(item["low_ns"]), 0.0) for item in buckets[:1]]
        series.append(
            (name, [*first, *((float(item["high_ns"]), item["cumulative"]) for item in buckets)])
        )
    return lines.cumulative(quantities.name(pair["phase"]), series)


def _first_flames(pairs: Sequence[Json]) -> list[int]:
    """The number of each pair's first flame graph."""
    numbers, count = [], 0
    for pair in pairs:
        numbers.append(count)
        count += len(pair["flames"])
    return numbers


def changed_leaves(flame: Json) -> list[tuple[str, Json]]:
    """The leaves that changed most and by more than chance, with where they are called from."""
    found: list[tuple[str, Json]] = []
    waiting: list[tuple[Json, str]] = [(child, "") for child in flame["root"]["children"]]
    while waiting:
        node, phase = waiting.pop()
        where = phase or node["name"]
        if not node["children"] and not node["is_noise"]:
            found.append((where, node))
        waiting.extend((child, where) for child in node["children"])
    found.sort(key=lambda item: -abs(item[1]["after_ns"] - item[1]["before_ns"]))
    return found[:LEAVES]
