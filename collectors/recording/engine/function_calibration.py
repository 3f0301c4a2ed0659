# SPDX-License-Identifier: GPL-2.0-only
"""Cost of a function's probes, measured with the same programs that count its calls.

An empty function of tlstax is called with and without its probes. The time that the programs report
for it is what they add to the time of every function (`inside_ns`). The additional time of a call
is their cost for the caller (`pair_ns`): it is included in the time of a calling function.
Each figure is the median of several rounds, a round being the mean of its calls.

The rounds run in a tight loop: in a busy server the same probes cost somewhat more.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

from tlstax.collectors.host.trial_code import probed_function
from tlstax.collectors.placement.model import ProbedFunction

ROUNDS: Final = 9
CALLS: Final = 200
_EMULATED: Final = b"\x90\x90\xc3"  # nop; nop; ret
_STEPPED: Final = b"\x31\xc0\x90\xc3"  # xor %eax,%eax; nop; ret
_WORD_BYTES: Final = 8


class Pair(NamedTuple):
    """Kinds of a function's probes; those of one kind cost the same."""

    entry_stepped: bool
    exit_kind: str  # "uretprobe", "uprobe", or "" for a function that is counted only
    exit_stepped: bool


class PairCost(NamedTuple):
    """Nanoseconds for each call of a function with such probes."""

    inside_ns: float  # added to the function's own time; 0 where it is not timed
    pair_ns: float  # added to its caller's


@dataclass(frozen=True)
class Place:
    """A probe of the empty function: program's event, offset, and whether it is a return probe."""

    event: str
    offset_bytes: int
    is_return: bool
    stack_bytes: int


@contextmanager
def own_function(pair: Pair) -> Iterator[tuple[str, Callable[[], None], list[Place]]]:
    """An empty function with a place for each probe of such a pair: path, call, places."""
    code = _STEPPED if pair.entry_stepped or pair.exit_stepped else _EMULATED
    places = [Place("enter", 0 if pair.entry_stepped or code is _EMULATED else 2, False, 0)]
    if pair.exit_kind == "uretprobe":
        places.append(Place("exit", 0, True, 0))
    elif pair.exit_kind:
        exit_bytes = len(code) - 1 if pair.exit_stepped else len(code) - 2
        places.append(Place("exit", exit_bytes, False, _WORD_BYTES))
    with probed_function(code) as (path, call):
        yield path, call, places


def kind_of(probed: ProbedFunction) -> Pair:
    """The kind of a function's probes; with several exits, the most expensive."""
    enter = next(site for site in probed.sites if site.event == "enter")
    exits = [site for site in probed.sites if site.event == "exit"]
    if not exits:
        return Pair(enter.stepped, "", False)
    dearest = max(exits, key=lambda site: (site.stepped, site.kind))
    return Pair(enter.stepped, dearest.kind, dearest.stepped)


def measure(
    call: Callable[[], None],
    attach: Callable[[], Callable[[], None]],
    reported: Callable[[], tuple[int, int]],
) -> PairCost:
    """Call the function with and without probes. `attach` attaches them and returns the detaching;
    `reported` returns how many timed calls the programs have counted, and their time in ns.
    """
    for _ in range(CALLS):
        call()
    bare_ns = _median([_round_ns(call) for _ in range(ROUNDS)])
    detach = attach()
    try:
        inside, pair = [], []
        for _ in range(ROUNDS):
            count_before, time_before_ns = reported()
            pair.append(_round_ns(call) - bare_ns)
            count, time_ns = reported()
            if count > count_before:
                inside.append((time_ns - time_before_ns) / (count - count_before))
    finally:
        detach()
    return PairCost(_median(inside) if inside else 0.0, max(0.0, _median(pair)))


def _median(values: list[float]) -> float:
    """Of an odd number of values; the module `statistics` would cost 2 MB."""
    return sorted(values)[len(values) // 2]


def _round_ns(call: Callable[[], None]) -> float:
    start_ns = time.perf_counter_ns()
    for _ in range(CALLS):
        call()
    return (time.perf_counter_ns() - start_ns) / CALLS


def own_pid() -> int:
    """The process whose function is called."""
    return os.getpid()
