# SPDX-License-Identifier: GPL-2.0-only
"""The charts of a source's readings: declared by the source, kept in the capture.

A panel is one small chart: lines of one unit. Where its `object` holds `*`, its readings are of
many objects: with `*` in the panel's name each object has a chart of its own, else each has a line.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tlstax.collectors.capture.schema import Series


class Line(NamedTuple):
    """One quantity over time.

    `how` is one of vocabulary.SERIES_HOWS. A counter with `*` stands for those that grew most, each
    a line of its own; the text that `*` stands for takes its place in `label`.
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
    """What the capture keeps of the panels."""
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
