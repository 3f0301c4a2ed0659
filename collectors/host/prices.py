# SPDX-License-Identifier: GPL-2.0-only
"""What a probe hit costs, by which placements are compared: data only, measured elsewhere."""

from collections.abc import Iterable
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
    """Nanoseconds per probe hit, by which placements are compared.

    The defaults are those of the machine that docs/limits.md shows.
    """

    emulated_ns: float = 400.0  # one trap
    stepped_ns: float = 14_000.0  # the trap and a single step
    return_ns: float = 230.0  # what a return probe adds to the trap that arms it

    def trap_ns(self, emulated: bool) -> float:
        """One hit on an instruction."""
        return self.emulated_ns if emulated else self.stepped_ns


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
