# SPDX-License-Identifier: GPL-2.0-only
"""Draw a flame graph as one SVG file that opens in a browser, a viewer or a document.

Colours are the categories of the HTML report (assets/report.css); a difference is red where time
was added, blue where it went, grey where chance would do. In a browser a click or Enter zooms,
Escape goes back and `/` searches. Nothing is loaded, and every name is escaped.
"""

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from tlstax.analysis import quantities
from tlstax.analysis.classify.flames import Block
from tlstax.analysis.report.html.page import asset
from tlstax.analysis.report.html.palette import category_colours

WIDTH: Final = 1200.0
ROW: Final = 18.0
MARGIN: Final = 10.0
HEAD: Final = 72.0
LINE: Final = 14.0
NARROWEST: Final = 0.25
"""Blocks narrower than this many user units are not drawn."""
LETTER: Final = 6.6
"""Width of a letter of the 11-unit font, a little more than the average."""

LETTERS: Final = int((WIDTH - 2 * MARGIN) / LETTER)
"""How many of them a line of the head has room for."""

MORE: Final = ((236, 226, 224), (200, 40, 30))
LESS: Final = ((222, 228, 236), (30, 90, 190))
NOISE: Final = "#c9ced6"
CHANGES: Final = (("more", "#c8281e"), ("less", "#1e5abe"), ("not significant", NOISE))
# XML 1.0 has no place for these, escaped or not; symbol names may hold anything.
_NOT_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(
    root: Block,
    title: str,
    notes: Sequence[str],
    per: str = "",
    *,
    compared: bool = False,
    downward: bool = False,
    callers: Block | None = None,
) -> str:
    """The picture of a tree, with notes below its title.

    `per` is the operation that widths are counted by ('' for none). `compared` paints the change
    of each block instead of its category. `downward`: the root is at the top. `callers`: a tree
    that is drawn above the root of `root`, which is then drawn downward.
    """
    drawn = [entry for entry in root.walk() if _wide(entry[0], root)]
    above = [
        (block, -depth, start)
        for block, depth, start in (callers.walk() if callers else ())
        if depth and _wide(block, root)
    ]
    depth_most = max((depth for _, depth, _ in drawn), default=0)
    rows_above = max((-depth for _, depth, _ in above), default=0)
    is_up = not downward and callers is None
    lines = [line for note in notes for line in textwrap.wrap(quantities.typeset(note), LETTERS)]
    below = LINE * max(len(lines) - 1, 0)
    height = HEAD + below + ROW * (1 + depth_most + rows_above) + MARGIN
    body = "".join(
        _frame(
            entry,
            root,
            HEAD + below + ROW * (depth_most - entry[1] if is_up else rows_above + entry[1]),
            per,
            compared,
        )
        for entry in (*drawn, *above)
    )
    names = sorted({entry[0].category for entry in (*drawn, *above)} & category_colours().keys())
    legend = _legend(
        CHANGES
        if compared
        else [(quantities.name(name), category_colours()[name]) for name in names],
        below,
    )
    shown = "".join(
        f'<text x="{MARGIN:g}" y="{34 + LINE * number:g}" class="soft">{_text(line)}</text>\n'
        for number, line in enumerate(lines)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {height:g}" '
        f'font-family="system-ui, DejaVu Sans, sans-serif" font-size="11" role="img" '
        f'aria-labelledby="title">\n<title id="title">{_text(title)}</title>\n'
        f"<desc>{_text(' '.join(notes))}</desc>\n<style>{asset('svg.css')}</style>\n"
        f'<rect class="paper" width="100%" height="100%"/>\n'
        f'<text x="{MARGIN:g}" y="18" font-size="15">{_text(title)}</text>\n'
        f"{shown}"
        f'<text id="found" x="{WIDTH - MARGIN:g}" y="18" text-anchor="end" class="soft"></text>\n'
        f'{legend}\n<g id="frames" data-width="{WIDTH - 2 * MARGIN:g}">\n{body}</g>\n'
        f"<script><![CDATA[\n{asset('format.js')}{asset('svg.js')}]]></script>\n</svg>\n"
    )


def _wide(block: Block, root: Block) -> bool:
    return root.width > 0 and block.width / root.width * (WIDTH - 2 * MARGIN) >= NARROWEST


def _frame(entry: tuple[Block, int, float], root: Block, y: float, per: str, compared: bool) -> str:
    block, depth, start = entry
    scale = (WIDTH - 2 * MARGIN) / root.width
    x, width = MARGIN + start * scale, block.width * scale
    colour = _change_colour(block) if compared else category_colours().get(block.category, NOISE)
    label = _text(_fit(block.text, width))
    return (
        f'<g class="frame" tabindex="-1" data-x="{start * scale:.3f}" data-w="{width:.3f}" '
        f'data-depth="{depth}" data-name={quoteattr(_clean(block.text))}>'
        f"<title>{_text(_describe(block, root, per, compared))}</title>"
        f'<rect x="{x:.3f}" y="{y:g}" width="{width:.3f}" height="{ROW - 1:g}" fill="{colour}"/>'
        f'<text x="{x + 3:.3f}" y="{y + 12.5:g}">{label}</text></g>\n'
    )


def _describe(block: Block, root: Block, per: str, compared: bool) -> str:
    each = f" per {per}" if per else ""
    if not compared:
        share = quantities.share(block.width / root.width)
        mended = (
            f"; callers of {quantities.time(block.repaired)} of it are perf’s"
            if block.repaired
            else ""
        )
        return f"{block.text}: {quantities.time(block.width)}{each}, {share} of the graph{mended}"
    verdict = " (no more than chance)" if block.is_noise else ""
    before, after = quantities.time(block.before), quantities.time(block.after)
    change = quantities.time_change(block.change)
    return f"{block.text}: {before} → {after}{each}, {change}{verdict}"


def _fit(name: str, width: float) -> str:
    """As much of a name as a block of this width shows."""
    letters = int((width - 6) / LETTER)
    if letters < 3:
        return ""
    return name if len(name) <= letters else name[: letters - 1] + "…"


def _change_colour(block: Block) -> str:
    if block.is_noise or not block.width:
        return NOISE
    faint, strong = MORE if block.change > 0 else LESS
    part = min(abs(block.change) / block.width, 1.0)
    mixed = (round(a + (b - a) * part) for a, b in zip(faint, strong, strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)


def _legend(entries: Iterable[tuple[str, str]], below: float) -> str:
    """Swatches of (name, colour) in as many rows as the head has room for."""
    parts = []
    x, y = MARGIN, 42.0 + below
    for name, colour in entries:
        width = 24 + LETTER * len(name)
        if x + width > WIDTH:
            x, y = MARGIN, y + LINE
        parts.append(f'<rect x="{x:g}" y="{y:g}" width="9" height="9" fill="{colour}"/>')
        parts.append(f'<text x="{x + 12:g}" y="{y + 8:g}" class="soft">{_text(name)}</text>')
        x += width
    return "".join(parts)


def _clean(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)


def _text(text: str) -> str:
    return escape(_clean(text))
