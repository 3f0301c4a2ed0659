# SPDX-License-Identifier: GPL-2.0-only
"""The tables of docs/measurements/stacks.md."""

import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tlstax.tests.truth.stacks.measure import Outcome

FILES_MOST: Final = 6


def share(part: int, whole: int) -> str:
    """A share; '' of nothing."""
    return f"{part / whole:.2%}" if whole else ""


def page(outcomes: Sequence["Outcome"]) -> str:
    """All tables, and the paths that differ."""
    parts = (
        _table("server | load | samples | equal to libdw | guessed | copy short", _equal(outcomes)),
        ["", "A stack is whole if it ends in a function that threads begin with.", ""],
        _table(
            "server | load | by tables | pointers | perf | perf lost | compared | paths | differ",
            _whole(outcomes),
        ),
        *(
            ["", f"{one.server}, {one.load}, differs: {line}"]
            for one in outcomes
            for line in one.disagreements
        ),
        ["", "By the file of the interrupted instruction:", ""],
        _table("server | load | file | samples | by tables | by frame pointers", _files(outcomes)),
        ["", "Ends of walks:", ""],
        _table("server | load | ends | frames, median", _ends(outcomes)),
    )
    return "\n".join(line for part in parts for line in part) + "\n"


def _table(heads: str, rows: Iterable[Sequence[object]]) -> list[str]:
    lines = [f"| {heads} |", f"|{'---|' * (heads.count('|') + 1)}"]
    return lines + [f"| {' | '.join(str(cell) for cell in row)} |" for row in rows]


def _equal(outcomes: Sequence["Outcome"]) -> Iterable[Sequence[object]]:
    for each in outcomes:
        v = each.verdict
        equal = f"{v.equal:,} of {v.comparable:,}, {share(v.equal, v.comparable)}"
        yield each.server, each.load, f"{v.samples:,}", equal, v.guessed, v.incomparable


def _whole(outcomes: Sequence["Outcome"]) -> Iterable[Sequence[object]]:
    for each in outcomes:
        v, perf = each.verdict, each.perf
        whole = share(v.ends["complete"], v.samples), share(v.by_pointers.total(), v.samples)
        if not perf.samples:
            yield each.server, each.load, *whole, "", "", "", "", ""
            continue
        theirs = f"{share(perf.whole, perf.samples)} of {perf.samples:,}"
        compared = f"{v.routes.total():,} and {perf.routes.total():,}"
        counts = f"{perf.lost:,}", compared, each.paths, len(each.disagreements)
        yield each.server, each.load, *whole, theirs, *counts


def _files(outcomes: Sequence["Outcome"]) -> Iterable[Sequence[object]]:
    for each in outcomes:
        v = each.verdict
        for name, count in v.by_file.most_common(FILES_MOST):
            whole = share(v.by_tables[name], count), share(v.by_pointers[name], count)
            yield each.server, each.load, name, f"{count:,}", *whole


def _ends(outcomes: Sequence["Outcome"]) -> Iterable[Sequence[object]]:
    for each in outcomes:
        v = each.verdict
        ends = ", ".join(f"{name} {count:,}" for name, count in v.ends.most_common())
        yield each.server, each.load, ends, f"{statistics.median(v.frames or [0]):.0f}"
