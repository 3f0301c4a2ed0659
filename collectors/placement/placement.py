# SPDX-License-Identifier: GPL-2.0-only
"""Where to put the probes: the cheapest instructions that still see every crossing of a boundary.

For each boundary of the definitions one of its equivalent functions is chosen, and in it the
instructions that `placement.probe_points` finds: for an entry the first emulated instruction that
every path crosses; for an exit the first way that serves of those in `placement.exit_order`. If a
function has no emulated instruction for its entry, its call sites are probed instead
(`placement.callers`), provided all of them are known. Otherwise the probe is placed on the
function's first instruction and is marked `stepped`, with the reason.

Equivalents are compared by the cost of a crossing on this host: the cost of its probes times the
number of calls of the function (`hits`). `Plan.refused` lists what was not chosen, with reasons.

A boundary with a method table is placed in the functions that the table points to. Its named
functions are used only in an object whose table cannot be read.

Nothing is attached here, and the process is not touched. Each address is an instruction boundary,
because it was reached by following the function's code from its first instruction.
"""

from collections.abc import Collection, Sequence
from contextlib import ExitStack

from tlstax.collectors.binary.elf import Elf, Symbol
from tlstax.collectors.binary.machine import SUPPORTED
from tlstax.collectors.host.probe_costs.prices import HostCosts, call_ns
from tlstax.collectors.placement.call_sites import RefusedError, exports
from tlstax.collectors.placement.callers import Callers, FindersOf
from tlstax.collectors.placement.detection import Detected, detect
from tlstax.collectors.placement.exit_order import Exits
from tlstax.collectors.placement.limits import forbidden_ways, within, without_forms
from tlstax.collectors.placement.method_table import functions_in
from tlstax.collectors.placement.model import NO_LIMITS, Limits, Missing, Plan
from tlstax.collectors.placement.name_gaps import name_gaps, nothing_known
from tlstax.collectors.placement.placed import (
    Placed,
    PlacedProbes,
    cheapest_of_each,
    chosen_cost_ns,
    sites_of,
    why_not_cheaper,
    with_reason,
)
from tlstax.collectors.placement.plan_notes import (
    notes_on,
    other_machine,
    read_accessor,
    role_marks,
)
from tlstax.collectors.placement.probe_points import Finder, ProbePoint
from tlstax.collectors.process.mappings import MappedObject
from tlstax.collectors.process.target import Target
from tlstax.probes.model import Boundary, Definition, Function, Level

__all__ = ["Planner", "ProbePoint", "plan", "points_of"]

ONE_PHASE = "Reading, executing and answering a command are one phase, `command`."
BETWEEN_ROLES = frozenset({"tunnel", "proxy"})


def plan(
    target: Target,
    definitions: Sequence[Definition],
    level: Level = Level.RECORD,
    role: str = "server",
    host_costs: HostCosts | None = None,
    limits: Limits = NO_LIMITS,
) -> Plan:
    """Plan every probe for a target. Raises TlstaxError if nothing in it is recognised.

    `limits`: kinds of probes that the plan may not have (`placement.limits`).

    A server may contain a client library, and vice versa: only the definitions of its `role` and
    those of TLS libraries are used. A tunnel or proxy needs none: scheduler events and samples
    are enough for its CPU time and its waits.
    """
    with ExitStack() as resources:
        mine = [entry for entry in definitions if entry.kind in ("tls", role)]
        detected = detect(target, mine, resources)
        if not detected and role not in BETWEEN_ROLES:
            raise nothing_known(target)
        costs = without_forms(host_costs or HostCosts(), limits)
        planner = Planner(target, detected, costs, resources, forbidden_ways(limits))
        return within(planner.plan(level, role), limits)


def points_of(
    elf: Elf, symbol: Symbol, events: Sequence[str], argument: int = -1, returned: bool = False
) -> list[tuple[str, ProbePoint]]:
    """The probe points for "enter" and "exit" of one function; an exit may need several.

    `argument`: index of the argument that is read on entry, -1 for none; `returned`: whether the
    exit reads the result. The point's `register` holds the value to read.
    """
    return Finder(elf).points(symbol, events, argument, returned)


class Planner:
    """The probes of one process."""

    def __init__(
        self,
        target: Target,
        detected: Sequence[Detected],
        host_costs: HostCosts,
        resources: ExitStack,
        forbidden: Collection[str] = (),
    ) -> None:
        self.target = target
        self.detected = detected
        self.host_costs = host_costs
        opened = {entry.mapped.open_path: entry.elf for lib in detected for entry in lib.objects}
        emulated = host_costs.emulated
        names = {entry.mapped.open_path: entry.names for lib in detected for entry in lib.objects}
        self.finders = FindersOf(resources, opened, emulated, host_costs.prices, names)
        self.callers = Callers(target, self.finders)
        self.exits = Exits(self.callers, forbidden)
        for elf in opened.values():
            if elf.machine not in SUPPORTED:
                raise other_machine(target, elf)

    def plan(self, level: Level, role: str = "server") -> Plan:
        """Every probe of the level."""
        clients = any(entry.library.kind == "client" for entry in self.detected)
        called = "client" if clients else "tls"
        placed: list[Placed] = []
        missing: list[Missing] = []
        accessors: dict[str, int] = {}
        for entry in self.detected:
            # A client's calls are those of the library nearest to it.
            is_called = role == "client" and entry.library.kind == called
            wanted = [
                boundary
                for boundary in entry.definition.boundaries
                if boundary.is_probed_at(level) and (boundary.action != "call" or is_called)
            ]
            found = cheapest_of_each([self.place(boundary, entry) for boundary in wanted])
            if level == Level.FLOW and entry.definition.kind == "server":
                found += self._for_first_commands(entry, found)
            placed += found
            for accessor in entry.definition.accessors:
                offset = read_accessor(accessor, entry)
                accessors[accessor.id] = max(offset, accessors.get(accessor.id, -1))
                if offset < 0:
                    why = "the function is absent, or does not only read the field"
                    missing.append(
                        Missing(accessor.id, (accessor.function,), accessor.missing, why)
                    )
        return Plan(
            pid=self.target.pid,
            level=level,
            libraries=tuple(entry.library for entry in self.detected),
            sites=sites_of(placed, self.host_costs.prices),
            missing=(*(lost for entry in placed for lost in entry.missing), *missing),
            accessors=accessors,
            role=role,
            role_marks=tuple(mark for entry in self.detected for mark in role_marks(entry)),
            refused=tuple(refused for entry in placed for refused in entry.refused),
            notes=tuple(notes_on(self.detected, accessors)),
            host_costs=self.host_costs,
            gaps=(*name_gaps(self.target, self.detected, role), *self._gaps_of(level, role)),
        )

    def _gaps_of(self, level: Level, role: str) -> list[Missing]:
        """What level flow has no probes for."""
        if level != Level.FLOW or role != "server":
            return []
        return [
            Missing("records", (), ONE_PHASE),
            *(
                Missing(boundary.id, (), boundary.missing, "not probed at level flow")
                for entry in self.detected
                for boundary in entry.definition.boundaries
                if boundary.level > level and not boundary.optional
                if boundary.action == "wait" or boundary.phase == "tde"
            ),
        ]

    def _for_first_commands(self, library: Detected, placed: Sequence[Placed]) -> list[Placed]:
        """Where nothing marks a connection as ready, the function that reads commands does."""
        if any(one.chosen and one.boundary.action == "base_idle" for one in placed):
            return []
        reading = (one for one in library.definition.boundaries if one.action == "await_receive")
        return [self.place(boundary, library) for boundary in reading]

    def place(self, boundary: Boundary, library: Detected) -> Placed:
        """The probes of one boundary, and what the report lacks without those it misses."""
        placed = Placed(boundary)
        if boundary.only_with and not library.defines(boundary.only_with):
            return placed
        found = self._in_tables(placed, library)
        self._choose_named(placed, library, found)
        for probes in found.values():
            placed.chosen += probes
        if not placed.chosen and boundary.optional:
            placed.refused.clear()
        elif not placed.chosen:
            names = tuple(function.pattern for function in boundary.functions)
            why = "; ".join(dict.fromkeys(refused.why for refused in placed.refused))
            placed.missing.append(Missing(boundary.id, names, boundary.missing, why))
        return placed

    def _choose_named(
        self, placed: Placed, library: Detected, without: Collection[MappedObject]
    ) -> None:
        """The cheapest of the boundary's named functions; nothing if the binary has none.

        `without`: objects in which its functions were found through a table.
        """
        best: tuple[tuple[bool, float], Function, list[PlacedProbes]] | None = None
        for function in placed.boundary.functions:
            found = library.functions(function)
            if not found:
                why = "no function has this name: another version, stripped, or inlined"
                placed.refuse(function.pattern, "function", why)
                continue
            points: list[PlacedProbes] = []
            crossings_ns = []
            for mapped, _, symbol in found:
                if mapped in without:
                    placed.refuse(symbol.name, "function", "replaced through its method table")
                    continue
                kind = library.definition.kind
                more, crossing = self._in_function(placed, kind, mapped, symbol)
                points += more
                crossings_ns.append(crossing)
            if not points:
                continue
            rank = (_lacks_exits(placed.boundary, points), call_ns(crossings_ns, function.hits))
            if best is None or rank < best[0]:
                if best is not None:
                    placed.refuse(best[1].pattern, "function", _why_not(best[0], rank))
                best = (rank, function, points)
            else:
                placed.refuse(function.pattern, "function", _why_not(rank, best[0]))
        if best is not None:
            cost_ns = max(placed.cost_ns, best[0][1])
            placed.cost_ns, placed.hits, placed.chosen = cost_ns, best[1].hits, best[2]

    def _in_function(
        self, placed: Placed, kind: str, mapped: MappedObject, symbol: Symbol
    ) -> tuple[list[PlacedProbes], float]:
        """The probe points of one function, and the cost of a call of it."""
        finder = self.finders.of(mapped)
        if "exit" in placed.boundary.events:
            chosen = self.exits.place(placed, kind, mapped, finder, symbol)
            return chosen, chosen_cost_ns(chosen, self.host_costs.prices)
        boundary = placed.boundary
        options = finder.options(symbol, boundary.events, boundary.argument)
        if not options:
            placed.refuse(symbol.name, "function", "its code does not disassemble")
            return [], 0.0
        best = options[0]
        for other in options[1:]:
            if other.name == "start" and other.cost_ns == best.cost_ns:
                continue  # the same instruction
            placed.refuse(symbol.name, other.name, why_not_cheaper(other.cost_ns, best.cost_ns))
        chosen = [PlacedProbes(event, mapped, finder.elf, point) for event, point in best.points]
        if not best.stepped or not symbol.name:
            return chosen, best.cost_ns
        try:
            if not boundary.only_in and exports(finder.elf, symbol.name):
                # Only the library itself calls functions within its own phases (only_in).
                raise RefusedError("an object loaded later may call it, too")
            around, _ = self.callers.points(mapped, symbol, boundary.events, boundary.argument)
        except RefusedError as refused:
            placed.refuse(symbol.name, "its callers", str(refused))
            return [with_reason(entry, str(refused)) for entry in chosen], best.cost_ns
        outside = [PlacedProbes(*entry) for entry in around]
        cost = chosen_cost_ns(outside, self.host_costs.prices)
        placed.refuse(symbol.name, best.name, why_not_cheaper(best.cost_ns, cost))
        return outside, cost

    def _in_tables(
        self, placed: Placed, library: Detected
    ) -> dict[MappedObject, list[PlacedProbes]]:
        """The probes in functions that method tables point to, by the object of the table."""
        table = placed.boundary.method_table
        found: dict[MappedObject, list[PlacedProbes]] = {}
        if table is None:
            return found
        for entry in library.objects:
            if not any(self._names(placed.boundary, symbol) for symbol in entry.symbols):
                continue
            better: dict[tuple[str, int], PlacedProbes] = {}
            for symbol in functions_in(table, entry):
                code = self.finders.of(entry.mapped).code
                name = code.name_at(symbol.address) or f"[{entry.elf.name}+{symbol.address:#x}]"
                points, cost = self._in_function(
                    placed, "tls", entry.mapped, symbol._replace(name=name)
                )
                placed.cost_ns = max(placed.cost_ns, cost)
                for chosen in points:
                    better.setdefault((chosen.event, chosen.point.address), chosen)
            if better:
                found[entry.mapped] = list(better.values())
            else:
                names = (*table.getters, *table.setters)
                why = "the table cannot be read"
                placed.missing.append(Missing(placed.boundary.id, names, table.missing, why))
        return found

    @staticmethod
    def _names(boundary: Boundary, symbol: Symbol) -> bool:
        return any(function.matches(symbol.name) for function in boundary.functions)


def _lacks_exits(boundary: Boundary, points: Sequence[PlacedProbes]) -> bool:
    """Whether the end of a function is seen at the next boundary only."""
    return "exit" in boundary.events and not any(one.event == "exit" for one in points)


def _why_not(rank: tuple[bool, float], than: tuple[bool, float]) -> str:
    if rank[0] != than[0]:
        return "its end would be seen at the next boundary only"
    return why_not_cheaper(rank[1], than[1])
