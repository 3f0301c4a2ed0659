# SPDX-License-Identifier: GPL-2.0-only
"""A comparison as one HTML page that opens from disk: sentence, waterfall, tables, flame graphs."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from markupsafe import Markup

from tlstax import __version__
from tlstax.analysis.report.export import jsondoc
from tlstax.analysis.report.html import diff_pictures
from tlstax.analysis.report.html import page as html
from tlstax.analysis.report.terminal import diff as diff_terminal

Json = Mapping[str, Any]

STYLES: Final = ("report.css", "diff.css")
SCRIPTS: Final = ("diff.js", "copy.js")
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
            data=Markup(_for_script(flames)),
            first_flame=_first_flames(pairs),
            waterfalls=[
                None if pair["refusals"] else diff_pictures.waterfall(pair) for pair in pairs
            ],
            curves=[
                [found for one in pair["latencies"] if (found := diff_pictures.curves(one))]
                for pair in pairs
            ],
            geometry=diff_pictures,
            change_name=diff_terminal.change_name,
            side_quantile=diff_terminal.quantile,
            leaves=changed_leaves,
        )
    )


def _for_script(flames: Sequence[Json]) -> str:
    """The flame graphs, packed, for a script element that nothing in it can end."""
    parts = [{"per": flame["per"], "root": _pack(flame["root"])} for flame in flames]
    text = json.dumps(parts, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return jsondoc.escape_script(text)


def _pack(root: Json) -> list[Any]:
    """A tree as [name, before, after, is noise, children]; without recursion."""
    top = _leaf(root)
    waiting = [(root, top)]
    while waiting:
        node, packed = waiting.pop()
        for child in node["children"]:
            packed[4].append(_leaf(child))
            waiting.append((child, packed[4][-1]))
    return top


def _leaf(node: Json) -> list[Any]:
    return [node["name"], node["before_ns"], node["after_ns"], int(node["is_noise"]), []]


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
