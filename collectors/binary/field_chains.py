# SPDX-License-Identifier: GPL-2.0-only
"""What small functions return and copy: chains of loads from their first argument.

A library's accessors only read a field, and its setters only copy one, so their instructions show
where the fields are. Every path is followed, and values are tracked through registers and stack
slots. A pattern that is not recognised gives no answer, never a guess.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from tlstax.collectors.binary.machine import Assignment, FlowKind, Instruction, Machine

Chain = tuple[int, ...]  # displacements followed from the first argument; () is the argument itself


ACCESSOR_PATHS = 16
ACCESSOR_STEPS = 48  # instructions on one path through an accessor


class Held(NamedTuple):
    """The value of a register or stack slot: a chain of loads, and a constant added to it."""

    chain: Chain
    added: int = 0


Known = dict[int, Held]  # by register, or by SLOT + offset from the stack pointer on entry
SLOT: Final = -(1 << 32)
STACK: Final[Chain] = (-1,)  # the chain of the stack pointer


def returned_fields(machine: Machine, code: bytes, address: int) -> set[Chain]:
    """What a function that only reads fields returns: chains of loads from its first argument.

    `(8, 64)` means that it returned `*(*(argument + 8) + 64)`. All paths are followed; those that
    return anything else, such as the result of another function, add nothing.
    """
    return {
        held.chain
        for instruction, known in _walk(machine, code, address)
        if instruction.flow_control == FlowKind.RETURN
        and (held := known.get(machine.result))
        and held.chain
        and not held.added
    }


def copied_fields(machine: Machine, code: bytes, address: int) -> set[tuple[Chain, int]]:
    """What a function copies into its first argument: (chain of loads, offset it is stored at)."""
    found = set()
    for instruction, known in _walk(machine, code, address):
        for store in machine.effects(instruction).stores:
            to, held = known.get(store.base), known.get(store.register)
            if to is None or held is None or to.chain or held.added or held.chain in ((), STACK):
                continue
            found.add((held.chain, to.added + store.offset))
    return found


def _walk(machine: Machine, code: bytes, address: int) -> Iterator[tuple[Instruction, Known]]:
    """The instructions of all paths, each with the register values before it."""
    by_address = {instruction.ip: instruction for instruction in machine.decode(code, address)}
    start: Known = {machine.arguments[0]: Held(()), machine.stack: Held(STACK)}
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
            if flow == FlowKind.CONDITIONAL_BRANCH:
                paths.append((instruction.near_branch_target, dict(known), steps))
            elif flow == FlowKind.UNCONDITIONAL_BRANCH:
                position = instruction.near_branch_target
                continue
            elif flow in (FlowKind.CALL, FlowKind.INDIRECT_CALL):
                kept = machine.callee_saved | {machine.stack}
                known = {key: held for key, held in known.items() if key < 0 or key in kept}
            elif flow != FlowKind.NEXT:
                break
            if flow not in (FlowKind.CALL, FlowKind.INDIRECT_CALL):
                _follow(machine, instruction, known)
            position = instruction.next_ip


def _follow(machine: Machine, instruction: Instruction, known: Known) -> None:
    """Update the registers and stack slots after one instruction."""
    effects = machine.effects(instruction)
    for store in effects.stores:
        base = known.get(store.base)
        if base is not None and base.chain == STACK:
            place = SLOT + base.added + store.offset
            held = known.get(store.register)
            known.pop(place, None)
            if held is not None:
                known[place] = held
    results = [(one.register, _result(one, known)) for one in effects.assignments]
    for register in machine.written_registers(instruction):
        known.pop(register, None)
    known.update((register, held) for register, held in results if held is not None)


def _result(assignment: Assignment, known: Known) -> Held | None:
    """The value that a register is given."""
    held = known.get(assignment.source)
    if held is None:
        return None
    if not assignment.is_load:
        return held._replace(added=held.added + assignment.number)
    offset = held.added + assignment.number
    if held.chain == STACK:
        return known.get(SLOT + offset)
    return Held((*held.chain, offset)) if 0 <= offset < 1 << 16 else None
