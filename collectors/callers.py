# SPDX-License-Identifier: GPL-2.0-only
"""Seeing a function where it is called, when it has no emulated instruction of its own to offer.

A direct `call` is emulated, and the arguments are in their registers there; so is, as a rule, one
of the next instructions behind it (the jump of the check of what was returned). With both, in every
place that calls the function, each of its calls is seen from entry to exit. That needs all callers
to be known: every object that imports the function is searched for calls through its stub, the
defining one for direct calls too. A function whose address is taken (a table of pointers), or that
is jumped to, may be called from elsewhere, and is refused with that reason.
"""

import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple

from iced_x86 import Register

from tlstax.collectors.control_flow import Flow
from tlstax.collectors.elf import SYMBOL, Elf, Symbol
from tlstax.collectors.import_stubs import STUB_BYTES
from tlstax.collectors.instructions import ARGUMENT_NAMES, REGISTER_NAMES, text_of
from tlstax.collectors.mappings import MappedObject
from tlstax.collectors.price_list import Prices
from tlstax.collectors.spots import Finder, Spot, holders, preferred
from tlstax.collectors.target import Target

CALL, JUMP, SHORT_JUMP = 0xE8, 0xE9, 0xEB
LEA_BYTES: Final = 7
RELOCATION: Final = struct.Struct("<QQq")  # Elf64_Rela: address, type and symbol, addend
JUMP_SLOT, RELATIVE = 7, 8  # R_X86_64_*
CALLERS_LIMIT: Final = 16


class RefusedError(Exception):
    """Why the callers of a function do not serve."""


class CallerSpot(NamedTuple):
    """A spot in an object that calls the function."""

    event: str
    mapped: MappedObject
    elf: Elf
    spot: Spot


class Callers:
    """The places of a process that call a function."""

    def __init__(self, target: Target, finders: "FindersOf") -> None:
        self._target = target
        self._finders = finders
        self._references: dict[str, References] = {}

    def spots(
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
            for event, spot in _around(finder, calls, symbol, events, argument, returned):
                found.append(CallerSpot(event, mapped, finder.elf, spot))
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


def imports(elf: Elf, name: str) -> bool:
    """Whether an object refers to a function of that name in another one."""
    start, end = elf.name_range(".dynsym")
    if elf.data.find(name.encode() + b"\0", start, end) < 0:  # quick, and settles most
        return False
    return any(True for _ in _symbol_numbers(elf, name))


def exports(elf: Elf, name: str) -> bool:
    """Whether other objects can find a function of that name in this one."""
    numbers = set(_symbol_numbers(elf, name))
    table = elf.content(".dynsym")
    usable = len(table) // SYMBOL.size * SYMBOL.size
    rows = enumerate(SYMBOL.iter_unpack(table[:usable]))
    return any(number in numbers and section for number, (_, _, _, section, _, _) in rows)


class References:
    """The direct calls and jumps of one object, by where they lead to.

    Those to stubs are looked up once for all functions: a server has 30 MB of code.
    """

    def __init__(self, finder: Finder) -> None:
        self._finder = finder
        self._to_stubs: tuple[dict[int, set[int]], set[int]] | None = None

    def calls_of(self, name: str, own: int | None) -> set[int]:
        """Addresses of the calls of a function; `own`: its address if this object defines it.

        Raises RefusedError when it may also be called otherwise.
        """
        elf = self._finder.elf
        _refuse_pointers(elf, name, own)
        calls: set[int] = set()
        if stubs := set(_stubs_of(self._finder, name)):
            if self._to_stubs is None:
                sections = [elf.section(section) for section in STUB_BYTES]
                ranges = [range(s.address, s.address + s.size) for s in sections if s is not None]
                self._to_stubs = _references(elf, ranges)
            places, taken = self._to_stubs
            calls.update(*(places.get(stub, set()) for stub in stubs))
            if stubs & taken:
                raise RefusedError(f"{elf.name} takes its address")
        if own is not None:
            places, taken = _references(elf, [range(own, own + 1)])
            calls |= places.get(own, set())
            if taken:
                raise RefusedError(f"{elf.name} takes its address")
        return calls


def _references(elf: Elf, wanted: Sequence[range]) -> tuple[dict[int, set[int]], set[int]]:
    """Calls and jumps to each wanted address, and those addresses that are loaded (`lea`).

    Whatever looks like one counts; the caller decodes the functions around them.
    """
    import numpy  # only here: a server has 1.5 million such places, and planning is a child's work

    calls: dict[int, set[int]] = {}
    taken: set[int] = set()
    for section in elf.headers.sections:
        if not (section.executable and section.in_file) or section.name in STUB_BYTES:
            continue
        raw = elf.slice(section.offset, section.size)
        # Padded, so that an instruction at the very end is looked at, too.
        code = numpy.frombuffer(raw + bytes(LEA_BYTES), dtype=numpy.uint8)
        one, two, three = code[:-7], code[1:-6], code[2:-5]
        for is_call, opcode_bytes, distance_bytes, found in (
            (True, 1, 4, (one == CALL) | (one == JUMP)),
            (True, 2, 4, (one == 0x0F) & (two & 0xF0 == 0x80)),
            (True, 1, 1, (one == SHORT_JUMP) | (one & 0xF0 == 0x70)),
            (False, 3, 4, ((one == 0x48) | (one == 0x4C)) & (two == 0x8D) & (three & 0xC7 == 5)),
        ):
            places = numpy.flatnonzero(found)
            distance = numpy.zeros(len(places), dtype=numpy.int64)
            for byte in range(distance_bytes):
                distance |= code[places + opcode_bytes + byte].astype(numpy.int64) << 8 * byte
            sign = 1 << 8 * distance_bytes - 1
            behind = section.address + places + opcode_bytes + distance_bytes
            targets = behind + (distance ^ sign) - sign
            for part in wanted:
                hits = numpy.flatnonzero((targets >= part.start) & (targets < part.stop))
                for place, target in zip(
                    places[hits].tolist(), targets[hits].tolist(), strict=True
                ):
                    if is_call:
                        calls.setdefault(target, set()).add(section.address + place)
                    else:
                        taken.add(target)
    return calls, taken


def _stubs_of(finder: Finder, name: str) -> Iterator[int]:
    for section_name, size in STUB_BYTES.items():
        section = finder.elf.section(section_name)
        if section is not None:
            for address in range(section.address, section.address + section.size, size):
                if finder.code.import_at(address) == name:
                    yield address


def _refuse_pointers(elf: Elf, name: str, own: int | None) -> None:
    """Raise RefusedError when a relocation puts the function's address into data."""
    numbers = set(_symbol_numbers(elf, name))
    stub_slots = elf.section(".plt.got") is not None
    content = elf.content(".rela.dyn")
    usable = len(content) // RELOCATION.size * RELOCATION.size
    wanted = {number << 32 for number in numbers}
    for _, info, addend in RELOCATION.iter_unpack(content[:usable]):
        by_name = info & ~0xFFFFFFFF in wanted and bool(info >> 32)
        kind = info & 0xFFFFFFFF
        if by_name and kind != JUMP_SLOT and not (kind == 6 and stub_slots):
            raise RefusedError(f"{elf.name} keeps a pointer to it")
        if own is not None and kind == RELATIVE and addend == own:
            raise RefusedError(f"{elf.name} keeps a pointer to it")


def _symbol_numbers(elf: Elf, name: str) -> Iterator[int]:
    """The symbols of that name. It may be stored as the end of a longer one (ECDH_..., DH_...)."""
    strings, table = elf.names(".dynsym"), elf.content(".dynsym")
    wanted = set()
    position = strings.find(name.encode() + b"\0")
    while position >= 0:
        wanted.add(position)
        position = strings.find(name.encode() + b"\0", position + 1)
    usable = len(table) // SYMBOL.size * SYMBOL.size
    for number, entry in enumerate(SYMBOL.iter_unpack(table[:usable])):
        if entry[0] in wanted:
            yield number


def _around(
    finder: Finder,
    calls: set[int],
    symbol: Symbol,
    events: Sequence[str],
    argument: int,
    returned: bool,
) -> Iterator[tuple[str, Spot]]:
    """Spots before and behind each call. Raises RefusedError where one has none."""
    by_function: dict[int, set[int]] = {}
    for address in calls:
        start = finder.code.start_of(address)
        if start is None:
            raise RefusedError(f"it is called from code without bounds in {finder.elf.name}")
        by_function.setdefault(start, set()).add(address)
    for start, places in sorted(by_function.items()):
        name = finder.code.name_at(start) or f"[{finder.elf.name}+{start:#x}]"
        flow = finder.flow(Symbol(start, 0, name))
        if flow.broken:
            raise RefusedError(f"its caller {name} cannot be followed: {flow.broken}")
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
) -> Iterator[tuple[str, Spot]]:
    """A function that leaves by a jump into it: the stack is there as where it is entered."""
    if not finder.is_emulated(flow.at[place]):
        raise RefusedError(f"{name} jumps into it by an instruction that is single-stepped")
    why = f"where {name} leaves by a jump into {symbol.name}, which has no emulated instruction"
    text = text_of(flow.at[place])
    if "enter" in events:
        register = ARGUMENT_NAMES[argument] if argument >= 0 else ""
        yield "enter", Spot(name, place, text, "uprobe", True, why, register)
    if "exit" in events:
        yield "exit", Spot(name, place, text, "uretprobe", True, why, "rax")


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
) -> Iterator[tuple[str, Spot]]:
    depth = flow.depth_bytes.get(place)
    if depth is None or not finder.is_emulated(flow.at[place]):
        raise RefusedError(f"{name} does not call it by a plain call")
    if "enter" in events:
        register = ARGUMENT_NAMES[argument] if argument >= 0 else ""
        why = f"where {name} calls {symbol.name}, which has no emulated instruction to offer"
        text = text_of(flow.at[place])
        yield "enter", Spot(name, place, text, "uprobe", True, why, register, -8)
    if "exit" not in events:
        return
    behind = _first_emulated(finder, flow, place)
    if behind & flow.reach([flow.start], without=calls) or flow.open_ends:
        raise RefusedError(f"{name} comes to where it returns from elsewhere, too")
    held = _held_after(flow, place) if returned else {}
    for address in sorted(behind):
        below = flow.depth_bytes.get(address)
        if below is None or (returned and not held.get(address)):
            raise RefusedError(f"{name} does not keep what it returns in a register")
        register = REGISTER_NAMES[preferred(Register.RAX, held[address])] if returned else "rax"
        why = f"the first emulated instruction in {name} behind its call of {symbol.name}"
        text = text_of(flow.at[address])
        yield "exit", Spot(name, address, text, "uprobe", True, why, register, below - depth)


def _first_emulated(finder: Finder, flow: Flow, place: int) -> set[int]:
    """The emulated instruction that comes first on each way on from a call."""
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
            raise RefusedError(f"a caller has no emulated instruction behind {place:#x}")
        else:
            waiting += flow.after[address]
    return found


def _held_after(flow: Flow, place: int) -> dict[int, frozenset[int]]:
    """Before each instruction behind a call, the registers that hold what it returned."""
    part = Flow(flow.after[place][0], flow.at, flow.after, flow.leaves, {}, flow.calls)
    return dict(holders(part, Register.RAX))
