# SPDX-License-Identifier: GPL-2.0-only
"""What the server's threads wait for, by the functions and system calls of their wait stacks.

The ledger says exactly how long a state lasted; waits with stacks split it. The classes are data:
`[[wait]]` tables of waits.toml beside this file. A wait belongs to the first class, in the order
of the file, that fits in all that it names: one of its functions, its system call, its state, a
file that one of its functions is in (`among`), and the files that all of them are in (`within`).
"""

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from tlstax.analysis.classify.composition import Stacks
from tlstax.collectors.capture.schema import Frame, OffcpuStack
from tlstax.collectors.capture.syscalls import syscall_name

OTHER: Final = "other"
"""Class of waits that no rule names."""

WaitTimes = dict[tuple[str, str, str], float]
"""Estimated time in ns by (phase, state, class)."""


@dataclass(frozen=True)
class WaitClass:
    """A kind of wait."""

    id: str
    functions: re.Pattern[str] | None
    syscalls: frozenset[str]
    states: frozenset[str]
    within: re.Pattern[str] | None = None
    among: re.Pattern[str] | None = None

    def fits(self, state: str, syscall: str, frames: Sequence[Frame]) -> bool:
        """Whether a wait is of this class."""
        if self.states and state not in self.states:
            return False
        if self.syscalls and syscall not in self.syscalls:
            return False
        if self.within is not None:
            within = self.within
            if not frames or not all(within.search(frame.object) for frame in frames):
                return False
        among = self.among
        if among is not None and not any(among.search(frame.object) for frame in frames):
            return False
        pattern = self.functions
        return pattern is None or any(pattern.search(frame.symbol) for frame in frames)


@cache
def classes() -> tuple[WaitClass, ...]:
    """The classes that tlstax ships."""
    text = files("tlstax.analysis.classify").joinpath("waits.toml").read_text(encoding="utf-8")
    return tuple(
        WaitClass(
            row["id"],
            re.compile(row["functions"]) if "functions" in row else None,
            frozenset(row.get("syscalls", ())),
            frozenset(row.get("states", ())),
            re.compile(row["within"]) if "within" in row else None,
            re.compile(row["among"]) if "among" in row else None,
        )
        for row in tomllib.loads(text)["wait"]
    )


def classify(rows: Iterable[OffcpuStack], stacks: Stacks) -> dict[int, WaitTimes]:
    """Estimated times of waits by window."""
    known: dict[tuple[str, int, int | None], str] = {}
    times: dict[int, WaitTimes] = defaultdict(lambda: defaultdict(float))
    for row in rows:
        key = (row.state, row.syscall, row.user_stack_id)
        if key not in known:
            known[key] = _class_of(*key, stacks)
        times[row.window_id][row.phase, row.state, known[key]] += row.time_ns
    return {window_id: dict(mine) for window_id, mine in times.items()}


def _class_of(state: str, syscall: int, stack_id: int | None, stacks: Stacks) -> str:
    frames = stacks.frames(stack_id)
    name = syscall_name(syscall)
    return next((one.id for one in classes() if one.fits(state, name, frames)), OTHER)


def scaled(waits: WaitTimes, totals: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], float]:
    """Exact time in ns by state and class: the ledger's, split as the estimates are."""
    sums: dict[tuple[str, str], float] = defaultdict(float)
    for (phase, state, _), time_ns in waits.items():
        sums[phase, state] += time_ns
    result: dict[tuple[str, str], float] = defaultdict(float)
    for (phase, state, kind), time_ns in waits.items():
        if sums[phase, state] > 0:
            result[state, kind] += totals.get((phase, state), 0) * time_ns / sums[phase, state]
    return dict(result)


def with_long_waits(
    waits: Mapping[int, WaitTimes], sums: Mapping[int, Mapping[tuple[str, str], int]], phase: str
) -> dict[int, WaitTimes]:
    """The same, where waits of a phase that outlast a window are split like all of the recording.

    A wait has a stack in the window in which it ends: the windows before have its time alone. What
    the waits that ended in a window leave of the ledger's time there is split as the waits of all
    windows are.
    """
    whole: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for mine in waits.values():
        for (name, state, kind), time_ns in mine.items():
            if name == phase:
                whole[state][kind] += time_ns
    found = dict(waits)
    for window_id, totals in sums.items():
        times: WaitTimes = defaultdict(float, waits.get(window_id, {}))
        for state, kinds in whole.items():
            known = sum(ns for key, ns in times.items() if key[:2] == (phase, state))
            left = totals.get((phase, state), 0) - known
            every = sum(kinds.values())
            if left <= 0 or every <= 0:
                continue
            for kind, time_ns in kinds.items():
                times[phase, state, kind] += left * time_ns / every
        if times:
            found[window_id] = dict(times)
    return found
