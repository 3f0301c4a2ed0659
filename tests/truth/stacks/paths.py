# SPDX-License-Identifier: GPL-2.0-only
"""Function-level paths of two samplers of one load, and whether their shares agree.

A path is a sequence of functions from the thread's first one on, as a frame of a flame graph is. A
function is a file and the place where it begins by the file's call frame information, so that both
sides use the same functions whatever names they have, and libraries without names take part.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import sqrt
from pathlib import Path
from statistics import NormalDist
from typing import Final, NamedTuple

from tlstax.analysis.statistics.shares import wilson
from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.binary.symbol_tables import ObjectSymbols
from tlstax.collectors.binary.unwind_table import UnwindTable
from tlstax.collectors.process.mappings import root_of, seen_inside

LEAST_SHARE: Final = 0.01
"""Paths below it on both sides are not compared."""
LEVEL: Final = 0.95
"""Probability that all paths of all loads agree, if both samplers see the same."""
NOT_DESCRIBED: Final = -1


class Function(NamedTuple):
    """A function of a file."""

    file: str
    start: int  # address in the file; NOT_DESCRIBED: it has no call frame information


Route = tuple[Function, ...]
"""A whole stack, outermost function first."""


class _Mapping(NamedTuple):
    start: int
    end: int
    offset: int
    path: str
    file: str


class Functions:
    """The functions of a process, by its addresses and by places in its files."""

    def __init__(self, pid: int) -> None:
        """Read the process's mappings. OSError if it is gone."""
        self._root = Path(f"/proc/{pid}/root")
        self._mappings = _mappings(pid)
        self._paths = {one.file: one.path for one in self._mappings}
        self._files: dict[str, tuple[Elf, UnwindTable] | None] = {}
        self._known: dict[tuple[str, int], Function] = {}
        self._symbols: dict[str, ObjectSymbols] = {}

    def file_of(self, address: int) -> str:
        """The file that is mapped at an address; '?' without one."""
        found = self._mapping_of(address)
        return found.file if found else "?"

    def at(self, address: int) -> Function:
        """The function at an address of the process."""
        found = self._mapping_of(address)
        if found is None:
            return Function("?", NOT_DESCRIBED)
        return self.at_offset(found.file, address - found.start + found.offset)

    def at_offset(self, file: str, offset: int) -> Function:
        """The function at an offset of a file."""
        known = self._known.get((file, offset))
        if known is None:
            known = self._known[file, offset] = Function(file, self._start(file, offset))
        return known

    def is_described(self, address: int) -> bool:
        """Whether the file has call frame information for the address; code of no file has."""
        found = self._mapping_of(address)
        if found is None or self._opened(found.file) is None:
            return True
        return self.at(address).start != NOT_DESCRIBED

    def name(self, function: Function) -> str:
        """A name for people; [file+address] without one."""
        opened = self._opened(function.file)
        if opened is None or function.start == NOT_DESCRIBED:
            return f"[{function.file}]"
        file = function.file
        if file not in self._symbols:
            self._symbols[file] = ObjectSymbols(opened[0], self._root, self._paths[file])
        found = self._symbols[file].find(function.start)
        return found.name if found else f"[{function.file}+{function.start:#x}]"

    def _start(self, file: str, offset: int) -> int:
        opened = self._opened(file)
        if opened is None:
            return NOT_DESCRIBED
        elf, table = opened
        address = elf.to_address(offset)
        bounds = None if address is None else table.covering(address)
        return bounds.start if bounds else NOT_DESCRIBED

    def _opened(self, file: str) -> tuple[Elf, UnwindTable] | None:
        if file not in self._files:
            path = self._paths.get(file, "")
            elf = Elf(self._root / path.lstrip("/")) if path.startswith("/") else None
            self._files[file] = (elf, UnwindTable(elf)) if elf else None
        return self._files[file]

    def _mapping_of(self, address: int) -> _Mapping | None:
        return next((one for one in self._mappings if one.start <= address < one.end), None)


def _mappings(pid: int) -> list[_Mapping]:
    found, root = [], root_of(pid)
    for line in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines():
        fields = line.split(maxsplit=5)
        if "x" in fields[1] and len(fields) > 5:
            start, _, end = fields[0].partition("-")
            place = int(start, 16), int(end, 16), int(fields[2], 16)
            found.append(_Mapping(*place, seen_inside(fields[5], root), file_name(fields[5])))
    return found


def file_name(path: str) -> str:
    """How files are called here: libcrypto for /usr/lib/libcrypto.so.3."""
    return path.rpartition("/")[2].partition(".so")[0]


# ---- comparison ----


class Compared(NamedTuple):
    """A path with its samples on both sides."""

    path: Route
    mine: int
    theirs: int
    low: float  # of the difference of shares, mine less theirs, with the others allowed for
    high: float

    @property
    def agrees(self) -> bool:
        """Whether the difference may be none."""
        return self.low <= 0 <= self.high


def compare(mine: Counter[Route], theirs: Counter[Route], loads_count: int = 1) -> list[Compared]:
    """The paths that either side has at least LEAST_SHARE of its samples in, outermost first.

    The intervals are Newcombe's for the difference of two binomial shares (1998, method 10), each
    so wide that all of them, and those of as many paths in each of the other loads, hold together
    with probability LEVEL (Bonferroni).
    """
    totals = mine.total(), theirs.total()
    if not all(totals):
        return []
    sides = _prefixes(mine), _prefixes(theirs)
    paths = {
        path
        for side, total in zip(sides, totals, strict=True)
        for path, count in side.items()
        if count >= LEAST_SHARE * total
    }
    z = NormalDist().inv_cdf(1 - (1 - LEVEL) / 2 / max(1, len(paths) * loads_count))
    made = []
    for path in sorted(paths, key=lambda one: (len(one), -sides[0][one], one)):
        counts = sides[0][path], sides[1][path]
        made.append(Compared(path, *counts, *_difference(counts, totals, z)))
    return made


def _prefixes(routes: Counter[Route]) -> Counter[Route]:
    """Samples below each frame of the flame graph."""
    found: Counter[Route] = Counter()
    for route, count in routes.items():
        for length in range(1, len(route) + 1):
            found[route[:length]] += count
    return found


def _difference(hits: Sequence[int], totals: Sequence[int], z: float) -> tuple[float, float]:
    """The interval of the first share less the second."""
    (p, q), (m, n) = hits, totals
    first, second = p / m, q / n
    (low_1, high_1), (low_2, high_2) = wilson(p, m, z), wilson(q, n, z)
    below = sqrt((first - low_1) ** 2 + (high_2 - second) ** 2)
    above = sqrt((high_1 - first) ** 2 + (second - low_2) ** 2)
    return first - second - below, first - second + above


def describe(each: Compared, totals: tuple[int, int], functions: Functions) -> str:
    """One line about a path: its last functions and both shares."""
    names = [functions.name(one) for one in each.path[-4:]]
    shares = [f"{n / total:.1%}" for n, total in zip((each.mine, each.theirs), totals, strict=True)]
    return f"{' > '.join(names)} (depth {len(each.path)}): {shares[0]}, perf {shares[1]}"


def outermost_first(places: Iterable[Function]) -> Route:
    """A stack, innermost function first, as a path."""
    return tuple(places)[::-1]
