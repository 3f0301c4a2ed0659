# SPDX-License-Identifier: GPL-2.0-only
"""Where a bpftrace program's probes go in one process.

bpftrace accepts fewer probes than the kernel: return probes of named functions only at their start,
offsets only if bpftrace was built with a disassembler to check them (Debian 12's was not), and
addresses only with --unsafe and only for functions without a name in the file. Of the places that
`placement.probe_points` finds, the cheapest that bpftrace accepts is chosen.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from tlstax.collectors.binary.elf import Symbol
from tlstax.collectors.host.probe_costs.prices import HostCosts, Probe, call_ns, hit_costs_ns
from tlstax.collectors.placement.detection import Detected, OpenObject, detect
from tlstax.collectors.placement.method_table import functions_in
from tlstax.collectors.placement.probe_points import Finder, Option, ProbePoint
from tlstax.collectors.process.mappings import MappedObject
from tlstax.collectors.process.target import Target
from tlstax.probes.model import Boundary, Definition, Function

SAFE_PATH: Final = re.compile(r"[\w./+@~-]+", re.ASCII)
SAFE_NAME: Final = re.compile(r"\w+", re.ASCII)
COMMAND_ENUM: Final = "19enum_server_command"


@dataclass(frozen=True)
class Place:
    """One attach point of a program."""

    boundary: str
    event: str
    function: str
    mapped: MappedObject
    file_offset: int
    attach_point: str  # in bpftrace's notation
    point: ProbePoint
    cost_ns: float  # of one hit
    unsafe: bool  # it is an address: bpftrace needs --unsafe


@dataclass(frozen=True)
class Wanted:
    """What a pair of blocks needs."""

    selectors: tuple[tuple[str, ...], ...]
    events: tuple[str, ...]
    argument: int  # the argument that is read on entry, -1 for none
    returned: bool  # the exit reads the return value


class Places:
    """Finds the places in one process. Raises TlstaxError as `detect` does."""

    def __init__(
        self,
        target: Target,
        definitions: Sequence[Definition],
        host_costs: HostCosts,
        resources: ExitStack,
        offsets: bool,
    ) -> None:
        """`offsets`: whether this bpftrace accepts an offset in a function."""
        kinds = ("tls", "server")
        mine = [entry for entry in definitions if entry.kind in kinds]
        self.detected = detect(target, mine, resources)
        self._kernel = host_costs
        self._offsets = offsets
        self._finders: dict[str, Finder] = {}

    def find(self, wanted: Wanted) -> list[Place]:
        """The places that are needed, each once; none if the process has no such function."""
        found: dict[str, Place] = {}
        for library in self.detected:
            for boundary, functions in _chosen(library, wanted.selectors):
                for place in self._placed(boundary, functions, library, wanted):
                    found.setdefault(f"{place.event} {place.attach_point}", place)
        return list(found.values())

    def consequences(self, wanted: Wanted) -> list[str]:
        """The consequences, by the definitions, of missing boundaries among those needed."""
        return [
            f"{boundary.id}: {boundary.missing}"
            for library in self.detected
            for boundary in library.definition.boundaries
            if _is_meant(boundary, wanted.selectors)
        ]

    def _placed(
        self, name: Boundary | str, functions: Sequence[Function], library: Detected, want: Wanted
    ) -> list[Place]:
        """The places in the cheapest function that the process has."""
        best: tuple[float, list[Place]] | None = None
        for function in functions:
            crossings_ns: list[float] = []
            places: list[Place] = []
            for entry, symbol in self._functions(name, function, library):
                option = self._option(entry, symbol, want)
                if option is not None:
                    crossings_ns.append(option.cost_ns)
                    places += self._places(name, entry, symbol, option)
            cost = call_ns(crossings_ns, function.hits)
            if places and (best is None or cost < best[0]):
                best = cost, places
        return best[1] if best else []

    def _functions(
        self, boundary: Boundary | str, function: Function, library: Detected
    ) -> list[tuple[OpenObject, Symbol]]:
        found: list[tuple[OpenObject, Symbol]] = []
        for mapped, _, symbol in library.functions(function):
            entry = next(one for one in library.objects if one.mapped == mapped)
            table = boundary.method_table if isinstance(boundary, Boundary) else None
            hidden = functions_in(table, entry) if table else []
            same = all(entry.elf.to_offset(one.address) == one.address for one in hidden)
            found += [(entry, one) for one in hidden] if hidden and same else [(entry, symbol)]
        return found

    def _option(self, entry: OpenObject, symbol: Symbol, want: Wanted) -> Option | None:
        finder = self._finders.get(entry.mapped.open_path)
        if finder is None:
            finder = Finder(entry.elf, self._kernel.emulated, self._kernel.prices)
            self._finders[entry.mapped.open_path] = finder
        argument = _argument(symbol.name, want.argument)
        named = self._has_name(entry, symbol)
        for option in finder.options(symbol, want.events, argument, want.returned):
            at_start = all(point.address == symbol.address for _, point in option.points)
            entered = all(point.kind == "uprobe" for _, point in option.points)
            if at_start or not named or (entered and self._offsets):
                return option
        return None

    def _has_name(self, entry: OpenObject, symbol: Symbol) -> bool:
        """Whether the file itself has the name: bpftrace reads no separate debug file."""
        known = SAFE_NAME.fullmatch(symbol.name)
        return bool(known and entry.elf.find(re.compile(re.escape(symbol.name))))

    def _places(
        self, boundary: Boundary | str, entry: OpenObject, symbol: Symbol, option: Option
    ) -> list[Place]:
        places = []
        named = self._has_name(entry, symbol)
        probes = [
            Probe(point.address, point.kind == "uretprobe", point.emulated)
            for _, point in option.points
        ]
        costs_ns = hit_costs_ns(self._kernel.prices, probes)
        for (event, point), cost in zip(option.points, costs_ns, strict=True):
            offset = entry.elf.to_offset(point.address)
            if offset is None or not SAFE_PATH.fullmatch(entry.mapped.open_path):
                continue
            inside = point.address - symbol.address
            text = f"{symbol.name}+{inside}" if inside else symbol.name
            attach_point = f"{point.kind}:{entry.mapped.open_path}:{text if named else hex(offset)}"
            name = boundary if isinstance(boundary, str) else boundary.id
            shown = symbol.name or f"[{entry.elf.name}+{symbol.address:#x}]"
            places.append(
                Place(
                    name, event, shown, entry.mapped, offset, attach_point, point, cost, not named
                )
            )
        return places


def _chosen(
    library: Detected, selectors: Collection[tuple[str, ...]]
) -> Iterable[tuple[Boundary | str, Sequence[Function]]]:
    """Boundaries and primitives of a library that the selectors choose, with their functions."""
    for boundary in library.definition.boundaries:
        if _is_meant(boundary, selectors):
            yield boundary, boundary.functions
    categories = {
        term.partition(":")[2]
        for terms in selectors
        for term in terms
        if term.startswith("primitive:")
    }
    for primitive in library.definition.primitives:
        rare = primitive.on_request or primitive.unit == "block"
        if primitive.category in categories and not rare:
            yield primitive.id, primitive.functions


def _is_meant(boundary: Boundary, selectors: Collection[tuple[str, ...]]) -> bool:
    facts = {
        boundary.id,
        f"action:{boundary.action}",
        f"phase:{boundary.phase}",
        f"state:{boundary.state}",
    }
    return any(all(term in facts for term in terms) for terms in selectors)


def _argument(name: str, argument: int) -> int:
    """The argument with the command's type: the first, and from MySQL 5.7 on the third."""
    at = name.find(COMMAND_ENUM)
    if at > 0 and argument == 0:
        return 0 if name[:at].endswith("dispatch_command") else 2
    return argument
