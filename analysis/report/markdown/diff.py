# SPDX-License-Identifier: GPL-2.0-only
"""Write a comparison as Markdown, for pasting into a ticket."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tlstax.analysis import quantities
from tlstax.analysis.report import layout, texts
from tlstax.analysis.report.markdown.escape import plain

Json = Mapping[str, Any]

ROWS: Final = 12
"""Rows of each table; the JSON has them all."""


def render(document: Json) -> str:
    """The comparison as Markdown with tables."""
    return "\n".join(line for pair in document["pairs"] for line in _pair(pair)) + "\n"


def _pair(pair: Json) -> Iterable[str]:
    yield f"## {plain(pair['name'])}"
    yield ""
    yield f"**{plain(pair['sentence'])}**"
    yield ""
    for name in ("before", "after"):
        yield f"- {name}: {plain(texts.side_text(pair[name]))}"
    for caution in pair["cautions"]:
        yield f"- {plain(caution)}"
    yield ""
    if pair["refusals"]:
        return
    steps = [step for step in pair["steps"] if step["verdict"] in texts.SEEN]
    steps.sort(key=lambda step: -abs(step["difference"]["value_ns"]))
    yield from _table(f"steps that changed, per {pair['operation']}", "label", steps)
    yield from _table("CPU time by category", None, pair["categories"])
    yield from _table("functions", None, pair["functions"])
    yield from _table("waits", None, pair["waits"])
    yield from _latencies(pair["latencies"])
    named = dict(zip(("before", "after"), pair["unexplained"], strict=False))
    if rest := texts.unexplained(named, pair["operation"]):
        yield plain(rest)
        yield ""
    yield plain(pair["note"])
    yield ""


def _table(title: str, label: str | None, lines: Sequence[Json]) -> Iterable[str]:
    if not lines:
        return
    bounds = texts.bounds_title(line["difference"] for line in lines)
    yield f"| {title} | before | after | difference | {bounds} |"
    yield "|---|---:|---:|---:|---:|"
    for line in lines[:ROWS]:
        name = line[label] if label else texts.change_name(line)
        seen = "" if line["verdict"] in texts.SEEN else f" ({texts.verdict(line)})"
        values = (
            quantities.time(line["before_ns"]),
            quantities.time(line["after_ns"]),
            quantities.time_change(line["difference"]["value_ns"]) + seen,
            texts.interval(line["difference"]),
        )
        yield f"| {plain(name)} | {' | '.join(values)} |"
    yield ""


def _latencies(pairs: Sequence[Json]) -> Iterable[str]:
    if not pairs:
        return
    yield "| latency | p50 before | after | p99 before | after |"
    yield "|---|---:|---:|---:|---:|"
    for pair in pairs:
        values = [
            layout.quantile_text(pair[name], q)
            for q in layout.QUANTILES
            for name in ("before", "after")
        ]
        yield f"| {texts.name(pair['phase'])} | {' | '.join(values)} |"
    yield ""
