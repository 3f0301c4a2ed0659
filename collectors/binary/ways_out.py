# SPDX-License-Identifier: GPL-2.0-only
"""All the ways out of a function, also of one whose jump tables are not read.

The function is decoded from its first byte to its last, and so are the parts that the compiler
moved elsewhere (`.cold`) and that it jumps to. Compilers put no data between instructions; a
function in which a jump leads into the middle of a decoded instruction is refused. At a `ret` the
stack pointer is at the return address on every path, so nothing else needs to be known there.
"""

from dataclasses import dataclass, field
from typing import Final

from tlstax.collectors.binary.code_map import CodeMap
from tlstax.collectors.binary.control_flow import TAIL_CALL, Flow
from tlstax.collectors.binary.elf import Symbol
from tlstax.collectors.binary.machine import FlowKind, Instruction

PARTS_LIMIT: Final = 8
LOOK_BACK: Final = 8  # instructions between the case's distance and the jump through a table


@dataclass
class WaysOut:
    """Where control leaves a function."""

    returns: dict[int, Instruction] = field(default_factory=dict)
    tails: dict[int, int] = field(default_factory=dict)  # jumps to other functions, with targets
    jumps: dict[int, Instruction] = field(default_factory=dict)  # the same jumps
    unknown: str = ""  # why there may be others, "" if there are none


def ways_out(code: CodeMap, symbol: Symbol, flow: Flow) -> WaysOut:
    """Decode a function and its parts. `flow`: what is known of it already."""
    found = WaysOut()
    waiting, seen = [(symbol.address, code.end_of(symbol))], set[int]()
    while waiting and not found.unknown:
        start, end = waiting.pop()
        if start in seen:
            continue
        seen.add(start)
        if len(seen) > PARTS_LIMIT:
            found.unknown = "it has too many parts"
            break
        decoded = list(code.machine.decode(code.elf.code_at(start, end - start), start))
        starts = {instruction.ip for instruction in decoded}
        if not decoded or decoded[-1].next_ip < end:
            found.unknown = f"its code at {start:#x} does not disassemble"
        elif any(start <= at < end and at not in starts for at in flow.at):
            found.unknown = f"its code at {start:#x} is not a row of instructions"
        for number, instruction in enumerate(decoded):
            _add(code, flow, decoded, number, instruction, (symbol, start, end), found, waiting)
    return found


def _add(
    code: CodeMap,
    flow: Flow,
    decoded: list[Instruction],
    number: int,
    instruction: Instruction,
    bounds: tuple[Symbol, int, int],
    found: WaysOut,
    waiting: list[tuple[int, int]],
) -> None:
    symbol, start, end = bounds
    kind = instruction.flow_control
    if kind == FlowKind.RETURN:
        found.returns[instruction.ip] = instruction
    elif kind in (FlowKind.UNCONDITIONAL_BRANCH, FlowKind.CONDITIONAL_BRANCH):
        target = instruction.near_branch_target
        if start <= target < end or symbol.address <= target < code.end_of(symbol):
            return
        part = code.unwind.covering(target)
        is_part = flow.leaves.get(instruction.ip) != TAIL_CALL and not code.import_at(target)
        if is_part and part and not _begins_named(code, target, flow, instruction.ip):
            waiting.append((part.start, part.end))
        else:
            found.tails[instruction.ip] = target
            found.jumps[instruction.ip] = instruction
    elif kind == FlowKind.INDIRECT_BRANCH and not _through_table(code, flow, decoded, number):
        found.unknown = f"it leaves by an indirect jump at {instruction.ip:#x}"


def _begins_named(code: CodeMap, target: int, flow: Flow, jump: int) -> bool:
    """Whether a jump leads to the start of another function, as far as its name tells."""
    name = code.name_at(target)
    return bool(name) and ".cold" not in name and flow.depth_bytes.get(jump) in (0, None)


def _through_table(code: CodeMap, flow: Flow, decoded: list[Instruction], number: int) -> bool:
    """Whether an indirect jump leads into its own function, through a table of its cases."""
    instruction = decoded[number]
    if flow.leaves.get(instruction.ip) == TAIL_CALL:
        return False
    if flow.depth_bytes.get(instruction.ip):  # with something on the stack it cannot be left
        return True
    before = decoded[max(0, number - LOOK_BACK) : number]
    machine = code.machine
    return machine.is_table_jump(instruction, code.elf.code_at(instruction.ip, 1)) or any(
        machine.computes_case(one) for one in before
    )
