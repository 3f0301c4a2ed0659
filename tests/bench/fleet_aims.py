# SPDX-License-Identifier: GPL-2.0-only
"""What a data set of many hosts is meant to keep to, and what of a measurement does not.

Sizes are the same wherever they are measured, so one that is too large fails the benchmark. Times
are those of a host and of what else it did: they are marked as missed, and fail nothing.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Final

SIZES_KB: Final = {"1m": 500, "10s": 2000}
"""For each host and day, by tier; a KB has 1,000 bytes."""
CPU_S: Final = {"1h": 0.5, "1m": 3.0}
"""CPU time of a question about all hosts, by tier."""
LATENCIES: Final = "p99 of handshakes by library"
LATENCIES_CPU_S: Final = 1.0
"""That question adds the histograms of all hosts."""
COMMAND: Final = "`tlstax fleet top`, the whole command, once"
"""It has no aim: most of it is the start of Python and DuckDB."""
WALL: Final = "/wall"
"""End of the name of a wall time, beside the CPU time of a question."""
MISSED: Final = " **missed**"

Times = Mapping[str, float]
"""Seconds by question."""


def failures(sums_kb: Mapping[str, float], planted: Mapping[int, str]) -> list[str]:
    """A sentence for each size that is too large, and each planted change that was not found.

    `planted`: what was found by number of hosts, "yes" if it is right.
    """
    found = [
        f"tier {tier}: {sums_kb[tier]:,.0f} KB for each host and day, above {most:,} KB"
        for tier, most in SIZES_KB.items()
        if sums_kb[tier] > most
    ]
    return found + [
        f"planted changes among {count:,} hosts: {line}"
        for count, line in planted.items()
        if line != "yes"
    ]


def aim_s(tier: str, question: str) -> float | None:
    """CPU seconds that a question may take; None: it has no aim."""
    if question == COMMAND:
        return None
    return LATENCIES_CPU_S if question == LATENCIES else CPU_S[tier]


def missed(tier: str, spent: Mapping[int, Times]) -> list[str]:
    """A sentence for each time, and each growth of one, that misses its aim. By number of hosts."""
    found = [
        f"tier {tier}, {count:,} hosts, {question}: {times[question]:.2f} s of CPU time, "
        f"above {aim_s(tier, question)} s"
        for count, times in spent.items()
        for question in questions(spent)
        if is_slow(tier, question, times[question])
    ]
    return found + [
        f"tier {tier}, {few:,} to {many:,} hosts, {question}: {factor:.1f} times as long, "
        "more than linear"
        for question in questions(spent)
        for few, many, factor in growths(question, spent)
        if is_steep(few, many, factor)
    ]


def questions(spent: Mapping[int, Times]) -> list[str]:
    """The names of questions in order."""
    first = next(iter(spent.values()))
    return [name for name in first if not name.endswith(WALL)]


def is_slow(tier: str, question: str, cpu_s: float) -> bool:
    """Whether a CPU time misses its aim."""
    most_s = aim_s(tier, question)
    return most_s is not None and cpu_s > most_s


def growths(question: str, spent: Mapping[int, Times]) -> list[tuple[int, int, float]]:
    """From each number of hosts to the next one: both, and how many times as long it took."""
    return [
        (few, many, spent[many][question] / spent[few][question])
        for few, many in pairwise(sorted(spent))
        if spent[few][question] > 0
    ]


def is_steep(few: int, many: int, factor: float) -> bool:
    """Whether a time grew more than the hosts."""
    return factor > many / few


def cell(tier: str, question: str, times: Times) -> str:
    """CPU and wall time of a question in the page."""
    mark = MISSED if is_slow(tier, question, times[question]) else ""
    return f"{times[question]:.2f} ({times[question + WALL]:.2f}){mark}"


def growth_cell(question: str, spent: Mapping[int, Times]) -> str:
    """How a time grew, in the page."""
    return ", ".join(
        f"{factor:.1f}{MISSED if is_steep(few, many, factor) else ''}"
        for few, many, factor in growths(question, spent)
    )
