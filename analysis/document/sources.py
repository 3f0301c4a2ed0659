# SPDX-License-Identifier: GPL-2.0-only
"""Readings of the sources as series on the recording's time axis: rates, shares and means.

A series holds the increments of a counter and the time that each covers. A mean over any span is
the quotient of both sums, so a missing reading has no weight.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from tlstax.analysis.model.sources import (
    Reading,
    SeriesLine,
    SeriesPanel,
    SourceLine,
    Sources,
)
from tlstax.analysis.quantities import time_text
from tlstax.analysis.rows import hardware
from tlstax.analysis.rows.series import Grid, grid_of_metrics, grid_of_status
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture import known_sources
from tlstax.collectors.capture.schema import Metric, Status
from tlstax.collectors.capture.series import Line, Panel, from_rows
from tlstax.collectors.capture.vocabulary import SERIES_LINES_MAX

MOST_INTERVALS: Final = 300
"""Intervals of a panel; a longer recording has several readings put together in each."""
DIGITS: Final = 6
"""Significant digits of a value in the document; the capture has them all."""
MOST_OBJECTS: Final = 6
"""Objects of a source, such as block devices, with panels of their own: those that moved most."""
SERVER: Final = "status"
"""The source whose readings are the table of that name."""
Grids = dict[str, Grid]
"""Readings of a source by their object."""
_STAR: Final = "*"
_GAP: Final = 3.0
"""An interval above this multiple of the median one is a gap."""


def tabulate(tables: Tables) -> Sources | None:
    """The data of all sources other than the engine; None without any."""
    status = [row for row in tables.status if row.run_id is None]
    if not (tables.collectors or tables.metrics or status):
        return None
    spans = [(row.start_ns, row.end_ns) for row in tables.windows]
    others = [(row.start_ns, row.end_ns) for row in tables.collectors]
    first_ns = min(spans or others, default=(0, 0))[0]
    last_ns = max((end for _, end in spans + others), default=first_ns)
    panels: list[SeriesPanel] = []
    notes: list[str] = []
    shapes = from_rows(tables.series)
    shapes |= {name: some for name, some in known_sources.PANELS.items() if name not in shapes}
    for source, some in shapes.items():
        grids = _grids(tables, status, source, some)
        if source == SERVER and grids:
            notes += _status_notes(grids[""], first_ns)
        panels += _charts(source, some, grids, first_ns, notes)
    notes += _gaps(panels)
    return Sources(
        length_ns=last_ns - first_ns,
        lines=[
            SourceLine(
                row.name, row.version, row.state, row.note, row.rows_count,
                row.start_ns - first_ns, row.end_ns - first_ns,
            )
            for row in tables.collectors
        ],
        panels=panels,
        readings=_readings(tables.metrics, shapes),
        counters=hardware.tabulate(tables),
        notes=notes,
    )  # fmt: skip


def _grids(tables: Tables, status: Sequence[Status], source: str, panels: Sequence[Panel]) -> Grids:
    """The readings of a source by what was read."""
    lines = [line for panel in panels for line in panel.lines]
    if source == SERVER:
        levels = {name for line in lines if line.how == "level" for name in line.counters}
        return {"": grid_of_status(status, levels)} if status else {}
    rows = [row for row in tables.metrics if row.source == source]
    by_object: dict[str, list[Metric]] = defaultdict(list)
    for row in rows:
        by_object[row.object].append(row)
    return {name: grid_of_metrics(rows, own, lines) for name, own in by_object.items()}


def _charts(
    source: str, panels: Iterable[Panel], grids: Grids, first_ns: int, notes: list[str]
) -> Iterator[SeriesPanel]:
    """The panels of a source, in its own order; those of one object stand together."""
    left = dict(grids)
    for pattern, group in itertools.groupby(panels, key=lambda panel: panel.object):
        shapes = list(group)
        found = {name: star for name in left if (star := _star(pattern, name)) is not None}
        own = {name: left.pop(name) for name in found}
        for shape in shapes:
            if own and _STAR not in shape.name:
                grid, lines = _joined(shape, own, found) if _STAR in pattern else (
                    own[pattern], [one for line in shape.lines for one in _each(line, own[pattern])]
                )  # fmt: skip
                yield from _known(source, shape._replace(lines=tuple(lines)), grid, first_ns)
        repeated = [shape for shape in shapes if _STAR in shape.name]
        busiest = sorted(own, key=lambda name: (-_moved(repeated, own[name]), name))
        if repeated and len(busiest) > MOST_OBJECTS:
            notes.append(
                f"{len(busiest) - MOST_OBJECTS} of {len(busiest)} objects that {source} read are "
                "not shown: they are the least active."
            )
        for name in busiest[:MOST_OBJECTS]:
            for shape in repeated:
                named = shape._replace(
                    name=shape.name.replace(_STAR, found[name]),
                    title=shape.title.replace(_STAR, found[name]),
                )
                yield from _known(source, named, own[name], first_ns)


def _star(pattern: str, text: str) -> str | None:
    """What `*` stands for where the pattern fits; '' without one, None where it does not fit."""
    head, star, tail = pattern.partition(_STAR)
    if not star:
        return "" if text == pattern else None
    fits = text.startswith(head) and text.endswith(tail) and len(text) >= len(head + tail)
    return text[len(head) : len(text) - len(tail)] if fits else None


def _each(line: Line, grid: Grid) -> list[Line]:
    """The line, or those of the counters that its `*` stands for and that grew most."""
    pattern = next((name for name in line.counters if _STAR in name), None)
    if pattern is None:
        return [line]
    grown = {
        star: sum(amount for amount, _ in values)
        for name, values in grid.counters.items()
        if (star := _star(pattern, name)) is not None
    }
    longest = sorted((star for star in grown if grown[star] > 0), key=lambda star: -grown[star])
    return [
        line._replace(
            label=line.label.replace(_STAR, star),
            counters=tuple(name.replace(_STAR, star) for name in line.counters),
        )
        for star in longest[:SERIES_LINES_MAX]
    ]


def _joined(shape: Panel, grids: Grids, stars: Mapping[str, str]) -> tuple[Grid, list[Line]]:
    """One panel of several objects, each with a line."""
    busiest = sorted(grids, key=lambda name: (-_moved([shape], grids[name]), name))
    shown = sorted(busiest[:SERIES_LINES_MAX])
    counters = {
        f"{name} {counter}": values
        for name in shown
        for counter, values in grids[name].counters.items()
    }
    lines = [
        line._replace(
            label=line.label.replace(_STAR, stars[name]),
            counters=tuple(f"{name} {counter}" for counter in line.counters),
        )
        for line in shape.lines
        for name in shown
    ]
    return Grid(next(iter(grids.values())).spans, counters), lines


def _moved(shapes: Sequence[Panel], grid: Grid) -> float:
    """How much an object did over its whole time: bytes if it has any, else what comes first."""
    telling = [one for one in shapes if one.unit == "bytes_per_second"] or shapes
    names = {name for one in telling[:1] for line in one.lines for name in line.counters}
    return sum(amount for name in names for amount, _ in grid.counters.get(name, ()))


def _known(source: str, shape: Panel, grid: Grid, first_ns: int) -> Iterator[SeriesPanel]:
    """The panel with the lines whose counters were read, if there are any."""
    lines = tuple(line for line in shape.lines if grid.has(line))
    if lines:
        yield _panel(f"{source}/{shape.name}", source, shape._replace(lines=lines), grid, first_ns)


def _panel(name: str, source: str, shape: Panel, grid: Grid, first_ns: int) -> SeriesPanel:
    """The panel of a shape; a line without a single reading is left out."""
    together = -(-len(grid.spans) // MOST_INTERVALS) or 1
    shown, whole = grid.merged(together), grid.merged(len(grid.spans) or 1)
    lines: list[SeriesLine] = []
    still: list[str] = []
    for line in shape.lines:
        each = [value for value in grid.values(line) if value is not None]
        if not each:
            continue
        if not any(each):
            still.append(line.label)
            continue
        mean = whole.values(line)[0]
        values = [_short(value) for value in shown.values(line)]
        ends = _short(mean), _short(min(each)), _short(max(each))
        lines.append(SeriesLine(line.label, list(line.counters), *ends, values))
    return SeriesPanel(
        name, shape.title, source, shape.unit,
        [start - first_ns for start, _ in shown.spans],
        [end - first_ns for _, end in shown.spans],
        together, lines, still,
    )  # fmt: skip


def _short(value: float | None) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{DIGITS}g}")


def _status_notes(grid: Grid, first_ns: int) -> Iterator[str]:
    """Where counters of the server decreased."""
    for (start, end), names in grid.resets():
        at = time_text(float(end - first_ns))
        if "Uptime" in names:
            yield f"The server restarted before {at}: its counters are unknown there."
        elif len(names) > 1:
            yield (
                f"{len(names)} counters of the server were reset before {at}, "
                f"{time_text(float(end - start))} after their last reading: that time is excluded."
            )
        else:
            yield f"The counter {names[0]} decreased before {at}: that time is excluded."


def _gaps(panels: Iterable[SeriesPanel]) -> Iterator[str]:
    """Long intervals without a reading, for each source."""
    seen = set()
    for panel in panels:
        spans = sorted(zip(panel.start_ns, panel.end_ns, strict=True))
        lengths = sorted(end - start for start, end in spans)
        if panel.source in seen or not lengths:
            continue
        seen.add(panel.source)
        usual_ns = lengths[len(lengths) // 2]
        late = [span for span in spans if span[1] - span[0] > _GAP * usual_ns]
        holes = [
            (before[1], after[0])
            for before, after in itertools.pairwise(spans)
            if after[0] - before[1] > usual_ns
        ]
        for start, end in late:
            yield (
                f"{panel.source} was read only once in the {time_text(float(end - start))} from "
                f"{time_text(float(start))} on: its values there are means over that time."
            )
        for start, end in holes:
            yield (
                f"{panel.source} was not read for {time_text(float(end - start))} from "
                f"{time_text(float(start))} on."
            )


def _readings(metrics: Iterable[Metric], drawn: Collection[str]) -> list[Reading]:
    """Numbers of sources that have no panels, such as bpftrace's maps."""
    sums: dict[tuple[str, str, str], tuple[float, int]] = {}
    for row in metrics:
        is_counter = row.source == "perf" and row.name in hardware.COUNTERS
        if row.source not in drawn and not is_counter:
            key = row.source, row.object, row.name
            value, time_ns = sums.get(key, (0.0, 0))
            sums[key] = value + row.value, time_ns + row.interval_ns
    ordered = sorted(sums.items(), key=lambda item: (item[0][0], item[0][2], -item[1][0]))
    return [
        Reading(source, thing, name, value, time_ns)
        for (source, thing, name), (value, time_ns) in ordered
    ]
