# SPDX-License-Identifier: GPL-2.0-only
"""The result for each boundary of a plan: its probes, refused alternatives, and sites."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from tlstax.collectors.binary.control_flow import TAIL_CALL
from tlstax.collectors.binary.dataflow import EVERY_PATH
from tlstax.collectors.binary.elf import Elf, Symbol
from tlstax.collectors.host.probe_costs.prices import Prices, Probe, crossing_ns
from tlstax.collectors.placement.call_sites import RefusedError
from tlstax.collectors.placement.model import Missing, Refused, Site, priced_sites
from tlstax.collectors.placement.probe_points import Entry, Finder, ProbePoint
from tlstax.collectors.process.mappings import MappedObject
from tlstax.probes.model import Boundary

# Actions whose exit reads what the function returns.
READS_RETURNED: Final = frozenset({"handshake_call"})


class PlacedProbes(NamedTuple):
    """A place for a probe with its event and the object it is in."""

    event: str
    mapped: MappedObject
    elf: Elf
    point: ProbePoint


@dataclass
class Placed:
    """The result for one boundary."""

    boundary: Boundary
    chosen: list[PlacedProbes] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    cost_ns: float = 0.0  # of one crossing
    hits: float = 1.0

    def refuse(self, function: str, what: str, why: str) -> None:
        """Note an alternative that was not taken."""
        self.refused.append(Refused(self.boundary.id, function, what, why))


def sites_of(placed: Iterable[Placed], prices: Prices) -> tuple[Site, ...]:
    """The probes of all boundaries, with the cost of a hit of each; traps are shared."""
    sites = shared_once(
        _site(entry, chosen, offset)
        for entry in placed
        for chosen in entry.chosen
        if (offset := chosen.elf.to_offset(chosen.point.address)) is not None
    )
    return priced_sites(sites, prices)


def chosen_cost_ns(chosen: Iterable[PlacedProbes], prices: Prices) -> float:
    """The cost of crossing a boundary with these probes once."""
    probes = [
        (
            one.event,
            Probe(
                (one.mapped, one.point.address), one.point.kind == "uretprobe", one.point.emulated
            ),
        )
        for one in chosen
    ]
    return crossing_ns(prices, probes)


def shared_once(sites: Iterable[Site]) -> tuple[Site, ...]:
    """The sites without duplicates: two functions may exit through the same third one."""
    kept: dict[tuple[object, ...], Site] = {}
    for site in sites:
        place = (site.object.open_path, site.file_offset, site.kind)
        own = site.boundary if site.event == "enter" else ""
        kept.setdefault((*place, site.event, site.action, site.phase, own), site)
    return tuple(kept.values())


def cheapest_of_each(placed: Sequence[Placed]) -> list[Placed]:
    """All boundaries; of equivalent ones only the cheapest available."""
    kept: list[Placed] = []
    for entry in placed:
        mark = entry.boundary.equivalent
        rival = next((k for k in kept if mark and k.boundary.equivalent == mark), None)
        if rival is None:
            kept.append(entry)
        elif not entry.chosen or (rival.chosen and rival.cost_ns <= entry.cost_ns):
            rival.refused += entry.refused
            rival.refuse(entry.boundary.id, "boundary", _why_not(entry, rival))
        else:
            entry.refused += rival.refused
            entry.refuse(rival.boundary.id, "boundary", _why_not(rival, entry))
            kept[kept.index(rival)] = entry
    return kept


def _why_not(loser: Placed, winner: Placed) -> str:
    if not loser.chosen:
        return "the target has none of its functions"
    return why_not_cheaper(loser.cost_ns, winner.cost_ns)


def why_not_cheaper(cost_ns: float, than_ns: float) -> str:
    """Why an alternative was not chosen, as text."""
    if cost_ns == than_ns:
        return f"costs the same: {cost_ns / 1000:.2f} us"
    return f"costs more: {cost_ns / 1000:.2f} us instead of {than_ns / 1000:.2f} us"


def with_reason(chosen: PlacedProbes, refusal: str) -> PlacedProbes:
    """The same probe; if single-stepped, its reason adds why the callers cannot be probed."""
    if chosen.point.emulated:
        return chosen
    return chosen._replace(
        point=replace(chosen.point, reason=f"{chosen.point.reason}, and {refusal}")
    )


def _site(placed: Placed, chosen: PlacedProbes, offset: int) -> Site:
    boundary, point = placed.boundary, chosen.point
    return Site(
        boundary=boundary.id,
        action=boundary.action,
        phase=boundary.phase,
        event=chosen.event,
        function=point.function,
        object=chosen.mapped,
        file_offset=offset,
        virtual_address=point.address,
        instruction=point.instruction,
        kind=point.kind,
        stepped=not point.emulated,
        register=point.register,
        stack_bytes=point.stack_bytes,
        only_in=boundary.only_in,
        reason=point.reason,
        blocking=boundary.blocking,
        success=boundary.success,
        state=boundary.state,
        role=boundary.role,
        side=boundary.side,
        per=boundary.per,
        hits=placed.hits,
        condition=point.condition,
        stray=point.stray,
        unseen_exits=point.unseen_exits,
    )


@dataclass(frozen=True)
class Wanted:
    """A function whose exits are wanted."""

    boundary: Boundary
    kind: str  # of the definition
    mapped: MappedObject
    finder: Finder
    symbol: Symbol

    @property
    def enters(self) -> bool:
        """Whether its entry is wanted, too."""
        return "enter" in self.boundary.events

    @property
    def returned(self) -> bool:
        """Whether its exit reads what it returns."""
        return self.boundary.action in READS_RETURNED

    @property
    def entries(self) -> list[Entry]:
        """Emulated instructions for the entry; none where the argument is not readable there."""
        argument = self.boundary.argument if self.enters else -1
        entries = self.finder.entries(self.symbol, argument)
        return entries if self.enters else [e for e in entries if e.bypass == EVERY_PATH]

    @property
    def has_other_calls(self) -> bool:
        """Whether an operation of handshakes has calls that are none and hit what is inside of it.

        They ask for a size, or it leaves by a jump into what others call for something else.
        """
        if self.boundary.only_in != "handshake" or not self.enters:
            return False
        if self.boundary.output >= 0:
            return True
        return TAIL_CALL in self.finder.flow(self.symbol).leaves.values()

    def enter(self) -> tuple[ProbePoint, bool]:
        """The best entry, and whether every path executes it."""
        if entries := self.entries:
            return self.finder.entry_point(self.symbol, entries[0]), entries[0].bypass == EVERY_PATH
        if self.finder.is_refused(self.symbol):
            raise RefusedError("the kernel refuses a probe on its first instruction")
        return self.finder.start_point(self.symbol, self.boundary.argument), True
