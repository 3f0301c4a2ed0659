# SPDX-License-Identifier: GPL-2.0-only
"""What small functions return and copy: chains of loads from their first argument (x86-64).

A library's accessors only read a field, and its setters only copy one, so their instructions show
where the fields are. Every path is followed, and values are tracked through registers and stack
slots. A pattern that is not recognised gives no answer, never a guess.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from iced_x86 import FlowControl, Instruction, Mnemonic, OpKind, Register, RegisterExt

from tlstax.collectors.binary.instructions import CALLEE_SAVED, decode, written_registers

Chain = tuple[int, ...]  # displacements followed from the first argument; () is the argument itself


ACCESSOR_PATHS = 16
ACCESSOR_STEPS = 48  # instructions on one path through an accessor
IMMEDIATES: Final = (OpKind.IMMEDIATE8TO64, OpKind.IMMEDIATE32TO64)


class Held(NamedTuple):
    """The value of a register or stack slot: a chain of loads, and a constant added to it."""

    chain: Chain
    added: int = 0


Known = dict[int, Held]  # by register, or by SLOT + offset from the stack pointer on entry
SLOT: Final = -(1 << 32)
STACK: Final[Chain] = (-1,)  # the chain of the stack pointer


def returned_fields(code: bytes, address: int) -> set[Chain]:
    """What a function that only reads fields returns: chains of loads from its first argument.

    `(8, 64)` means that it returned `*(*(argument + 8) + 64)`. All paths are followed; those that
    return anything else, such as the result of another function, add nothing.
    """
    return {
        held.chain
        for instruction, known in _walk(code, address)
        if instruction.flow_control == FlowControl.RETURN
        and (held := known.get(Register.RAX))
        and held.chain
        and not held.added
    }


def copied_fields(code: bytes, address: int) -> set[tuple[Chain, int]]:
    """What a function copies into its first argument: (chain of loads, offset it is stored at)."""
    found = set()
    for instruction, known in _walk(code, address):
        if not _stores_register(instruction):
            continue
        to, held = known.get(instruction.memory_base), known.get(instruction.op1_register)
        if to is None or held is None or to.chain or held.added or held.chain in ((), STACK):
            continue
        found.add((held.chain, to.added + _displacement(instruction)))
    return found


def _stores_register(instruction: Instruction) -> bool:
    return (
        instruction.mnemonic == Mnemonic.MOV
        and instruction.op0_kind == OpKind.MEMORY
        and instruction.op1_kind == OpKind.REGISTER
        and not instruction.memory_index
        and not instruction.has_segment_prefix
    )


def _displacement(instruction: Instruction) -> int:
    value = instruction.memory_displacement
    return value - (1 << 64) if value >> 63 else value


def _walk(code: bytes, address: int) -> Iterator[tuple[Instruction, Known]]:
    """The instructions of all paths, each with the register values before it."""
    by_address = {instruction.ip: instruction for instruction in decode(code, address)}
    start: Known = {Register.RDI: Held(()), Register.RSP: Held(STACK)}
    paths: list[tuple[int, Known, int]] = [(address, start, 0)]
    walked = 0
    while paths and walked < ACCESSOR_PATHS:
        walked += 1
        position, known, steps = paths.pop()
        while steps < ACCESSOR_STEPS:
            instruction = by_address.get(position)
            if instruction is None:
                break
            steps += 1
            yield instruction, known
            flow = instruction.flow_control
            if flow == FlowControl.CONDITIONAL_BRANCH:
                paths.append((instruction.near_branch_target, dict(known), steps))
            elif flow == FlowControl.UNCONDITIONAL_BRANCH:
                position = instruction.near_branch_target
                continue
            elif flow in (FlowControl.CALL, FlowControl.INDIRECT_CALL):
                kept = CALLEE_SAVED | {Register.RSP}
                known = {key: held for key, held in known.items() if key < 0 or key in kept}
            elif flow != FlowControl.NEXT:
                break
            if flow not in (FlowControl.CALL, FlowControl.INDIRECT_CALL):
                _follow(instruction, known)
            position = instruction.next_ip


def _follow(instruction: Instruction, known: Known) -> None:
    """Update the registers and stack slots after one instruction."""
    stack = known.get(Register.RSP)
    if _stores_register(instruction):
        base = known.get(instruction.memory_base)
        if base is not None and base.chain == STACK:
            place = SLOT + base.added + _displacement(instruction)
            held = known.get(instruction.op1_register)
            known.pop(place, None)
            if held is not None:
                known[place] = held
    result = _result(instruction, known)
    for register in written_registers(instruction):
        known.pop(register, None)
    if stack is not None and instruction.stack_pointer_increment:
        known[Register.RSP] = Held(STACK, stack.added + instruction.stack_pointer_increment)
    if result is not None:
        known[RegisterExt.full_register(instruction.op0_register)] = result


def _result(instruction: Instruction, known: Known) -> Held | None:
    """The value that an instruction writes to its first operand, a register."""
    if instruction.op0_kind != OpKind.REGISTER:
        return None
    if instruction.mnemonic in (Mnemonic.ADD, Mnemonic.SUB):
        held = known.get(instruction.op0_register)
        if held is None or instruction.op1_kind not in IMMEDIATES:
            return None
        value = instruction.immediate(1)
        value = value - (1 << 64) if value >> 63 else value
        return held._replace(
            added=held.added + (value if instruction.mnemonic == Mnemonic.ADD else -value)
        )
    if instruction.mnemonic != Mnemonic.MOV:
        return None
    if instruction.op1_kind == OpKind.REGISTER:
        return known.get(instruction.op1_register)
    if instruction.op1_kind != OpKind.MEMORY or instruction.memory_index:
        return None
    base = known.get(instruction.memory_base)
    if base is None or instruction.has_segment_prefix:
        return None
    offset = base.added + _displacement(instruction)
    if base.chain == STACK:
        return known.get(SLOT + offset)
    return Held((*base.chain, offset)) if 0 <= offset < 1 << 16 else None
