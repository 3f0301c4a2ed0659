# SPDX-License-Identifier: GPL-2.0-only
"""The control flow of one function: successors and stack depth of each instruction.

A function is decoded from its first instruction along its jumps, so data between code and padding
are never taken for code, and a part that the compiler moved elsewhere (`.cold`) is included. A
jump out of the function with the stack as it was on entry is a *tail call*. An indirect jump with
another stack depth goes through a jump table of the function. Such tables are not read, so a
function with one has unknown paths (`open_ends`).

All addresses are virtual addresses of the file. Nothing is executed.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from iced_x86 import Code, Decoder, FlowControl, Instruction, Mnemonic, OpKind, Register

from tlstax.collectors.binary.code_map import CodeMap
from tlstax.collectors.binary.elf import Symbol

BITS: Final = 64
INSTRUCTIONS_LIMIT: Final = 20_000
MAX_INSTRUCTION_BYTES: Final = 15
NOTRACK: Final = b"\x3e"
CALLS: Final = frozenset({FlowControl.CALL, FlowControl.INDIRECT_CALL})
ENDS: Final = frozenset({FlowControl.EXCEPTION, FlowControl.INTERRUPT})
RETURN, TAIL_CALL, OPEN = "return", "tail call", "open"


@dataclass
class Flow:
    """One function, instruction by instruction."""

    start: int
    at: dict[int, Instruction] = field(default_factory=dict)
    after: dict[int, tuple[int, ...]] = field(default_factory=dict)
    leaves: dict[int, str] = field(default_factory=dict)  # RETURN, TAIL_CALL or OPEN
    callees: dict[int, int] = field(default_factory=dict)  # targets of direct tail calls
    calls: set[int] = field(default_factory=set)  # calls that return
    depth_bytes: dict[int, int | None] = field(default_factory=dict)  # pushed since entry
    broken: str = ""  # why it could not be analysed, "" if it was

    @property
    def open_ends(self) -> set[int]:
        """Indirect jumps whose targets are not known."""
        return {address for address, kind in self.leaves.items() if kind == OPEN}

    def reach(self, starts: Iterable[int], without: Collection[int] = ()) -> set[int]:
        """Every instruction on a path from `starts` that contains none of `without`."""
        seen: set[int] = set()
        waiting = list(starts)
        while waiting:
            address = waiting.pop()
            if address not in seen and address not in without and address in self.at:
                seen.add(address)
                waiting += self.after[address]
        return seen

    def before(self) -> dict[int, list[int]]:
        """The predecessors of each instruction."""
        found: dict[int, list[int]] = {address: [] for address in self.at}
        for address, successors in self.after.items():
            for successor in successors:
                if successor in found:
                    found[successor].append(address)
        return found


def flow_of(code: CodeMap, symbol: Symbol) -> Flow:
    """Analyse a function. If that fails, `broken` says why."""
    return _Walk(code, symbol).run()


class _Walk:
    """Decodes along the jumps, and again whenever a jump target proves to be inside."""

    def __init__(self, code: CodeMap, symbol: Symbol) -> None:
        self.code = code
        self.start, self.end = symbol.address, code.end_of(symbol)
        self.flow = Flow(symbol.address)
        self.outside: dict[int, int] = {}  # targets of jumps out of the bounds

    def run(self) -> Flow:
        flow = self.flow
        waiting = [self.start]
        while waiting:
            self._decode(waiting)
            if flow.broken:
                return flow
            flow.depth_bytes = depths(flow)
            waiting = self._followed()
        self._settle()
        self._find_overlaps()
        return flow

    def _decode(self, waiting: list[int]) -> None:
        while waiting:
            address = waiting.pop()
            while address not in self.flow.at:
                if len(self.flow.at) >= INSTRUCTIONS_LIMIT:
                    self.flow.broken = "it has too many instructions"
                    return
                instruction = self._instruction(address)
                if instruction is None:
                    self.flow.broken = f"its code at {address:#x} does not disassemble"
                    return
                jumps, on = self._add(instruction)
                waiting += jumps
                if not on:
                    break
                address = instruction.next_ip

    def _instruction(self, address: int) -> Instruction | None:
        raw = self.code.elf.code_at(address, MAX_INSTRUCTION_BYTES)
        found = next(iter(Decoder(BITS, raw, ip=address)), None)
        return None if found is None or found.code == Code.INVALID else found

    def _add(self, instruction: Instruction) -> tuple[list[int], bool]:
        """Record an instruction; returns jump targets, and whether control falls through."""
        flow, address = self.flow, instruction.ip
        flow.at[address] = instruction
        kind = instruction.flow_control
        jumps = []
        on = kind in (FlowControl.NEXT, FlowControl.CONDITIONAL_BRANCH) or kind in CALLS
        if kind in (FlowControl.CONDITIONAL_BRANCH, FlowControl.UNCONDITIONAL_BRANCH):
            target = instruction.near_branch_target
            if self.start <= target < self.end:
                jumps.append(target)
            else:
                self.outside[address] = target
        elif kind in CALLS:
            on = not self._never_returns(instruction)
            if on:
                flow.calls.add(address)
        elif kind == FlowControl.RETURN:
            flow.leaves[address] = RETURN
        elif kind == FlowControl.INDIRECT_BRANCH or (kind not in ENDS and kind != FlowControl.NEXT):
            flow.leaves[address] = OPEN
        if on and instruction.next_ip == self.end:
            on = False
            flow.leaves[address] = OPEN  # it falls through to the next function
        flow.after[address] = (*jumps, instruction.next_ip) if on else tuple(jumps)
        return jumps, on

    def _never_returns(self, instruction: Instruction) -> bool:
        if instruction.flow_control != FlowControl.CALL:
            return False
        return not self.code.returns(instruction.near_branch_target)

    def _followed(self) -> list[int]:
        """Targets outside of the bounds that belong to the function, to be decoded next."""
        found = []
        for address, target in list(self.outside.items()):
            tail = self.flow.depth_bytes.get(address) == 0 and self.code.begins_function(target)
            if not tail and not self.code.import_at(target):
                del self.outside[address]
                self.flow.after[address] = (target, *self.flow.after[address])
                found.append(target)
        return found

    def _settle(self) -> None:
        """The remaining jumps out are tail calls, and so are indirect jumps with an empty stack."""
        flow = self.flow
        for address, target in self.outside.items():
            flow.leaves[address] = TAIL_CALL
            flow.callees[address] = target
        for address in flow.open_ends:
            instruction = flow.at[address]
            table = instruction.memory_index != Register.NONE or self._is_not_tracked(address)
            if (
                instruction.flow_control == FlowControl.INDIRECT_BRANCH
                and flow.depth_bytes.get(address) == 0
                and not table
                and not self._table_before(address)
            ):
                flow.leaves[address] = TAIL_CALL

    def _is_not_tracked(self, address: int) -> bool:
        """Compilers exempt only jumps through a table from branch tracking (notrack)."""
        return self.code.elf.code_at(address, 1) == NOTRACK

    def _table_before(self, address: int) -> bool:
        """Whether the jump's address was computed from a table of distances (`movslq`)."""
        before = self.flow.before()
        for _ in range(8):
            ways = before[address]
            if len(ways) != 1:
                return False
            address = ways[0]
            if self.flow.at[address].mnemonic == Mnemonic.MOVSXD:
                return True
        return False

    def _find_overlaps(self) -> None:
        end = 0
        for address in sorted(self.flow.at):
            if address < end:
                self.flow.broken = f"it jumps into the middle of an instruction at {address:#x}"
            end = self.flow.at[address].next_ip


Depth: TypeAlias = tuple[int | None, int | None]  # the stack pointer's, and the frame pointer's


def depths(flow: Flow) -> dict[int, int | None]:
    """Stack depth in bytes before each instruction; None where paths disagree."""
    states: dict[int, Depth] = {flow.start: (0, None)}
    waiting = [flow.start]
    while waiting:
        address = waiting.pop()
        state = _moved(flow.at[address], states[address], address in flow.calls)
        for successor in flow.after[address]:
            if successor not in flow.at:
                continue
            known = states.get(successor)
            merged = state if known is None else _agreed(known, state)
            if merged != known:
                states[successor] = merged
                waiting.append(successor)
    return {address: state[0] for address, state in states.items()}


def _agreed(one: Depth, other: Depth) -> Depth:
    return (one[0] if one[0] == other[0] else None), (one[1] if one[1] == other[1] else None)


def _moved(instruction: Instruction, state: Depth, returns: bool) -> Depth:
    """The depths after an instruction."""
    depth, frame = state
    if returns:
        return state
    mnemonic, to_stack = instruction.mnemonic, instruction.op0_register == Register.RSP
    if mnemonic == Mnemonic.LEAVE:
        return (None if frame is None else frame - 8), None
    if mnemonic in (Mnemonic.SUB, Mnemonic.ADD) and to_stack:
        by = _immediate(instruction)
        sign = 1 if mnemonic == Mnemonic.SUB else -1
        return (None if depth is None or by is None else depth + sign * by), frame
    if mnemonic == Mnemonic.LEA and to_stack:
        base = {Register.RSP: depth, Register.RBP: frame}.get(instruction.memory_base)
        if base is None or instruction.memory_index != Register.NONE:
            return None, frame
        return base - _signed(instruction.memory_displacement), frame
    if mnemonic == Mnemonic.MOV and to_stack:
        return (frame if instruction.op1_register == Register.RBP else None), frame
    if mnemonic == Mnemonic.MOV and instruction.op0_register == Register.RBP:
        return depth, depth if instruction.op1_register == Register.RSP else None
    if mnemonic == Mnemonic.POP and instruction.op0_register == Register.RBP:
        frame = None
    if to_stack and instruction.op0_kind == OpKind.REGISTER and mnemonic not in HARMLESS:
        return None, frame
    if depth is not None:
        depth -= instruction.stack_pointer_increment
    return depth, frame


# Their first operand is the stack pointer, but they do not change it.
HARMLESS: Final = frozenset({Mnemonic.PUSH, Mnemonic.CMP, Mnemonic.TEST})


def _immediate(instruction: Instruction) -> int | None:
    kinds = (OpKind.IMMEDIATE8TO64, OpKind.IMMEDIATE32TO64)
    if instruction.op1_kind not in kinds:
        return None
    return _signed(instruction.immediate(1))


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
