# SPDX-License-Identifier: GPL-2.0-only
"""Probes a function at its call sites, if it contains no suitable emulated instruction.

A direct `call` is emulated, and the arguments are in their registers there. One of the instructions
after it usually is emulated too (the conditional jump that checks the result). Probes on both, at
every call site, see each call from entry to exit. All callers must be known: every object that
imports the function is searched for calls through its stub, and the defining object for direct
calls too. A function whose address is taken (a table of pointers), or whose code is the target of a
jump from inside another function, may have unknown callers, and is refused with that reason.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple

from iced_x86 import Register

from tlstax.collectors.binary.control_flow import Flow
from tlstax.collectors.binary.dataflow import holders, preferred
from tlstax.collectors.binary.elf import Elf, Symbol
from tlstax.collectors.binary.instructions import ARGUMENT_NAMES, REGISTER_NAMES, text_of
from tlstax.collectors.host.prices import Prices
from tlstax.collectors.placement.call_sites import References, RefusedError, imports
from tlstax.collectors.placement.probe_points import Finder, ProbePoint
from tlstax.collectors.process.mappings import MappedObject
from tlstax.collectors.process.target import Target

CALLERS_LIMIT: Final = 16


class CallerSpot(NamedTuple):
    """A probe point in an object that calls the function."""

    event: str
    mapped: MappedObject
    elf: Elf
    point: ProbePoint


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
    ) -> list[CallerSpot]:
        """Entry and exit of the function at each of its callers. Raises RefusedError."""
        found = []
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
            for event, point in _around(finder, calls, symbol, events, argument, returned):
                found.append(CallerSpot(event, mapped, finder.elf, point))
        if not found:
            raise RefusedError("nothing in the process calls it directly")
        if len(found) > CALLERS_LIMIT * len(events):
            raise RefusedError(f"it is called from more than {CALLERS_LIMIT} places")
        return found


class FindersOf:
    """One Finder per object; objects that are not `opened` yet are closed with `resources`."""

    def __init__(
        self,
        resources: ExitStack,
        opened: Mapping[str, Elf],
        emulated: Collection[str],
        prices: Prices,
    ) -> None:
        self._resources = resources
        self._opened = opened
        self._emulated, self._prices = emulated, prices
        self._finders: dict[str, Finder] = {}

    def of(self, mapped: MappedObject) -> Finder:
        """The finder of a mapped object."""
        path = mapped.open_path
        if path not in self._finders:
            elf = self._opened.get(path)
            if elf is None:
                elf = self._resources.enter_context(Elf(path, mapped.headers))
            self._finders[path] = Finder(elf, self._emulated, self._prices)
        return self._finders[path]


def _around(
    finder: Finder,
    calls: set[int],
    symbol: Symbol,
    events: Sequence[str],
    argument: int,
    returned: bool,
) -> Iterator[tuple[str, ProbePoint]]:
    """Probe points before and after each call. Raises RefusedError if one has none."""
    by_function: dict[int, set[int]] = {}
    for address in calls:
        start = finder.code.start_of(address)
        if start is None:
            raise RefusedError(f"it is called from code of unknown bounds in {finder.elf.name}")
        by_function.setdefault(start, set()).add(address)
    for start, places in sorted(by_function.items()):
        name = finder.code.name_at(start) or f"[{finder.elf.name}+{start:#x}]"
        flow = finder.flow(Symbol(start, 0, name))
        if flow.broken:
            raise RefusedError(f"its caller {name} cannot be analysed: {flow.broken}")
        jumps = places & flow.callees.keys()
        real = places & flow.calls
        if any(at in flow.at for at in places - real - jumps):
            raise RefusedError(f"{name} jumps into it")
        for place in sorted(jumps):
            yield from _tail(finder, flow, place, name, symbol, events, argument)
        for place in sorted(real):
            yield from _pair(finder, flow, place, real, name, symbol, events, argument, returned)


def _tail(
    finder: Finder,
    flow: Flow,
    place: int,
    name: str,
    symbol: Symbol,
    events: Sequence[str],
    argument: int,
) -> Iterator[tuple[str, ProbePoint]]:
    """A caller that ends with a tail call: the stack is as on entry of the function."""
    if not finder.is_emulated(flow.at[place]):
        raise RefusedError(f"the tail call in {name} is single-stepped")
    why = f"the tail call in {name}: {symbol.name} has no suitable emulated instruction"
    text = text_of(flow.at[place])
    if "enter" in events:
        register = ARGUMENT_NAMES[argument] if argument >= 0 else ""
        yield "enter", ProbePoint(name, place, text, "uprobe", True, why, register)
    if "exit" in events:
        yield "exit", ProbePoint(name, place, text, "uretprobe", True, why, "rax")


def _pair(
    finder: Finder,
    flow: Flow,
    place: int,
    calls: set[int],
    name: str,
    symbol: Symbol,
    events: Sequence[str],
    argument: int,
    returned: bool,
) -> Iterator[tuple[str, ProbePoint]]:
    depth = flow.depth_bytes.get(place)
    if depth is None or not finder.is_emulated(flow.at[place]):
        raise RefusedError(f"the call in {name} is single-stepped or its stack depth is unknown")
    if "enter" in events:
        register = ARGUMENT_NAMES[argument] if argument >= 0 else ""
        why = f"the call in {name}: {symbol.name} has no suitable emulated instruction"
        text = text_of(flow.at[place])
        yield "enter", ProbePoint(name, place, text, "uprobe", True, why, register, -8)
    if "exit" not in events:
        return
    behind = _first_emulated(finder, flow, place)
    if behind & flow.reach([flow.start], without=calls) or flow.open_ends:
        raise RefusedError(f"{name} may reach the code after the call by another path")
    held = _held_after(flow, place) if returned else {}
    for address in sorted(behind):
        below = flow.depth_bytes.get(address)
        if below is None or (returned and not held.get(address)):
            raise RefusedError(f"{name} does not keep the result in a register")
        register = REGISTER_NAMES[preferred(Register.RAX, held[address])] if returned else "rax"
        why = f"the first emulated instruction in {name} after its call of {symbol.name}"
        text = text_of(flow.at[address])
        yield "exit", ProbePoint(name, address, text, "uprobe", True, why, register, below - depth)


def _first_emulated(finder: Finder, flow: Flow, place: int) -> set[int]:
    """The first emulated instruction on each path after a call."""
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
            raise RefusedError(f"a caller has no emulated instruction after its call at {place:#x}")
        else:
            waiting += flow.after[address]
    return found


def _held_after(flow: Flow, place: int) -> dict[int, frozenset[int]]:
    """Before each instruction after a call, the registers that hold its result."""
    part = Flow(flow.after[place][0], flow.at, flow.after, flow.leaves, {}, flow.calls)
    return dict(holders(part, Register.RAX))
