# SPDX-License-Identifier: GPL-2.0-only
"""What a probe hit costs: the one formula, on prices that `host.calibration` measures.

Placements are compared by it, plans print it, and a recording bills and reports by it.

The kernel keeps one breakpoint for an instruction, with a list of all probes on it. So a thread
traps there once, however many probes see it; and a return that several return probes wait for is
taken once, too. Such a shared cost belongs to one of the probes, so that the costs of all hits add
up: a trap to the first entry probe on the instruction, without one to the first return probe.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

PLAIN: Final = "nop"
STEPPED: Final = "mov %rdi,%rax"
IN_SITU: Final = 1.5
"""What a trap costs in a server over what it costs in a loop (limits.md says how that was seen)."""


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
    """Nanoseconds per probe hit, by which placements are compared.

    The defaults are those of the machine that docs/limits.md shows.
    """

    emulated_ns: float = 400.0  # one trap
    stepped_ns: float = 14_000.0  # the trap and a single step
    return_ns: float = 230.0  # what a return probe adds to the trap that arms it

    def trap_ns(self, emulated: bool) -> float:
        """One hit on an instruction."""
        return self.emulated_ns if emulated else self.stepped_ns


class Probe(NamedTuple):
    """What the cost of a probe's hit depends on."""

    place: Hashable  # the instruction it sits on
    is_return: bool
    emulated: bool  # the instruction; any other is single-stepped


def hit_costs_ns(prices: Prices, probes: Sequence[Probe]) -> list[float]:
    """What a hit of each of these probes costs; 0 where others pay for all that they share.

    What the probes' own programs take is not in it.
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
    """What a boundary with these probes, each with its event, adds to what crosses it once."""
    costs_ns = hit_costs_ns(prices, [probe for _, probe in probes])
    return one_of_each(zip((event for event, _ in probes), costs_ns, strict=True))


def one_of_each(by_event: Iterable[tuple[str, float]]) -> float:
    """The sum over events, of each the most: a crossing meets one of the probes of an event."""
    most: dict[str, float] = {}
    for event, value in by_event:
        most[event] = max(most.get(event, 0.0), value)
    return sum(most.values())


def call_ns(crossings_ns: Sequence[float], hits: float) -> float:
    """What a function with so many calls an operation costs, whose name several bodies have.

    A call enters one of them, any as likely as another.
    """
    return hits * sum(crossings_ns) / len(crossings_ns) if crossings_ns else 0.0


def in_server_ns(hit_ns: float, program_ns: float) -> float:
    """What a hit takes of a server's CPU time: its calibrated cost and its program's run time."""
    return hit_ns * IN_SITU + program_ns


@dataclass(frozen=True)
class HostCosts:
    """What was measured and tried on this host that placements depend on."""

    prices: Prices = Prices()
    measured: bool = False  # whether the prices are this host's own
    emulated: frozenset[str] = frozenset()  # forms of instructions beyond those of every kernel
    rows: tuple[Price, ...] = ()


def host_costs_of(rows: Iterable[Price], emulated: Iterable[str]) -> HostCosts:
    """The prices that placements compare, from those of each kind of probe."""
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
