# SPDX-License-Identifier: GPL-2.0-only
"""Print what the additional sources recorded: a line for each series, with its values over time."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rich.console import RenderableType
from rich.text import Text

from tlstax.analysis import quantities
from tlstax.analysis.report import layout, texts
from tlstax.analysis.report.terminal import console

Json = Mapping[str, Any]

SPARKLINE_COLUMNS: Final = 16
"""Width of the values over time."""
MOST_READINGS: Final = 40
"""Single values, largest first; the JSON and the HTML have them all."""
_BLOCKS: Final = "▁▂▃▄▅▆▇█"


def render(sources: Json, width: int) -> Iterable[RenderableType]:
    """Series, what stayed at 0, and single values."""
    panels = [panel for panel in sources["panels"] if panel["lines"]]
    if panels:
        yield _series(sources, panels, width)
    yield Text()
    for line in sources["lines"]:
        version = f" ({line['version']})" if line["version"] else ""
        note = f"; {line['note']}" if line["note"] else ""
        text = f"{line['name']} {line['state']}{version}{note}"
        yield console.sentence(text, width, mark="· ", style="dim")
    if sources["counters"]:
        yield _counters(sources["counters"], width)
    if sources["readings"]:
        yield _readings(sources["readings"], width)


def _series(sources: Json, panels: Sequence[Json], width: int) -> RenderableType:
    table = console.table(
        "the host and the server's own counters", "what", "mean", "lowest", "highest", ""
    )
    table.columns[-1].justify = "left"
    table.columns[0].no_wrap = False  # the numbers stay whole
    for panel in panels:
        alone = len(panel["lines"]) == 1
        if not alone:
            table.add_row(Text(texts.clean(panel["title"])))
        for line in panel["lines"]:
            label = f"{panel['title']}: {line['label']}" if alone else f"  {line['label']}"
            numbers = (
                quantities.reading(line[key], panel["unit"])
                for key in ("mean", "lowest", "highest")
            )
            table.add_row(
                Text(texts.clean(label)),
                *numbers,
                Text(sparkline(line["values"], line["highest"]), style="cyan"),
            )
    zero = layout.still(sources["panels"])
    notes = list(sources["notes"])
    if zero:
        notes.append(f"read, always 0: {'; '.join(zero)}")
    return console.titled(table, width, *notes)


def _counters(counters: Sequence[Json], width: int) -> RenderableType:
    table = console.table(
        "hardware counters, by perf's samples",
        *("phase", "cycles", "instructions", "a cycle", "cycles a byte"),
    )
    for line in counters:
        table.add_row(
            texts.name(line["phase"]),
            quantities.count(line["cycles_count"]),
            quantities.count(line["instructions_count"]),
            quantities.count(line["instructions_per_cycle"]),
            quantities.count(line["cycles_per_byte"]),
        )
    return console.titled(table, width)


def _readings(readings: Sequence[Json], width: int) -> RenderableType:
    table = console.table("single values", "what", "of", "value")
    table.columns[1].justify = "left"
    for line in readings[:MOST_READINGS]:
        table.add_row(
            texts.name(line["name"]),
            Text(texts.clean(" ".join(line["object"].split()))[: width // 2]),
            quantities.amount(line["value"], line["name"]),
        )
    left = len(readings) - MOST_READINGS
    return console.titled(table, width, *(["the JSON has more"] if left > 0 else []))


def sparkline(values: Sequence[float | None], highest: float) -> str:
    """The values as blocks up to `highest`, the highest of those that fall on one column."""
    columns = min(SPARKLINE_COLUMNS, len(values))
    text = ""
    for column in range(columns):
        low, high = (len(values) * edge // columns for edge in (column, column + 1))
        known = [value for value in values[low:high] if value is not None]
        if not known:
            text += " "
        else:
            height = max(known) / highest if highest > 0 else 0.0
            text += _BLOCKS[min(len(_BLOCKS) - 1, int(height * len(_BLOCKS)))]
    return text
