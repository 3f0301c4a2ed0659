# SPDX-License-Identifier: GPL-2.0-only
"""Finds the numbers that a report shows, and which of them its document does not hold."""

import re
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from typing import Any

SCALES = {
    "ns": (1.0,),
    "µs": (1e3,),
    "ms": (1e6,),
    "s": (1e9,),
    "%": (0.01,),
    "B": (1.0,),
    "KiB": (2.0**10,),
    "MiB": (2.0**20,),
    "GiB": (2.0**30,),
    "×": (1.0,),
    "/s": (1.0,),
    "": (1.0, 0.01),  # 0.01: the "p95" of quantiles
}
UNIT = r"(?:[\u00a0 ](ns|µs|ms|s|%|B|KiB|MiB|GiB|×|/s)(?![\w]))?"
NUMBER = r"(?<![\w.#/-])p?(\d[\d,]*(?:\.\d+)?)"
INTERVAL = re.compile(r"\[[−+]?(\d[\d,]*(?:\.\d+)?), [−+]?(\d[\d,]*(?:\.\d+)?)\]" + UNIT)
SINGLE = re.compile(NUMBER + UNIT)
CONFIDENCE = "95"
"""Said of every interval."""


class VisibleText(HTMLParser):
    """The text of a page without its scripts, styles and footer."""

    HIDDEN = ("script", "style", "footer", "noscript", "title")

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hidden += tag in self.HIDDEN
        self.parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        self.hidden -= tag in self.HIDDEN
        self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.parts.append(data)


def visible_text(page: str) -> str:
    """What a reader sees of a page, as text."""
    parser = VisibleText()
    # The round values of an axis are no numbers of the document.
    parser.feed(re.sub(r'<g aria-label="tick labels">.*?</g>', "", page, flags=re.DOTALL))
    return "".join(parser.parts)


def values(document: Any) -> Iterator[float | str]:
    """Every number and every string of a document, names of fields included."""
    waiting = [document]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting.extend(item.values())
            yield from item
        elif isinstance(item, list):
            waiting.extend(item)
        elif isinstance(item, str) or (isinstance(item, int | float) and item is not True):
            yield item


def tokens(text: str) -> Iterator[tuple[str, str]]:
    """Every number of a text with its unit."""
    for found in INTERVAL.finditer(text):
        low, high, unit = found.groups()
        yield low, unit or ""
        yield high, unit or ""
    for found in SINGLE.finditer(INTERVAL.sub(" ", text)):
        yield found[1], found[2] or ""


def missing(text: str, document: Any, also: Iterable[str] = ()) -> list[tuple[str, str]]:
    """Numbers of `text` that are no number of `document`, however rounded and scaled."""
    numbers: set[float] = set()
    said = {CONFIDENCE, *also}
    for value in values(document):
        if isinstance(value, str):
            said.update(number for number, _ in tokens(value))
            said.update(re.findall(r"\d[\d,]*(?:\.\d+)?", value))
        else:
            numbers.add(abs(float(value)))
    known: dict[tuple[float, int], set[str]] = {}
    absent = []
    for number, unit in tokens(text):
        plain = number.replace(",", "")
        decimals = len(plain.partition(".")[2])
        if number in said or plain in said:
            continue
        for scale in SCALES[unit]:
            key = (scale, decimals)
            if key not in known:
                known[key] = {f"{value / scale:.{decimals}f}" for value in numbers}
            if plain in known[key]:
                break
        else:
            absent.append((number, unit))
    return absent
