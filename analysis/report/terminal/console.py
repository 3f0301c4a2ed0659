# SPDX-License-Identifier: GPL-2.0-only
"""Pieces of the terminal report: sentences, tables, bars. Text from a capture is cleaned here."""

import sys
import textwrap
from typing import Final, TextIO

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tlstax.analysis import quantities
from tlstax.analysis.report import texts
from tlstax.collectors.capture.safe_console import SafeConsole

WIDTH: Final = 100
"""Columns where the output is no terminal; a terminal's own width, up to this, otherwise."""
BAR_COLUMNS: Final = 18
BARS_NEED: Final = 98
"""Columns below which tables leave out their bars."""
_HALVES: Final = {(False, False): " ", (True, False): "▌", (False, True): "▐", (True, True): "█"}


def screen(stream: TextIO | None = None) -> Console:
    """Where a report is printed, standard output or `stream`; at most WIDTH columns wide."""
    made = SafeConsole(stream or sys.stdout)
    made.width = min(made.width, WIDTH) if made.is_terminal else WIDTH
    return made


def sentence(text: str, width: int, mark: str = "", style: str = "") -> Text:
    """A sentence on as many lines as it needs; unlike rich, textwrap keeps "12 ms" together."""
    lines = textwrap.wrap(
        texts.clean(quantities.typeset(text)),
        max(20, width),
        initial_indent=mark,
        subsequent_indent=" " * len(mark),
    )
    return Text("\n".join(lines), style=style)


def table(title: str, *columns: str) -> Table:
    """A table whose first column is text and whose others are numbers."""
    table = Table(
        title=Text(texts.clean(title), style="bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
    )
    for index, column in enumerate(columns):
        table.add_column(
            column, justify="right" if index else "left", no_wrap=True, header_style="dim"
        )
    return table


def titled(table: Table, width: int, *notes: str) -> RenderableType:
    """A table between an empty line and its notes; where it is narrow, without its bars."""
    if width < BARS_NEED and table.columns[-1].header == "":
        table.columns.pop()
    parts: list[RenderableType] = [Text(), table]
    parts.extend(sentence(note, width, style="dim") for note in notes if note)
    return Group(*parts)


def bar(start: float, end: float, whole: float) -> str:
    """A bar from `start` to `end` of `whole` on BAR_COLUMNS columns, to half a column."""
    if whole <= 0:
        return ""
    halves = 2 * BAR_COLUMNS
    low, high = sorted(round(max(0.0, min(1.0, edge / whole)) * halves) for edge in (start, end))
    low = min(low, halves - 1)
    high = max(high, low + 1)  # what is not zero shows
    filled = [low <= half < high for half in range(halves)]
    return "".join(_HALVES[pair] for pair in zip(filled[::2], filled[1::2], strict=True)).rstrip()
