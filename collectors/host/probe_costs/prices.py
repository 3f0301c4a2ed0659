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
from functools import cache
from typing import Final, NamedTuple

from tlstax.collectors.capture.order_statistics import median_bounds
from tlstax.collectors.capture.printable import complain

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
    cpus_count: int = 1  # on so many CPUs at once


def price_of(kind: str, instruction: str, costs_ns: Sequence[float], cpus_count: int = 1) -> Price:
    """Median and interval of one round's costs each."""
    from statistics import median  # imported here: attach must stay small

    ordered = sorted(costs_ns)
    bounds = median_bounds(ordered)
    return Price(kind, instruction, median(ordered), *bounds, len(ordered), cpus_count)


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
    cpus_count: int = 1  # the prices are those of hits on so many CPUs at once

    def on(self, cpus_count: int) -> "HostCosts":
        """With the prices for a process that runs on so many CPUs."""
        return host_costs_of(self.rows, self.emulated, cpus_count) if self.rows else self


def host_costs_of(rows: Iterable[Price], emulated: Iterable[str], cpus_count: int = 1) -> HostCosts:
    """The prices that plans use, from the rows of each kind of probe.

    Those of the least measured number of CPUs that is no less than `cpus_count`, or of the most.
    """
    rows, emulated = tuple(rows), frozenset(emulated)
    known = {(row.kind, row.instruction, row.cpus_count): row.cost_ns for row in rows}
    counts = sorted({row.cpus_count for row in rows})
    counts = [each for each in counts if each >= cpus_count] + [
        each for each in reversed(counts) if each < cpus_count
    ]
    for suffix in ("_multi", ""):
        for count in counts:
            entry = known.get((f"uprobe{suffix}", PLAIN, count))
            both = known.get((f"uretprobe{suffix}", PLAIN, count))
            stepped = known.get((f"uprobe{suffix}", STEPPED, count))
            if entry is not None and both is not None and stepped is not None:
                prices = Prices(max(1.0, entry), max(1.0, stepped), max(0.0, both - entry))
                return HostCosts(prices, True, emulated, rows, count)
    return HostCosts(emulated=emulated, rows=rows)


@cache
def tell_unmeasured(note: str) -> None:
    """Tell the user once, however many processes are planned for."""
    complain(note)


def unmeasured_note(where: str, why: str) -> str:
    """What the user is told where the default costs are used for a host."""
    return (
        f"what a probe hit costs was not measured on {where} ({why}): plan and budget use the "
        "costs of another machine"
    )
