# SPDX-License-Identifier: GPL-2.0-only
"""Where to put the probes: the cheapest instruction that still sees every crossing of a boundary.

For each boundary of the definitions one of its equivalent functions is taken, and in it

- on entry, the first instruction that the kernel emulates and that every path crosses once, while
  the arguments the boundary needs are still in their registers. It is looked for in the function's
  first basic block only, so no path can bypass it; an instruction that a jump of the function leads
  back to is refused;
- on exit, a return probe. The kernel arms it at the function's first instruction, so that is the
  instruction that must be emulated. A function whose first block ends in a jump into another
  function (a tail call) is left through that function's return, so the probe is armed there;
  callers of that function that do not come through the boundary make exits without an entry, which
  the kernel side ignores by stack pointer.

A boundary with a method table is placed in the functions that the table leads to, and in its named
functions only in an object whose table cannot be read.

Where nothing better exists the probe stays at offset 0 and is marked `stepped`. Nothing is attached
here, and the process is not touched.

Each address is verified to be an instruction boundary inside the function's bounds.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

from iced_x86 import FlowControl, Instruction

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.detection import Detected, OpenObject, detect
from tlstax.collectors.elf import Elf, Symbol
from tlstax.collectors.instructions import (
    ARGUMENT_NAMES,
    ARGUMENT_REGISTERS,
    ENDS_BLOCK,
    branch_targets,
    decode,
    is_emulated,
    returned_fields,
    text_of,
    written_registers,
)
from tlstax.collectors.mappings import MappedObject
from tlstax.collectors.method_table import functions_in
from tlstax.collectors.planning import Missing, Plan, RoleMark, Site
from tlstax.collectors.target import Target
from tlstax.probes.definitions import (
    Accessor,
    Boundary,
    Definition,
    Function,
    Level,
    MethodTable,
)

# Measured on one machine; only their order decides a placement.
EMULATED_COST_NS = 700
STEPPED_COST_NS = 25_000
RETURN_COST_NS = 700
FUNCTION_LIMIT_BYTES = 64 * 1024
ENTRY_LIMIT_BYTES = 128


@dataclass(frozen=True)
class Spot:
    """An instruction chosen for a probe, before it becomes a Site."""

    function: str
    address: int
    instruction: str
    kind: str
    emulated: bool
    reason: str

    @property
    def cost_ns(self) -> int:
        """What one hit is expected to cost."""
        trap = EMULATED_COST_NS if self.emulated else STEPPED_COST_NS
        return trap + (RETURN_COST_NS if self.kind == "uretprobe" else 0)


def plan(
    target: Target,
    definitions: Sequence[Definition],
    level: Level = Level.RECORD,
    role: str = "server",
) -> Plan:
    """Decide every probe for a target. Raises TlstaxError when it has no known TLS library.

    A server may hold a client library, and the other way round: only the definitions of its `role`
    are used, beside those of TLS libraries.
    """
    with ExitStack() as resources:
        mine = [entry for entry in definitions if entry.kind in ("tls", role)]
        detected = detect(target, mine, resources)
        if not any(entry.library.kind in ("tls", "client") for entry in detected):
            raise _no_library(target)
        called = (
            {"client"} if any(entry.library.kind == "client" for entry in detected) else {"tls"}
        )
        sites: list[Site] = []
        missing: list[Missing] = []
        accessors: dict[str, int] = {}
        for entry in detected:
            for boundary in entry.definition.boundaries:
                # A client's calls are those of the library nearest to it.
                is_called = boundary.action != "call" or (
                    role == "client" and entry.library.kind in called
                )
                if boundary.level <= level and is_called:
                    placed, lost = place(boundary, entry)
                    sites += placed
                    missing += lost
            for accessor in entry.definition.accessors:
                offset = read_accessor(accessor, entry)
                accessors[accessor.id] = max(offset, accessors.get(accessor.id, -1))
                if offset < 0:
                    missing.append(Missing(accessor.id, (accessor.function,), accessor.missing))
        libraries = tuple(entry.library for entry in detected)
        marks = tuple(mark for entry in detected for mark in role_marks(entry))
        return Plan(
            target.pid, level, libraries, tuple(sites), tuple(missing), accessors, role, marks
        )


def role_marks(library: Detected) -> list[RoleMark]:
    """What tells the roles of threads, with the functions where the process has them."""
    marks = []
    for rule in library.definition.roles:
        spans = [
            (start, start + max(symbol.size, 1))
            for pattern in rule.functions
            for mapped, elf, symbol in library.functions(Function(pattern))
            if (start := mapped.address_of(elf.to_offset(symbol.address))) is not None
        ]
        marks.append(RoleMark(rule.role, rule.names, tuple(sorted(set(spans))), rule.main))
    return marks


def place(boundary: Boundary, library: Detected) -> tuple[list[Site], list[Missing]]:
    """The probes of one boundary, in its cheapest functions, and what is lost without others."""
    chosen = _in_named(boundary, library)
    missing = []
    if not chosen:
        names = tuple(function.pattern for function in boundary.functions)
        if not boundary.optional:
            missing.append(Missing(boundary.id, names, boundary.missing))
    elif (table := boundary.method_table) is not None:
        for entry in library.objects:
            named = [spot for spot in chosen if spot.mapped == entry.mapped]
            better = _in_table(boundary, table, entry)
            if named and better:
                chosen = [spot for spot in chosen if spot not in named] + better
            elif named:
                missing.append(Missing(boundary.id, (table.getter, *table.setters), table.missing))
    sites = []
    for event, mapped, elf, spot in chosen:
        offset = elf.to_offset(spot.address)
        if offset is not None:
            sites.append(_site(boundary, event, mapped, offset, spot))
    return sites, missing


class Chosen(NamedTuple):
    """A spot with its event and the object it is in."""

    event: str
    mapped: MappedObject
    elf: Elf
    spot: Spot


def _in_named(boundary: Boundary, library: Detected) -> list[Chosen]:
    """The cheapest of the boundary's named functions; nothing when the binary has none."""
    best: tuple[float, list[Chosen]] | None = None
    for function in boundary.functions:
        found = library.functions(function)
        if not found:
            continue
        spots = [
            Chosen(event, mapped, elf, spot)
            for mapped, elf, symbol in found
            for event, spot in spots_of(elf, symbol, boundary.events, boundary.argument)
        ]
        cost = function.hits * sum(chosen.spot.cost_ns for chosen in spots) / len(found)
        if best is None or cost < best[0]:
            best = (cost, spots)
    return best[1] if best else []


def _in_table(boundary: Boundary, table: MethodTable, entry: OpenObject) -> list[Chosen]:
    """The functions of a method table; nothing when it cannot be read."""
    chosen: dict[tuple[str, int], Chosen] = {}
    for symbol in functions_in(table, entry):
        named = symbol._replace(name=_name_at(entry.elf, symbol.address))
        spots = spots_of(entry.elf, named, boundary.events, boundary.argument)
        for event, spot in spots:
            # Functions that leave by a jump into the same one share its return.
            chosen.setdefault((event, spot.address), Chosen(event, entry.mapped, entry.elf, spot))
    return list(chosen.values())


def _site(boundary: Boundary, event: str, mapped: MappedObject, offset: int, spot: Spot) -> Site:
    return Site(
        boundary=boundary.id,
        action=boundary.action,
        phase=boundary.phase,
        event=event,
        function=spot.function,
        object=mapped,
        file_offset=offset,
        virtual_address=spot.address,
        instruction=spot.instruction,
        kind=spot.kind,
        stepped=not spot.emulated,
        register=_register(boundary, event),
        stack_bytes=0,
        only_in=boundary.only_in,
        reason=spot.reason,
        blocking=boundary.blocking,
        success=boundary.success,
        state=boundary.state,
        role=boundary.role,
        side=boundary.side,
    )


def _register(boundary: Boundary, event: str) -> str:
    """The register that holds the argument on entry; rax on exit."""
    if event == "exit":
        return "rax"
    return ARGUMENT_NAMES[boundary.argument] if boundary.argument >= 0 else ""


def spots_of(
    elf: Elf, symbol: Symbol, events: Sequence[str], argument: int
) -> list[tuple[str, Spot]]:
    """The instruction for each of the events of one function."""
    block = entry_block(elf, symbol)
    if not block:
        return []
    if "exit" not in events:
        return [("enter", _entry(elf, symbol, block, argument))]
    first = block[0]
    tail = _tail_call(elf, symbol, block)
    if not _emulated(elf, first) and tail is not None:
        callee, callee_first = tail
        exit_spot = Spot(
            callee.name, callee.address, text_of(callee_first), "uretprobe", True,
            f"{symbol.name} leaves by a jump to it, and it begins with an emulated instruction",
        )  # fmt: skip
        enter_spot = _entry(elf, symbol, block, argument)
    else:
        exit_spot = _start(symbol, first, "uretprobe", _emulated(elf, first))
        # One trap serves both when they share an instruction, even a dear one.
        enter_spot = _start(symbol, first, "uprobe", exit_spot.emulated)
    chosen = {"enter": enter_spot, "exit": exit_spot}
    return [(event, chosen[event]) for event in events]


def entry_block(elf: Elf, symbol: Symbol) -> list[Instruction]:
    """The instructions every call of the function runs first, up to a branch, call or return."""
    limit = min(symbol.size, ENTRY_LIMIT_BYTES) or ENTRY_LIMIT_BYTES
    block = []
    for instruction in decode(elf.code_at(symbol.address, limit), symbol.address):
        block.append(instruction)
        if instruction.flow_control in ENDS_BLOCK:
            break
    return block


def _entry(elf: Elf, symbol: Symbol, block: Sequence[Instruction], argument: int) -> Spot:
    """The first emulated instruction of the block where the argument is still live."""
    code = elf.code_at(symbol.address, min(symbol.size, FUNCTION_LIMIT_BYTES))
    loops = branch_targets(code, symbol.address)
    needed = {ARGUMENT_REGISTERS[argument]} if argument >= 0 else set()
    for instruction in block:
        if instruction.ip != symbol.address and instruction.ip in loops:
            break  # a loop would run over it again and again
        if _emulated(elf, instruction):
            offset = instruction.ip - symbol.address
            why = "its first instruction is emulated"
            if offset:
                why = f"the first emulated instruction, {offset} bytes in; every path crosses it"
            return Spot(symbol.name, instruction.ip, text_of(instruction), "uprobe", True, why)
        if needed & written_registers(instruction):
            break
    return _start(symbol, block[0], "uprobe", False)


def _start(symbol: Symbol, first: Instruction, kind: str, emulated: bool) -> Spot:
    why = "its first instruction is emulated"
    if not emulated:
        why = "single-stepped: no emulated instruction serves"
    return Spot(symbol.name, symbol.address, text_of(first), kind, emulated, why)


def _tail_call(
    elf: Elf, symbol: Symbol, block: Sequence[Instruction]
) -> tuple[Symbol, Instruction] | None:
    """The function that the first block jumps into, when its first instruction is emulated."""
    last = block[-1]
    if last.flow_control != FlowControl.UNCONDITIONAL_BRANCH:
        return None
    address = last.near_branch_target
    if symbol.address <= address < symbol.address + symbol.size:
        return None
    stub = next((s for s in (".plt", ".plt.sec", ".plt.got") if _within(elf, s, address)), None)
    first = next(decode(elf.code_at(address, 16), address), None)
    if stub is not None or first is None or not _emulated(elf, first):
        return None
    return Symbol(address, 0, _name_at(elf, address)), first


def _within(elf: Elf, name: str, address: int) -> bool:
    section = elf.section(name)
    return section is not None and section.address <= address < section.address + section.size


def _name_at(elf: Elf, address: int) -> str:
    for table in (".symtab", ".dynsym"):
        for start, _, name in elf.symbols(table):
            if start == address:
                strings = elf.names(table)
                return strings[name : strings.find(b"\0", name)].decode("utf-8", "surrogateescape")
    return f"[{elf.name}+{address:#x}]"


def _emulated(elf: Elf, instruction: Instruction) -> bool:
    return is_emulated(instruction, elf.code_at(instruction.ip, instruction.len))


def read_accessor(accessor: Accessor, library: Detected) -> int:
    """The offset in bytes of the field that an accessor reads, -1 when it is not that simple."""
    offsets = set()
    for _, elf, symbol in library.functions(Function(accessor.function)):
        code = elf.code_at(symbol.address, min(symbol.size, FUNCTION_LIMIT_BYTES))
        chains = returned_fields(code, symbol.address)
        offsets |= {chain[-1] for chain in chains if len(chain) == accessor.loads}
    return offsets.pop() if len(offsets) == 1 else -1


def _no_library(target: Target) -> TlstaxError:
    if target.tls_objects:
        names = ", ".join(entry.path for entry in target.tls_objects)
        why = f"its TLS library ({names}) is not one that tlstax knows"
        do = "Pass a directory with a definition of that library, see probes/libraries"
    else:
        why = "it has no TLS library mapped, and its program contains none that is known"
        do = "Name the server itself, and check that it was built with TLS"
    return TlstaxError(
        f"Process {target.pid} ({target.name}) cannot be measured", why, do, ExitCode.TARGET
    )
