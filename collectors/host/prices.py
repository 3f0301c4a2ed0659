# SPDX-License-Identifier: GPL-2.0-only
"""The cost of a probe hit: the one formula, from costs that `host.calibration` measures.

It is used to compare placements, in plans, and for the overhead in recordings and reports.

The kernel keeps one breakpoint per instruction, with a list of all probes on it. So a thread traps
there once, however many probes there are; several return probes share one trap on return, too. A
shared cost is charged to one probe, so that the costs of all hits add up: the trap to the first
entry probe on the instruction or, if there is none, to the first return probe.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

PLAIN: Final = "nop"
STEPPED: Final = "mov %rdi,%rax"


class Price(NamedTuple):
    """Nanoseconds per hit of one kind of probe: a row of the capture's table `calibration`."""

    kind: str
    instruction: str
    cost_ns: float
    low_ns: float  # of the 95 % interval of the median
    high_ns: float
    rounds_count: int


@dataclass(frozen=True)
class Prices:
    """Nanoseconds per probe hit, to compare placements.

    The defaults are from the machine of docs/measurements/probe-costs.md.
    """

    emulated_ns: float = 400.0  # one trap
    stepped_ns: float = 14_000.0  # the trap and a single step
    return_ns: float = 230.0  # what a return probe adds to the trap that arms it

    def trap_ns(self, emulated: bool) -> float:
        """The cost of one hit on an instruction."""
        return self.emulated_ns if emulated else self.stepped_ns


class Probe(NamedTuple):
    """The properties of a probe that determine its cost."""

    place: Hashable  # the instruction it sits on
    is_return: bool
    emulated: bool  # whether the kernel emulates the instruction; else it single-steps


def hit_costs_ns(prices: Prices, probes: Sequence[Probe]) -> list[float]:
    """The cost of a hit of each of these probes; 0 if it is charged to other probes.

    The run time of the probes' BPF programs is not included.
    """
    trap_payer: dict[Hashable, int] = {}
    return_payer: dict[Hashable, int] = {}
    entries_first = sorted(range(len(probes)), key=lambda number: probes[number].is_return)
    for number in entries_first:
        probe = probes[number]
        trap_payer.setdefault(probe.place, number)
        if probe.is_return:
            return_payer.setdefault(probe.place, number)
    return [
        (prices.trap_ns(probe.emulated) if trap_payer[probe.place] == number else 0.0)
        + (prices.return_ns if return_payer.get(probe.place) == number else 0.0)
        for number, probe in enumerate(probes)
    ]


def crossing_ns(prices: Prices, probes: Sequence[tuple[str, Probe]]) -> float:
    """The cost of crossing a boundary with these (event, probe) pairs once."""
    costs_ns = hit_costs_ns(prices, [probe for _, probe in probes])
    return one_of_each(zip((event for event, _ in probes), costs_ns, strict=True))


def one_of_each(by_event: Iterable[tuple[str, float]]) -> float:
    """The sum over events of the highest cost: a crossing hits one probe per event."""
    most: dict[str, float] = {}
    for event, value in by_event:
        most[event] = max(most.get(event, 0.0), value)
    return sum(most.values())


def call_ns(crossings_ns: Sequence[float], hits: float) -> float:
    """The cost per operation of a function with several bodies of one name.

    A call enters one of them, with equal probability.
    """
    return hits * sum(crossings_ns) / len(crossings_ns) if crossings_ns else 0.0


@dataclass(frozen=True)
class HostCosts:
    """The measurements and trials of this host that placements depend on."""

    prices: Prices = Prices()
    measured: bool = False  # whether the prices were measured on this host
    emulated: frozenset[str] = frozenset()  # forms that this kernel emulates and others do not
    rows: tuple[Price, ...] = ()


def host_costs_of(rows: Iterable[Price], emulated: Iterable[str]) -> HostCosts:
    """The prices used for placements, from the rows of each kind of probe."""
    rows = tuple(rows)
    known = {(row.kind, row.instruction): row.cost_ns for row in rows}
    for suffix in ("_multi", ""):
        entry = known.get((f"uprobe{suffix}", PLAIN))
        both = known.get((f"uretprobe{suffix}", PLAIN))
        stepped = known.get((f"uprobe{suffix}", STEPPED))
        if entry is not None and both is not None and stepped is not None:
            prices = Prices(max(1.0, entry), max(1.0, stepped), max(0.0, both - entry))
            return HostCosts(prices, True, frozenset(emulated), rows)
    return HostCosts(emulated=frozenset(emulated), rows=rows)
