# SPDX-License-Identifier: GPL-2.0-only
"""Readings of the sources as series on the recording's time axis: rates, shares and means.

A series is kept as what a counter grew by, and the time in which that is known. Both add up, so
that a mean over any span is their quotient, and a reading that is missing weighs nothing.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from tlstax.analysis.model.sources import (
    Reading,
    SeriesLine,
    SeriesPanel,
    SourceLine,
    Sources,
)
from tlstax.analysis.quantities import time_text
from tlstax.analysis.rows import hardware, source_panels
from tlstax.analysis.rows.series import Grid, grid_of_metrics, grid_of_status
from tlstax.analysis.rows.source_panels import Line, Panel
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.schema import Metric

MOST_INTERVALS: Final = 300
"""Intervals of a panel; a longer recording has several readings put together in each."""
DIGITS: Final = 6
"""Significant digits of a value in the document; the capture has them all."""
_SERIES: Final = ("procfs", "iostat")
_GAP: Final = 3.0
"""An interval this many times the usual one is said to be a gap."""
_TIME, _COUNT = "#time_ns", "#count"
_PRESSURE: Final = "pressure "


def tabulate(tables: Tables) -> Sources | None:
    """Everything that was recorded beside the engine; None where nothing was."""
    status = [row for row in tables.status if row.run_id is None]
    if not (tables.collectors or tables.metrics or status):
        return None
    spans = [(row.start_ns, row.end_ns) for row in tables.windows]
    others = [(row.start_ns, row.end_ns) for row in tables.collectors]
    first_ns = min(spans or others, default=(0, 0))[0]
    last_ns = max((end for _, end in spans + others), default=first_ns)
    panels: list[SeriesPanel] = []
    notes: list[str] = []
    for source in _SERIES:
        rows = [row for row in tables.metrics if row.source == source]
        panels += _of_host(source, rows, first_ns, notes)
    if status:
        grid = grid_of_status(status, source_panels.GAUGES)
        notes += _status_notes(grid, first_ns)
        panels += _of_server(grid, first_ns)
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
        readings=_readings(tables.metrics),
        counters=hardware.tabulate(tables),
        notes=notes,
    )  # fmt: skip


def _of_host(
    source: str, rows: Sequence[Metric], first_ns: int, notes: list[str]
) -> Iterator[SeriesPanel]:
    """CPU, pressure and devices."""
    by_object: dict[str, list[Metric]] = defaultdict(list)
    for row in rows:
        by_object[row.object].append(row)
    is_rate = source == "iostat"
    grids = {name: grid_of_metrics(rows, some, is_rate=is_rate) for name, some in by_object.items()}
    cpu = grids.pop("cpu", None)
    if cpu is not None:
        yield from (_panel(f"{source}/{one.name}", source, one, cpu, first_ns)
                    for one in source_panels.HOST)  # fmt: skip
    pressures = {name: grids.pop(name) for name in sorted(grids) if name.startswith(_PRESSURE)}
    if pressures:
        yield _pressure(source, pressures, first_ns)
    busiest = sorted(grids, key=lambda name: (-_moved(grids[name]), name))
    if len(busiest) > source_panels.MOST_DEVICES:
        left = len(busiest) - source_panels.MOST_DEVICES
        notes.append(f"{left} block devices that moved less have no series.")
    shapes = source_panels.DEVICE_RATES if is_rate else source_panels.DEVICE_COUNTERS
    for name in busiest[: source_panels.MOST_DEVICES]:
        for one in shapes:
            named = one._replace(title=f"{one.title}: {name}")
            yield _panel(f"{source}/{name}/{one.name}", source, named, grids[name], first_ns)


def _pressure(source: str, grids: dict[str, Grid], first_ns: int) -> SeriesPanel:
    whole = Grid(
        next(iter(grids.values())).spans,
        {name: grid.counters["some_ns"] for name, grid in grids.items() if "some_ns" in
         grid.counters},
    )  # fmt: skip
    lines = tuple(
        Line(name.removeprefix(_PRESSURE), "per_time", (name,)) for name in whole.counters
    )
    panel = source_panels.PRESSURE._replace(lines=lines)
    return _panel(f"{source}/pressure", source, panel, whole, first_ns)


def _moved(grid: Grid) -> float:
    """Bytes of a device over its whole time, or what stands for them."""
    names = ("read_bytes", "write_bytes", "read_bytes_per_s", "write_bytes_per_s")
    return sum(amount for name in names for amount, _ in grid.counters.get(name, ()))


def _of_server(grid: Grid, first_ns: int) -> Iterator[SeriesPanel]:
    """The server's own counters, then the waits that it timed."""
    for one in source_panels.SERVER:
        known = tuple(
            line for line in one.lines if all(name in grid.counters for name in line.counters)
        )
        if known:
            panel = one._replace(lines=known)
            yield _panel(f"status/{one.name}", "status", panel, grid, first_ns)
    timed = {
        name: sum(amount for amount, _ in values)
        for name, values in grid.counters.items()
        if name.endswith(_TIME)
    }
    longest = sorted((name for name in timed if timed[name] > 0), key=lambda name: -timed[name])
    if longest:
        lines = tuple(
            Line(name.removesuffix(_TIME), "per_time", (name,))
            for name in longest[: source_panels.MOST_WAITS]
        )
        panel = source_panels.WAITS._replace(lines=lines)
        yield _panel("status/waits", "status", panel, grid, first_ns)


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
    """Where counters of the server fell."""
    for (start, end), names in grid.resets():
        at = time_text(float(end - first_ns))
        if "Uptime" in names:
            yield f"The server began anew before {at}: how its counters grew is not known there."
        elif len(names) > 1:
            yield (
                f"{len(names)} counters of the server were set back before {at}, "
                f"{time_text(float(end - start))} after they were last read: that time is left out."
            )
        else:
            yield f"The counter {names[0]} fell before {at}: that time is left out."


def _gaps(panels: Iterable[SeriesPanel]) -> Iterator[str]:
    """Where a source gave nothing for long, said once for each source."""
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
                f"{panel.source} was read once in the {time_text(float(end - start))} from "
                f"{time_text(float(start))} on: figures there are means over that time."
            )
        for start, end in holes:
            yield (
                f"{panel.source} was not read for {time_text(float(end - start))} from "
                f"{time_text(float(start))} on."
            )


def _readings(metrics: Iterable[Metric]) -> list[Reading]:
    """Numbers of sources that give no series, such as bpftrace's maps."""
    sums: dict[tuple[str, str, str], tuple[float, int]] = {}
    for row in metrics:
        is_counter = row.source == "perf" and row.name in hardware.COUNTERS
        if row.source not in _SERIES and not is_counter:
            key = row.source, row.object, row.name
            value, time_ns = sums.get(key, (0.0, 0))
            sums[key] = value + row.value, time_ns + row.interval_ns
    ordered = sorted(sums.items(), key=lambda item: (item[0][0], item[0][2], -item[1][0]))
    return [
        Reading(source, thing, name, value, time_ns)
        for (source, thing, name), (value, time_ns) in ordered
    ]
