# SPDX-License-Identifier: GPL-2.0-only
"""Print a comparison on the terminal: the sentence, the waterfall, what changed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TextIO

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tlstax.analysis import quantities
from tlstax.analysis.report import layout, texts
from tlstax.analysis.report.terminal import console

Json = Mapping[str, Any]
Write = Callable[[Json], str]

SMALLEST_STEP: Final = 0.005
"""Steps below this share of an operation are in the JSON and the HTML only."""
FUNCTIONS: Final = 12
WAITS: Final = 8
NAME_COLUMNS: Final = 44


def print_difference(
    document: Json, html_path: str | None = None, stream: TextIO | None = None
) -> None:
    """Print every pair; the last line says where the HTML page is."""
    screen = console.screen(stream)
    for pair in document["pairs"]:
        for part in _pair(pair, screen.width):
            screen.print(part)
    if html_path is not None:
        screen.print(f"\nHTML page: {html_path}", soft_wrap=True)


def _pair(pair: Json, width: int) -> Iterable[RenderableType]:
    yield Text()
    yield console.sentence(pair["name"], width, style="bold underline")
    yield console.sentence(
        pair["sentence"], width, style="bold red" if pair["refusals"] else "bold"
    )
    for name in ("before", "after"):
        yield console.sentence(texts.side_text(pair[name]), width, mark=f"{name:>6}  ", style="dim")
    for caution in pair["cautions"]:
        yield console.sentence(caution, width, mark="! ", style="yellow")
    if pair["refusals"]:
        return
    yield _waterfall(pair, width)
    yield _changes("CPU time of the server by category", pair["categories"], width, pair)
    yield _changes("functions that changed", pair["functions"][:FUNCTIONS], width, pair)
    yield _changes("waits that changed", pair["waits"][:WAITS], width, pair)
    yield _latencies(pair["latencies"], width)


def _waterfall(pair: Json, width: int) -> RenderableType:
    bounds, write = texts.bounds_column(step["difference"] for step in pair["steps"])
    title = f"{pair['total_name']}, per {pair['operation']}"
    table = console.table(title, "step", "difference", bounds, "")
    table.columns[-1].justify = "left"
    ends = [step[key] for step in pair["steps"] for key in ("start_ns", "end_ns")]
    whole = max([*ends, *(total["value_ns"] for total in pair["totals"])])
    _total(table, "before", pair["totals"][0], whole, write)
    _steps(table, pair["steps"], whole, write)
    _total(table, "after", pair["totals"][1], whole, write)
    _steps(table, pair["beside"], 0.0, write)
    named = dict(zip(("before", "after"), pair["unexplained"], strict=False))
    rest = texts.unexplained(named, pair["operation"])
    return console.titled(table, width, *([rest] if rest else []), pair["note"])


def _total(table: Table, name: str, total: Json, whole: float, write: Write) -> None:
    table.add_row(
        Text(name, style="bold"),
        Text(quantities.time(total["value_ns"]), style="bold"),
        write(total),
        Text(console.bar(0, total["value_ns"], whole), style="bright_black"),
    )


def _steps(table: Table, steps: Sequence[Json], whole: float, write: Write) -> None:
    """The steps that matter; those that are no part of the sum have no bar."""
    for step in steps:
        size = abs(step["difference"]["value_ns"])
        if step["name"] != "unexplained" and size < SMALLEST_STEP * whole:
            continue
        seen = step["verdict"] in texts.SEEN
        style = "" if seen else "dim"
        beside = "" if whole else " (not in the sum)"
        table.add_row(
            Text(f"  {texts.clean(step['label'])}{beside}", style=style),
            Text(quantities.time_change(step["difference"]["value_ns"]), style=style),
            Text(write(step["difference"]), style=style),
            Text(
                console.bar(step["start_ns"], step["end_ns"], whole),
                style="cyan" if seen else "dim",
            ),
        )


def _changes(title: str, lines: Sequence[Json], width: int, pair: Json) -> RenderableType:
    """Functions, categories or waits, per operation."""
    if not lines:
        return Group()
    bounds, write = texts.bounds_column(line["difference"] for line in lines)
    per = f"{title}, per {pair['operation']}"
    table = console.table(per, "", "before", "after", "difference", bounds)
    for line in lines:
        style = "" if line["verdict"] in texts.SEEN else "dim"
        table.add_row(
            Text(_fit(texts.change_name(line)), style=style),
            Text(quantities.time(line["before_ns"]), style=style),
            Text(quantities.time(line["after_ns"]), style=style),
            Text(quantities.time_change(line["difference"]["value_ns"]), style=style),
            Text(write(line["difference"]), style=style),
        )
    return console.titled(table, width)


def _fit(text: str) -> str:
    return text if len(text) <= NAME_COLUMNS else f"{text[: NAME_COLUMNS - 1]}…"


def _latencies(pairs: Sequence[Json], width: int) -> RenderableType:
    """Median and 99th percentile of each phase."""
    table = console.table("latencies", "phase", "p50 before", "after", "p99 before", "after")
    for pair in pairs:
        cells = [
            layout.quantile_text(pair[name], q)
            for q in layout.QUANTILES
            for name in ("before", "after")
        ]
        table.add_row(texts.name(pair["phase"]), *cells)
    return console.titled(table, width)
