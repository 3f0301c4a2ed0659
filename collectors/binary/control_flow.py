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
from typing import Final

from tlstax.collectors.binary.code_map import CodeMap
from tlstax.collectors.binary.elf import Symbol
from tlstax.collectors.binary.machine import Depth, FlowKind, Instruction, Machine

INSTRUCTIONS_LIMIT: Final = 20_000
MAX_INSTRUCTION_BYTES: Final = 15
CALLS: Final = frozenset({FlowKind.CALL, FlowKind.INDIRECT_CALL})
ENDS: Final = frozenset({FlowKind.EXCEPTION, FlowKind.INTERRUPT})
RETURN, TAIL_CALL, OPEN = "return", "tail call", "open"


@dataclass
class Flow:
    """One function, instruction by instruction."""

    start: int
    machine: Machine
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
        self.machine = code.machine
        self.flow = Flow(symbol.address, code.machine)
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
        return self.machine.first(raw, address)

    def _add(self, instruction: Instruction) -> tuple[list[int], bool]:
        """Record an instruction; returns jump targets, and whether control falls through."""
        flow, address = self.flow, instruction.ip
        flow.at[address] = instruction
        kind = instruction.flow_control
        jumps = []
        on = kind in (FlowKind.NEXT, FlowKind.CONDITIONAL_BRANCH) or kind in CALLS
        if kind in (FlowKind.CONDITIONAL_BRANCH, FlowKind.UNCONDITIONAL_BRANCH):
            target = instruction.near_branch_target
            if self.start <= target < self.end:
                jumps.append(target)
            else:
                self.outside[address] = target
        elif kind in CALLS:
            on = not self._never_returns(instruction)
            if on:
                flow.calls.add(address)
        elif kind == FlowKind.RETURN:
            flow.leaves[address] = RETURN
        elif kind == FlowKind.INDIRECT_BRANCH or (kind not in ENDS and kind != FlowKind.NEXT):
            flow.leaves[address] = OPEN
        if on and instruction.next_ip == self.end:
            on = False
            flow.leaves[address] = OPEN  # it falls through to the next function
        flow.after[address] = (*jumps, instruction.next_ip) if on else tuple(jumps)
        return jumps, on

    def _never_returns(self, instruction: Instruction) -> bool:
        if instruction.flow_control != FlowKind.CALL:
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
            if (
                instruction.flow_control == FlowKind.INDIRECT_BRANCH
                and flow.depth_bytes.get(address) == 0
                and not self.machine.is_table_jump(instruction, self.code.elf.code_at(address, 1))
                and not self._table_before(address)
            ):
                flow.leaves[address] = TAIL_CALL

    def _table_before(self, address: int) -> bool:
        """Whether the jump's address was computed from a table of distances."""
        before = self.flow.before()
        for _ in range(8):
            ways = before[address]
            if len(ways) != 1:
                return False
            address = ways[0]
            if self.machine.computes_case(self.flow.at[address]):
                return True
        return False

    def _find_overlaps(self) -> None:
        end = 0
        for address in sorted(self.flow.at):
            if address < end:
                self.flow.broken = f"it jumps into the middle of an instruction at {address:#x}"
            end = self.flow.at[address].next_ip


def depths(flow: Flow) -> dict[int, int | None]:
    """Stack depth in bytes before each instruction; None where paths disagree."""
    states: dict[int, Depth] = {flow.start: Depth(0, None)}
    waiting = [flow.start]
    while waiting:
        address = waiting.pop()
        state = states[address]
        if address in flow.calls:
            state = state._replace(number=None)
        else:
            state = flow.machine.moved(flow.at[address], state)
        for successor in flow.after[address]:
            if successor not in flow.at:
                continue
            known = states.get(successor)
            merged = state if known is None else _agreed(known, state)
            if merged != known:
                states[successor] = merged
                waiting.append(successor)
    return {address: state.stack for address, state in states.items()}


def _agreed(one: Depth, other: Depth) -> Depth:
    return Depth(
        one.stack if one.stack == other.stack else None,
        one.frame if one.frame == other.frame else None,
        one.number if one.number == other.number else None,
    )
