# SPDX-License-Identifier: GPL-2.0-only
"""Write a comparison as Markdown, for pasting into a ticket."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tlstax.analysis import quantities
from tlstax.analysis.report.terminal import console
from tlstax.analysis.report.terminal.diff import (
    QUANTILES,
    SEEN,
    change_name,
    quantile,
    side_text,
)

Json = Mapping[str, Any]

ROWS: Final = 12
"""Rows of each table; the JSON has them all."""
_MEANING: Final = re.compile(r"([\\`*_{}\[\]<>|#])")


def render(document: Json) -> str:
    """The comparison as Markdown with tables."""
    return "\n".join(line for pair in document["pairs"] for line in _pair(pair)) + "\n"


def escape(text: str) -> str:
    """Text from a capture, which must not become markup."""
    return _MEANING.sub(r"\\\1", console.clean(text))


def _pair(pair: Json) -> Iterable[str]:
    yield f"## {escape(pair['name'])}"
    yield ""
    yield f"**{escape(pair['sentence'])}**"
    yield ""
    for name in ("before", "after"):
        yield f"- {name}: {escape(side_text(pair[name]))}"
    for caution in pair["cautions"]:
        yield f"- {escape(caution)}"
    yield ""
    if pair["refusals"]:
        return
    steps = [step for step in pair["steps"] if step["verdict"] in SEEN]
    steps.sort(key=lambda step: -abs(step["difference"]["value_ns"]))
    yield from _table(f"steps that changed, per {pair['operation']}", "label", steps)
    yield from _table("CPU time by category", None, pair["categories"])
    yield from _table("functions", None, pair["functions"])
    yield from _table("waits", None, pair["waits"])
    yield from _latencies(pair["latencies"])
    yield escape(pair["note"])
    yield ""


def _table(title: str, label: str | None, lines: Sequence[Json]) -> Iterable[str]:
    if not lines:
        return
    yield f"| {title} | before | after | difference | 95 % interval |"
    yield "|---|---:|---:|---:|---:|"
    for line in lines[:ROWS]:
        name = line[label] if label else change_name(line)
        seen = "" if line["verdict"] in SEEN else f" ({line['verdict']})"
        values = (
            quantities.time(line["before_ns"]),
            quantities.time(line["after_ns"]),
            quantities.time_change(line["difference"]["value_ns"]) + seen,
            console.interval(line["difference"]),
        )
        yield f"| {escape(name)} | {' | '.join(values)} |"
    yield ""


def _latencies(pairs: Sequence[Json]) -> Iterable[str]:
    if not pairs:
        return
    yield "| latency | p50 before | after | p99 before | after |"
    yield "|---|---:|---:|---:|---:|"
    for pair in pairs:
        values = [
            quantities.time(quantile(pair[name], q))
            for q in QUANTILES
            for name in ("before", "after")
        ]
        yield f"| {console.name(pair['phase'])} | {' | '.join(values)} |"
    yield ""
