# SPDX-License-Identifier: GPL-2.0-only
"""Waterfalls: from one total, step by step, to the other."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from tlstax.analysis import quantities
from tlstax.analysis.report import layout, texts
from tlstax.analysis.report.html import bars
from tlstax.analysis.report.html.bars import Bar, Part

Json = Mapping[str, Any]
Paint = Callable[[Json], tuple[str, float]]

LEAST: Final = 0.004
"""Of the axis: narrower steps are in the table only, unless their interval is wide."""
PALE: Final = 0.4
_CHANGES: Final = {"more": "var(--more)", "less": "var(--less)"}


def of_comparison(comparison: Json, minimum: int) -> bars.Picture:
    """From plaintext to TLS; a step that rests on fewer than `minimum` samples is pale."""

    def paint(cell: Json) -> tuple[str, float]:
        opacity = PALE if layout.rests_on_few(cell, minimum) else 1.0
        is_seen = cell["verdict"] in texts.SEEN
        return f"var(--group-{cell['group']}, var(--bar))", opacity if is_seen else 0.0

    latency = comparison["latency"]
    ends = [
        (name, latency[arm]) for arm, name in (("plaintext", "Plaintext"), ("tls", "TLS"))
        if arm in latency
    ]  # fmt: skip
    return _picture(ends, comparison["cells"], paint, has_first="plaintext" in latency)


def of_pair(pair: Json) -> bars.Picture:
    """From before to after: red was added, blue was saved."""

    def paint(step: Json) -> tuple[str, float]:
        is_seen = step["verdict"] in texts.SEEN
        return _CHANGES.get(step["verdict"], "var(--soft)"), float(is_seen)

    first, last = pair["totals"]
    return _picture([("Before", first), ("After", last)], pair["steps"], paint, has_first=True)


def _picture(
    ends: Sequence[tuple[str, Json]], steps: Sequence[Json], paint: Paint, *, has_first: bool
) -> bars.Picture:
    made = [_step(step, *paint(step)) for step in _shown(steps)]
    totals = [_total(name, measure) for name, measure in ends]
    rows = [*totals[: int(has_first)], *made, *totals[int(has_first) :]]
    return bars.picture([*rows[:-1], *(row._replace(joint=None) for row in rows[-1:])])


def _shown(steps: Sequence[Json]) -> Iterable[Json]:
    """The steps that can be seen, and what is left unexplained."""
    highest = max((step[key] for step in steps for key in ("start_ns", "end_ns")), default=0.0)
    least = LEAST * highest
    for step in steps:
        measure = step["difference"]
        width = (measure["high_ns"] or 0.0) - (measure["low_ns"] or 0.0)
        if step["name"] == "unexplained" or abs(measure["value_ns"]) >= least or width >= 4 * least:
            yield step


def _step(step: Json, fill: str, opacity: float) -> Bar:
    measure, start = step["difference"], step["start_ns"]
    label = step["label"][:1].upper() + step["label"][1:]
    text = quantities.time_change(measure["value_ns"])
    title = f"{label}: {texts.change(measure)}"
    low, high = (None if measure[key] is None else start + measure[key]
                 for key in ("low_ns", "high_ns"))  # fmt: skip
    part = Part(start, step["end_ns"], fill, title, opacity=opacity)
    return Bar(label, [part], text, low, high, step["end_ns"])


def _total(name: str, measure: Json) -> Bar:
    value = measure["value_ns"]
    text = quantities.time(value)
    part = Part(0.0, value, "var(--bar)", f"{name}: {text} {texts.interval(measure)}".rstrip())
    return Bar(name, [part], text, measure["low_ns"], measure["high_ns"], value)
