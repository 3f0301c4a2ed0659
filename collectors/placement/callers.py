# SPDX-License-Identifier: GPL-2.0-only
"""Probes a function at its call sites, if it contains no suitable emulated instruction.

A direct `call` is emulated, and the arguments are in their registers there. One of the instructions
after it usually is emulated too (the conditional jump that checks the result). Probes on both, at
every call site, see each call from entry to exit. All callers must be known: every object that
imports the function is searched for calls through its stub, and the defining object for direct
calls too. A function whose address is taken (a table of pointers), or whose code is the target of a
jump from inside another function, may have unknown callers, and is refused with that reason.
A caller that ends with a jump into the function returns where that caller was called, so its own
callers are searched, too.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple

from tlstax.collectors.binary.control_flow import Flow
from tlstax.collectors.binary.dataflow import holders, preferred
from tlstax.collectors.binary.elf import Elf, Symbol
from tlstax.collectors.binary.symbol_tables import ObjectSymbols
from tlstax.collectors.host.probe_costs.prices import Prices
from tlstax.collectors.placement.call_sites import References, RefusedError, exports, imports
from tlstax.collectors.placement.probe_points import Finder, ProbePoint
from tlstax.collectors.process.mappings import MappedObject
from tlstax.collectors.process.target import Target

CALLERS_LIMIT: Final = 16
JUMPS_LIMIT: Final = 3  # from function to function, before the wanted one
LOOK_BACK_LIMIT: Final = 24  # instructions before a call


class CallerSpot(NamedTuple):
    """A probe point in an object that calls the function."""

    event: str
    mapped: MappedObject
    elf: Elf
    point: ProbePoint


class _How(NamedTuple):
    events: tuple[str, ...]
    argument: int
    returned: bool
    strays: bool
    stepped: bool
    all_followed: bool
    output: int = -1
    stray: bool = False  # every exit is


class Callers:
    """The places of a process that call a function."""

    def __init__(self, target: Target, finders: "FindersOf") -> None:
        self._target = target
        self._finders = finders
        self._references: dict[str, References] = {}

    def points(
        self,
        defined_in: MappedObject,
        symbol: Symbol,
        events: Sequence[str],
        argument: int = -1,
        returned: bool = False,
        strays: bool = False,
        stepped: bool = False,
        all_followed: bool = False,
        output: int = -1,
    ) -> tuple[list[CallerSpot], bool]:
        """Entry and exit of the function at each of its callers, and whether no exit is missing.

        `strays`: whether an exit may also be crossed by a path without the call; `stepped`: whether
        it may be single-stepped where no instruction behind the call is emulated;
        `all_followed`: refuse a function that may be called from code behind a jump table, whose
        call would end at the next boundary; `output`: leave out calls whose argument of this index
        is certainly 0. Raises RefusedError.
        """
        how = _How(tuple(events), argument, returned, strays, stepped, all_followed, output)
        return self._points(defined_in, symbol, how, 0)

    def _points(
        self, defined_in: MappedObject, symbol: Symbol, how: "_How", depth: int
    ) -> tuple[list[CallerSpot], bool]:
        found: list[CallerSpot] = []
        complete = True
        for mapped in self._target.objects:
            if not mapped.open_path:
                continue
            finder = self._finders.of(mapped)
            own = symbol.address if mapped == defined_in else None
            if own is None and not imports(finder.elf, symbol.name):
                continue
            if mapped.open_path not in self._references:
                self._references[mapped.open_path] = References(finder)
            calls = self._references[mapped.open_path].calls_of(symbol.name, own)
            for event, point in _around(finder, calls, symbol, how):
                found.append(CallerSpot(event, mapped, finder.elf, point))
            if "exit" not in how.events:
                continue
            hidden = _hidden(finder, calls)
            if hidden and how.all_followed:
                raise RefusedError(f"{hidden} may call it from behind a jump table")
            complete = complete and not hidden
            for caller in _jumping(finder, calls):
                try:
                    exits, all_seen = self._behind(mapped, caller, how, depth)
                except RefusedError:
                    if not how.strays:
                        raise
                    complete = False
                    continue
                found += exits
                complete = complete and all_seen
        if not any(spot.event == "exit" for spot in found) and "exit" in how.events:
            raise RefusedError("nothing in the process calls it directly")
        if len(found) > CALLERS_LIMIT * len(how.events):
            raise RefusedError(f"it is called from more than {CALLERS_LIMIT} places")
        return found, complete

    def _behind(
        self, mapped: MappedObject, caller: Symbol, how: "_How", depth: int
    ) -> tuple[list[CallerSpot], bool]:
        """Exits behind the calls of a function that ends with a jump."""
        if depth >= JUMPS_LIMIT:
            raise RefusedError("it is reached by a row of jumps")
        if not how.strays:
            raise RefusedError(f"{caller.name} jumps into it, and is called for other reasons, too")
        how = how._replace(events=("exit",), stray=True)
        found, complete = self._points(mapped, caller, how, depth + 1)
        # An object loaded later may call it, too.
        return found, complete and not exports(self._finders.of(mapped).elf, caller.name)


class FindersOf:
    """One Finder per object; objects that are not `opened` yet are closed with `resources`."""

    def __init__(
        self,
        resources: ExitStack,
        opened: Mapping[str, Elf],
        emulated: Collection[str],
        prices: Prices,
        names: Mapping[str, ObjectSymbols | None],
    ) -> None:
        self._resources = resources
        self._opened, self._names = opened, names
        self._emulated, self._prices = emulated, prices
        self._finders: dict[str, Finder] = {}

    def of(self, mapped: MappedObject) -> Finder:
        """The finder of a mapped object."""
        path = mapped.open_path
        if path not in self._finders:
            elf = self._opened.get(path)
            if elf is None:
                elf = self._resources.enter_context(Elf(path, mapped.headers))
            self._finders[path] = Finder(elf, self._emulated, self._prices, self._names.get(path))
        return self._finders[path]


def _by_function(finder: Finder, calls: set[int]) -> Iterator[tuple[Symbol, Flow, set[int]]]:
    """The functions that contain these calls. Raises RefusedError if one cannot be analysed."""
    by_function: dict[int, set[int]] = {}
    for address in calls:
        start = finder.code.start_of(address)
        if start is None:
            raise RefusedError(f"it is called from code of unknown bounds in {finder.elf.name}")
        by_function.setdefault(start, set()).add(address)
    for start, places in sorted(by_function.items()):
        name = finder.code.name_at(start) or f"[{finder.elf.name}+{start:#x}]"
        caller = Symbol(start, 0, name)
        flow = finder.flow(caller)
        if flow.broken:
            raise RefusedError(f"its caller {name} cannot be analysed: {flow.broken}")
        yield caller, flow, places


def _jumping(finder: Finder, calls: set[int]) -> Iterator[Symbol]:
    """The callers that end with a jump into the function."""
    for caller, flow, places in _by_function(finder, calls):
        if places & flow.callees.keys():
            yield caller


def _hidden(finder: Finder, calls: set[int]) -> str:
    """A function with what may be real calls in code that is not followed, behind a jump table."""
    for caller, flow, places in _by_function(finder, calls):
        if flow.open_ends and not places <= flow.at.keys():
            return caller.name
    return ""


def _around(
    finder: Finder, calls: set[int], symbol: Symbol, how: _How
) -> Iterator[tuple[str, ProbePoint]]:
    """Probe points before and after each call. Raises RefusedError if one has none."""
    for caller, flow, places in _by_function(finder, calls):
        name = caller.name
        jumps = places & flow.callees.keys()
        real = (places & flow.calls) - _size_queries(flow, places, how.output)
        others = places - flow.calls - jumps
        if any(at in flow.at for at in others):
            raise RefusedError(f"{name} jumps into it")
        if others and flow.open_ends and not how.strays:
            raise RefusedError(f"{name} may call it from behind a jump table")
        for place in sorted(jumps):
            yield from _tail(finder, flow, place, name, symbol, how)
        for place in sorted(real):
            yield from _pair(finder, flow, place, real, name, symbol, how)


def _size_queries(flow: Flow, places: set[int], output: int) -> set[int]:
    """The calls that pass 0 as the argument `output`: nothing is made, its size is asked for."""
    if output < 0:
        return set()
    register, before = flow.machine.arguments[output], flow.before()
    return {place for place in places if _is_cleared(flow, before, place, register)}


def _is_cleared(flow: Flow, before: Mapping[int, list[int]], place: int, register: int) -> bool:
    """Whether a register is 0 at an instruction, by what all paths to it execute last."""
    for _ in range(LOOK_BACK_LIMIT):
        ways = before.get(place, [])
        if len(ways) != 1 or ways[0] in flow.calls:
            return False
        place = ways[0]
        if register in flow.machine.written_registers(flow.at[place]):
            return flow.machine.cleared(flow.at[place]) == register
    return False


def _tail(
    finder: Finder, flow: Flow, place: int, name: str, symbol: Symbol, how: _How
) -> Iterator[tuple[str, ProbePoint]]:
    """A caller that ends with a tail call: the stack is as on entry of the function."""
    if "enter" not in how.events:
        return
    if not finder.is_emulated(flow.at[place]):
        raise RefusedError(f"the tail call in {name} is single-stepped")
    why = f"the tail call in {name}: {symbol.name} has no suitable emulated instruction"
    machine = finder.machine
    text, register = machine.text_of(flow.at[place]), machine.argument_name(how.argument)
    yield (
        "enter",
        ProbePoint(name, place, text, "uprobe", True, why, register, machine.entry_bytes),
    )


def _pair(
    finder: Finder,
    flow: Flow,
    place: int,
    calls: set[int],
    name: str,
    symbol: Symbol,
    how: _How,
) -> Iterator[tuple[str, ProbePoint]]:
    depth, machine = flow.depth_bytes.get(place), finder.machine
    if depth is None or not finder.is_emulated(flow.at[place]):
        raise RefusedError(f"the call in {name} is single-stepped or its stack depth is unknown")
    if "enter" in how.events:
        register = machine.argument_name(how.argument)
        why = f"the call in {name}: {symbol.name} has no suitable emulated instruction"
        if how.output >= 0:
            why = f"the call in {name}: others of {symbol.name} only ask for a size"
        text = machine.text_of(flow.at[place])
        yield "enter", ProbePoint(name, place, text, "uprobe", True, why, register, -8)
    if "exit" not in how.events:
        return
    behind = _first_emulated(finder, flow, place, how.stepped)
    elsewhere = behind & flow.reach([flow.start], without=calls)
    if (elsewhere or flow.open_ends) and not how.strays:
        raise RefusedError(f"{name} may reach the code after the call by another path")
    held = _held_after(flow, place) if how.returned else {}
    for address in sorted(behind):
        below = flow.depth_bytes.get(address)
        kept = machine.readable(held.get(address, frozenset()))
        if below is None or (how.returned and not kept):
            raise RefusedError(f"{name} does not keep the result in a register")
        if machine.is_refused(flow.at[address]):
            raise RefusedError(f"the kernel refuses a probe after its call in {name}")
        register = machine.result_name
        if how.returned:
            register = machine.names[preferred(machine.result, kept)]
        emulated = finder.is_emulated(flow.at[address])
        what = "first emulated instruction" if emulated else "instruction"
        why = f"the {what} in {name} after its call of {symbol.name}"
        text = machine.text_of(flow.at[address])
        stray = how.stray or address in elsewhere or bool(flow.open_ends)
        yield (
            "exit",
            ProbePoint(
                name, address, text, "uprobe", emulated, why, register, below - depth, stray=stray
            ),
        )


def _first_emulated(finder: Finder, flow: Flow, place: int, stepped: bool) -> set[int]:
    """The first emulated instruction on each path after a call; the next one if `stepped`."""
    found: set[int] = set()
    seen: set[int] = set()
    waiting = list(flow.after[place])
    while waiting:
        address = waiting.pop()
        if address in seen or address not in flow.at:
            continue
        seen.add(address)
        if finder.is_emulated(flow.at[address]):
            found.add(address)
        elif address in flow.leaves or address in flow.calls:
            if stepped:
                return {at for at in flow.after[place] if at in flow.at}
            raise RefusedError(f"a caller has no emulated instruction after its call at {place:#x}")
        else:
            waiting += flow.after[address]
    return found


def _held_after(flow: Flow, place: int) -> dict[int, frozenset[int]]:
    """Before each instruction after a call, the registers that hold its result."""
    start, machine = flow.after[place][0], flow.machine
    part = Flow(start, machine, flow.at, flow.after, flow.leaves, {}, flow.calls)
    return dict(holders(part, machine.result))
