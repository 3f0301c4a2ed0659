# SPDX-License-Identifier: GPL-2.0-only
"""The charts of a source's readings: declared by the source, stored in the capture.

A panel is one small chart: lines of one unit. If its `object` contains `*`, it reads many objects:
with `*` in the panel's name there is one chart per object, else one line per object.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tlstax.collectors.capture.schema import Series


class Line(NamedTuple):
    """One quantity over time.

    `how` is one of vocabulary.SERIES_HOWS. A counter with `*` selects the counters that grew most,
    one line each; the text that `*` matches replaces it in `label`.
    """

    label: str
    how: str
    counters: tuple[str, ...]
    scale: float = 1.0


class Panel(NamedTuple):
    """A chart: quantities of one unit, which is one of vocabulary.SERIES_UNITS."""

    name: str
    title: str
    unit: str
    lines: tuple[Line, ...]
    object: str = ""


def rates(**counters: str) -> tuple[Line, ...]:
    """Lines of kind `rate`: `busy_time="busy_count"` is called "busy time"."""
    return _lines("rate", counters)


def levels(**counters: str) -> tuple[Line, ...]:
    """Lines of kind `level`, likewise."""
    return _lines("level", counters)


def averages(**counters: str) -> tuple[Line, ...]:
    """Lines of kind `average`, likewise."""
    return _lines("average", counters)


def _lines(how: str, counters: dict[str, str]) -> tuple[Line, ...]:
    return tuple(Line(label.replace("_", " "), how, (name,)) for label, name in counters.items())


def to_rows(source: str, panels: Iterable[Panel]) -> Iterator[Series]:
    """The panels as rows of the capture."""
    for panel in panels:
        for line in panel.lines:
            yield Series(
                f"{source}/{panel.name}/{line.label}", source, panel.name, panel.title, panel.unit,
                panel.object, line.label, line.how, "\n".join(line.counters), line.scale,
            )  # fmt: skip


def from_rows(rows: Iterable[Series]) -> dict[str, tuple[Panel, ...]]:
    """The panels by source, in the order in which they were declared."""
    found: dict[str, dict[str, Panel]] = {}
    for row in rows:
        panels = found.setdefault(row.source, {})
        empty = Panel(row.panel, row.title, row.unit, (), row.object)
        panel = panels.get(row.panel, empty)
        line = Line(row.label, row.how, tuple(row.counters.split("\n")), row.scale)
        panels[row.panel] = panel._replace(lines=(*panel.lines, line))
    return {source: tuple(panels.values()) for source, panels in found.items()}
