# SPDX-License-Identifier: GPL-2.0-only
"""How the end of a function is seen: the first of these ways that serves.

1. Emulated instructions inside, of which each path out has one; then directions of conditional
   jumps. A function that leaves by a jump into another one is followed into it.
2. Behind the `call` in all of its callers.
3. Every `ret`, which x86-64 single-steps, if the function is called at most once for each
   connection or handshake call; for one that the server calls as a client not in a function that it
   jumps into, which the server's own handshakes may share. Then the instruction behind the `call`
   in all callers, single-stepped, too.
4. A return probe, on functions where it can do no harm: see `placement.return_probes`.
5. The next boundary. Its programs, and those of the scheduler, look for the function's return
   address, which the next call of its caller overwrites.

A boundary that has only an exit (`base_idle`) must have no more hits than the function has calls.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final

from tlstax.collectors.binary.control_flow import RETURN, TAIL_CALL, Flow
from tlstax.collectors.binary.dataflow import branch_cut, final_values
from tlstax.collectors.binary.elf import Symbol
from tlstax.collectors.binary.machine import FlowKind, Instruction
from tlstax.collectors.binary.ways_out import ways_out
from tlstax.collectors.placement.call_sites import RefusedError, exports
from tlstax.collectors.placement.callers import Callers
from tlstax.collectors.placement.placed import Placed, PlacedProbes, Wanted
from tlstax.collectors.placement.probe_points import (
    ENTRIES_TRIED,
    RETURN_ADDRESS_BYTES,
    Finder,
    ProbePoint,
)
from tlstax.collectors.placement.return_probes import return_probe_allowed
from tlstax.collectors.process.mappings import MappedObject

CROSSINGS_LIMIT: Final = 24
RARE_CROSSINGS_LIMIT: Final = 12  # more of them cost more than the returns
RETURNS_LIMIT: Final = 16
TAILS_LIMIT: Final = 4  # jumps from function to function that are followed
# What they take is not worth seeing: a function ends before them.
SHORT: Final = frozenset({"free", "memcpy", "memmove", "memset", "my_free", "pthread_mutex_unlock"})


_Way = Callable[[Wanted], list[PlacedProbes]]


class Exits:
    """Finds entry and exit of functions in one process."""

    def __init__(self, callers: Callers, forbidden: Collection[str] = ()) -> None:
        self._callers, self._forbidden = callers, forbidden  # names of ways, see `place`

    def place(
        self, placed: Placed, kind: str, mapped: MappedObject, finder: Finder, symbol: Symbol
    ) -> list[PlacedProbes]:
        """The probes of a boundary in one function; [] if no way serves. Notes what was refused."""
        want = Wanted(placed.boundary, kind, mapped, finder, symbol)
        if symbol.address not in finder.flow(symbol).at:
            placed.refuse(symbol.name, "function", "its code does not disassemble")
            return []
        ways: tuple[tuple[str, _Way], ...] = (
            ("exits inside", _inside),
            ("directions of its jumps", _branches),
            ("its callers", self._at_callers),
            ("its returns", _at_returns),
            ("its callers, single-stepped", lambda one: self._at_callers(one, stepped=True)),
            ("a return probe", _return_probe),
            ("the next boundary", _next_boundary),
            ("its entry", _at_entry),
        )
        ways = tuple(one for one in ways if one[0] not in self._forbidden)
        if want.has_other_calls:
            ways = (*(one for one in ways if one[0] == "its callers"), *ways)
        for name, way in ways:
            try:
                return way(want)
            except RefusedError as refused:
                placed.refuse(symbol.name, name, str(refused))
        return []

    def _at_callers(self, want: Wanted, stepped: bool = False) -> list[PlacedProbes]:
        boundary = want.boundary
        if stepped:
            _require_rare(want)
        exported = not boundary.only_in and exports(want.finder.elf, want.symbol.name)
        if exported and (not want.enters or not want.entries):
            # Only the library itself calls functions within its own phases (only_in).
            raise RefusedError("an object loaded later may call it, too")
        of_operation = boundary.only_in == "handshake" and boundary.is_rare and not stepped
        asks = of_operation and boundary.output >= 0  # some calls only ask for a size
        inside = want.enters and bool(want.entries) and not asks
        around, complete = self._callers.points(
            want.mapped,
            want.symbol,
            ("exit",) if inside else boundary.events,
            boundary.argument,
            want.returned,
            strays=want.enters,
            stepped=stepped,
            all_followed=of_operation,
            output=boundary.output if asks else -1,
        )
        spots = [PlacedProbes(*spot) for spot in around]
        if not inside:
            return spots
        enter, always = want.enter()
        unseen = exported or not complete
        if unseen:
            enter = replace(enter, unseen_exits=True)
        if unseen or not always:
            spots = [s._replace(point=replace(s.point, stray=True)) for s in spots]
        return [PlacedProbes("enter", want.mapped, want.finder.elf, enter), *spots]


def _require_rare(want: Wanted) -> None:
    if not want.boundary.is_rare:
        raise RefusedError("it is called too often to be single-stepped")


def _probes(want: Wanted, points: Iterable[tuple[str, ProbePoint]]) -> list[PlacedProbes]:
    return [PlacedProbes(event, want.mapped, want.finder.elf, point) for event, point in points]


def _with_exits(
    want: Wanted, enter: ProbePoint | None, exits: Sequence[ProbePoint]
) -> list[PlacedProbes]:
    points = [("enter", enter)] if enter is not None and want.enters else []
    return _probes(want, [*points, *(("exit", point) for point in exits)])


# ---- inside ----


def _inside(want: Wanted) -> list[PlacedProbes]:
    boundary = want.boundary
    for option in want.finder.options(
        want.symbol, boundary.events, boundary.argument, want.returned, returns=False
    ):
        if option.name == "exits inside" and not option.stepped:
            return _probes(want, option.points)
    raise RefusedError("a path out has no emulated instruction of its own")


def _branches(want: Wanted) -> list[PlacedProbes]:
    finder, symbol = want.finder, want.symbol
    if not want.enters:
        return _with_exits(want, None, _few(want, _crossings(want, symbol, None, 0)))
    why = RefusedError("no emulated instruction on every path")
    for entry in want.entries[:ENTRIES_TRIED]:
        try:
            exits = _few(want, _crossings(want, symbol, entry.address, 0))
        except RefusedError as refused:
            why = refused
            continue
        return _with_exits(want, finder.entry_point(symbol, entry), exits)
    raise why


def _crossings(want: Wanted, symbol: Symbol, since: int | None, depth: int) -> list[ProbePoint]:
    """Exits of a function, and of those that it jumps into, on emulated instructions."""
    finder = want.finder
    flow = finder.flow(symbol)
    if flow.broken or flow.open_ends:
        raise RefusedError(flow.broken or "it uses a jump table, so not every path is known")
    starts = [flow.start] if since is None else list(flow.after[since])
    ways = flow.reach(starts)
    leaving = ways | ({since} if since is not None else set())
    short = set() if want.returned else {at for at in flow.calls if _is_short(want, flow.at[at])}
    cut = branch_cut(flow, since, finder.is_emulated, (RETURN, TAIL_CALL), short)
    if not cut and any(flow.leaves.get(at) == RETURN for at in ways):
        raise RefusedError("a path out has no emulated instruction behind its last call")
    if not want.enters and any(crossing.again for crossing in cut):
        raise RefusedError("a path out crosses two of its emulated instructions")
    values = final_values(flow) if want.returned else {}
    around = flow.reach([flow.start], without={since}) if since is not None else set()
    found, names = [], finder.machine.names
    for crossing in cut:
        pushed, value = flow.depth_bytes.get(crossing.address), values.get(crossing.behind)
        if pushed is None or (want.returned and value not in names):
            raise RefusedError("its result or its stack depth is not known where it ends")
        instruction = flow.at[crossing.address]
        why = f"one of {len(cut)} emulated instructions on the ways out"
        if crossing.condition >= 0:
            why = f"one of {len(cut)} ways out: in one direction this jump leads out"
        stray = crossing.again or crossing.address in around or depth > 0
        register = names[finder.machine.result if value is None else value]
        found.append(
            ProbePoint(
                _name(want, symbol), crossing.address, finder.machine.text_of(instruction),
                "uprobe", True, why, register,
                pushed + finder.machine.entry_bytes + RETURN_ADDRESS_BYTES,
                crossing.condition, stray,
            )
        )  # fmt: skip
    for jump in sorted(at for at in leaving if flow.leaves.get(at) == TAIL_CALL):
        found += _tail(want, symbol, flow, jump, depth)
    return found


def _few(want: Wanted, exits: list[ProbePoint]) -> list[ProbePoint]:
    limit = RARE_CROSSINGS_LIMIT if want.boundary.is_rare else CROSSINGS_LIMIT
    if len(exits) > limit:
        raise RefusedError(f"it has more than {limit} ways out")
    return exits


def _tail(want: Wanted, symbol: Symbol, flow: Flow, jump: int, depth: int) -> list[ProbePoint]:
    target = flow.callees.get(jump)
    if target is None:
        raise RefusedError("it leaves by an indirect jump")
    if not want.enters or _is_short(want, flow.at[jump]):
        return [_jump_out(want, symbol, flow, jump)]
    return _crossings(want, _followed(want, target, depth), None, depth + 1)


def _jump_out(want: Wanted, symbol: Symbol, flow: Flow, jump: int) -> ProbePoint:
    """The jump into another function as the end of this one, which is early by what that takes."""
    instruction = flow.at[jump]
    if not want.finder.is_emulated(instruction) or flow.depth_bytes.get(jump) != 0:
        raise RefusedError("the jump that it leaves by is single-stepped")
    condition, machine = -1, want.finder.machine
    if instruction.is_jcc_short_or_near:
        condition = int(instruction.condition_code) - 1
    elif instruction.flow_control == FlowKind.CONDITIONAL_BRANCH:
        raise RefusedError("it leaves by a jump that depends on a register")
    return ProbePoint(
        _name(want, symbol), jump, machine.text_of(instruction), "uprobe", True,
        "the jump into another function that it ends with", machine.result_name,
        machine.entry_bytes + RETURN_ADDRESS_BYTES, condition,
    )  # fmt: skip


def _followed(want: Wanted, target: int, depth: int) -> Symbol:
    """The function that another one ends with a jump to, also through a stub of its own object."""
    code = want.finder.code
    if depth >= TAILS_LIMIT:
        raise RefusedError(f"it leaves by more than {TAILS_LIMIT} jumps from function to function")
    if not (name := code.import_at(target)):
        return Symbol(target, 0, code.name_at(target))
    for symbol in want.finder.elf.find(re.compile(re.escape(name))):
        return symbol
    raise RefusedError("it leaves by a jump into another object")


def _is_short(want: Wanted, instruction: Instruction) -> bool:
    if instruction.flow_control in (FlowKind.INDIRECT_CALL, FlowKind.INDIRECT_BRANCH):
        return False
    code, target = want.finder.code, instruction.near_branch_target
    return (code.import_at(target) or code.name_at(target)) in SHORT


def _name(want: Wanted, symbol: Symbol) -> str:
    return symbol.name or f"[{want.finder.elf.name}+{symbol.address:#x}]"


# ---- single-stepped ----


def _at_returns(want: Wanted) -> list[PlacedProbes]:
    _require_rare(want)
    enter, always = want.enter() if want.enters else (None, True)
    exits = _returns(want, want.symbol, 0, set())
    if not exits or len(exits) > RETURNS_LIMIT:
        raise RefusedError(f"it has {len(exits)} ways out")
    return _with_exits(want, enter, [replace(p, stray=p.stray or not always) for p in exits])


def _returns(want: Wanted, symbol: Symbol, depth: int, seen: set[int]) -> list[ProbePoint]:
    """Every `ret` of a function, and of those that it jumps into."""
    seen.add(symbol.address)
    flow = want.finder.flow(symbol)
    ways = ways_out(want.finder.code, symbol, flow)
    if flow.broken or ways.unknown:
        raise RefusedError(flow.broken or ways.unknown)
    if any(want.finder.machine.is_refused(instruction) for instruction in ways.returns.values()):
        raise RefusedError("the kernel refuses a probe on one of its returns")
    found = [
        _return(want, symbol, instruction, len(ways.returns), depth)
        for _, instruction in sorted(ways.returns.items())
    ]
    for jump, target in sorted(ways.tails.items()):
        if not want.enters or _is_short(want, ways.jumps[jump]):
            if jump not in flow.at:
                raise RefusedError("the stack depth at a jump that it leaves by is not known")
            found.append(_jump_out(want, symbol, flow, jump))
        elif (other := _followed(want, target, depth)).address not in seen:
            found += _returns(want, other, depth + 1, seen)
    borrowed = depth and want.boundary.side == "client" and not want.returned
    if borrowed and not all(point.emulated for point in found):
        # Found at sslconnect of MariaDB: a third of what the probes of each handshake took.
        raise RefusedError("the server's own handshakes may end in the function that it jumps into")
    return found


def _return(
    want: Wanted, symbol: Symbol, instruction: Instruction, count: int, depth: int
) -> ProbePoint:
    machine, emulated = want.finder.machine, want.finder.is_emulated(instruction)
    why = f"one of its {count} returns"
    if not emulated:
        why += ", single-stepped: it is called at most once for each connection or handshake call"
    return ProbePoint(
        _name(want, symbol), instruction.ip, machine.text_of(instruction), "uprobe", emulated, why,
        machine.result_name, machine.entry_bytes + RETURN_ADDRESS_BYTES, stray=depth > 0,
    )  # fmt: skip


# ---- what is left ----


def _return_probe(want: Wanted) -> list[PlacedProbes]:
    boundary = want.boundary
    if not return_probe_allowed(want.kind, boundary.leaf):
        raise RefusedError("an exception or the end of a thread may pass it")
    options = want.finder.options(
        want.symbol, boundary.events, boundary.argument, want.returned, returns=True
    )
    for option in options:
        if any(point.kind == "uretprobe" for _, point in option.points):
            why = "last resort, as nothing unwinds through it: "
            return _probes(want, [(e, replace(p, reason=why + p.reason)) for e, p in option.points])
    raise RefusedError("no instruction for it")


def _next_boundary(want: Wanted) -> list[PlacedProbes]:
    if not want.enters or want.returned:
        raise RefusedError("nothing but its exit shows what it did")
    enter, _ = want.enter()
    why = f"{enter.reason}; its end is seen at the next boundary or switch of the thread"
    return _probes(want, [("enter", replace(enter, unseen_exits=True, reason=why))])


def _at_entry(want: Wanted) -> list[PlacedProbes]:
    """What closes a phase is short: the phase ends where the function begins."""
    if want.boundary.action != "phase_close" or not want.entries:
        raise RefusedError("its entry says nothing about its end")
    entry = want.entries[0]
    point = want.finder.entry_point(want.symbol, entry)
    why = "no emulated instruction behind its last call: its entry ends the phase"
    stack_bytes = point.stack_bytes + RETURN_ADDRESS_BYTES
    return _probes(want, [("exit", replace(point, reason=why, stack_bytes=stack_bytes))])
