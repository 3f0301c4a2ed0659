# SPDX-License-Identifier: GPL-2.0-only
"""The truth and kernel tests of two machines side by side, with what they compared."""

import json
import platform
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree import ElementTree

from tlstax.tests.figures import PROPERTY, Figure, worst

BEGIN, END = "<!-- truths: begin -->", "<!-- truths: end -->"
MS: Final = 1_000_000


@dataclass
class Result:
    """A test on one machine, all its parameters together."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    again: int = 0  # times that one was measured again
    figures: list[Figure] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """How it went."""
        parts = [(self.passed, "passed"), (self.failed, "**failed**"), (self.skipped, "skipped")]
        text = ", ".join(f"{count} {word}" for count, word in parts if count) or "not run"
        return text + (f" ({self.again} measured again)" if self.again else "")

    @property
    def figure(self) -> str:
        """The comparison that was nearest to its bound."""
        return compared(worst(self.figures)) if self.figures else ""


class Row(NamedTuple):
    """A test on both machines."""

    file: str
    test: str
    here: Result
    there: Result


def compared(figure: Figure) -> str:
    """What was told and found, and the bound."""
    what, _, unit = figure.what.rpartition(", ")
    if unit != "ns":
        return f"{figure.what}: {figure.found:.0f} of {figure.told:.0f}"
    told, found, bound = (ns / MS for ns in (figure.told, figure.found, figure.bound))
    return f"{what}: {found:.1f} for {told:.1f} ± {bound:.1f} ms"


def results(texts: list[str]) -> dict[tuple[str, str], Result]:
    """By file and test, of pytest's XML. A test that was measured again is there more than once."""
    last: dict[tuple[str, str], ElementTree.Element] = {}
    found: dict[tuple[str, str], Result] = {}
    for xml in texts:
        for case in ElementTree.fromstring(xml.strip()).iter("testcase"):
            whole = case.get("classname", ""), case.get("name", "")
            key = whole[0].rpartition(".")[2], whole[1].partition("[")[0]
            found.setdefault(key, Result()).again += whole in last
            last[whole] = case
    for (place, name), case in last.items():
        result = found[place.rpartition(".")[2], name.partition("[")[0]]
        if case.find("failure") is not None or case.find("error") is not None:
            result.failed += 1
        elif case.find("skipped") is not None:
            result.skipped += 1
        else:
            result.passed += 1
        noted = [one for one in case.iter("property") if one.get("name") == PROPERTY]
        for one in noted[-1:]:  # those before are of measurements that were made again
            result.figures.append(Figure(*json.loads(one.get("value", ""))))
    return found


def rows(here: list[str], there: list[str]) -> list[Row]:
    """The tests of the second machine, beside those of the first."""
    mine, theirs = results(here), results(there)
    return [Row(*key, mine.get(key, Result()), theirs[key]) for key in theirs]


def _lines(rows: list[Row], *, with_here: bool) -> Iterator[str]:
    machines = ("x86-64, this machine", "arm64 in QEMU") if with_here else ("arm64 in QEMU",)
    yield "| " + " | ".join(("test", *machines)) + " |"
    yield "|---" * (len(machines) + 1) + "|"
    for row in rows:
        both = (row.here, row.there) if with_here else (row.there,)
        cells = ("; ".join(filter(None, (one.verdict, one.figure))) for one in both)
        yield (
            f"| {row.file}: {row.test.removeprefix('test_').replace('_', ' ')} | "
            + " | ".join(cells)
            + " |"
        )


def text(rows: list[Row]) -> str:
    """Two tables in Markdown: truths on both machines, then what ran on one."""
    both = [row for row in rows if row.here != Result()]
    one = [row for row in rows if row.here == Result()]
    parts = [both and _lines(both, with_here=True), one and _lines(one, with_here=False)]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def write(page: Path, rows: list[Row], kernel: str) -> None:
    """Put the tables between the page's markers."""
    head, _, rest = page.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    mine = platform.release().partition("-")[0]
    where = f"Here Linux {mine}, there {kernel}.\n\n"
    page.write_text(f"{head}{BEGIN}\n{where}{text(rows)}{END}{tail}")
