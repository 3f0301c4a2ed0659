# SPDX-License-Identifier: GPL-2.0-only
"""What instructions of x86-64 do to the stack pointer, and to copies of it.

For code without call frame information (assembly_rows.py). Registers have their DWARF numbers.
Only what can tell where the return address is stays: an instruction without any such effect is
an empty list.
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from iced_x86 import Code, Decoder, FlowControl, Mnemonic, OpKind, Register, RegisterExt
from iced_x86 import Instruction as Decoded

from tlstax.collectors.binary.instructions import BITS, written_bytes, written_registers
from tlstax.collectors.unwinding.row_format import RBP, RSP, WORD_BYTES

NUMBERS: Final = {
    int(register): number
    for number, register in enumerate((
        Register.RAX, Register.RDX, Register.RCX, Register.RBX, Register.RSI, Register.RDI,
        Register.RBP, Register.RSP, Register.R8, Register.R9, Register.R10, Register.R11,
        Register.R12, Register.R13, Register.R14, Register.R15,
    ))
}  # fmt: skip
"""DWARF's numbers (System V ABI for x86-64, figure 3.36)."""
NOWHERE: Final = -1
"""In the place of a register: none, or one that is not followed."""
_CALLEE_SAVED: Final = frozenset({3, RBP, 12, 13, 14, 15})
CALLER_SAVED: Final = frozenset(range(16)) - _CALLEE_SAVED - {RSP}
_HALT: Final = frozenset({Mnemonic.UD2, Mnemonic.HLT})
_IMMEDIATES: Final = (OpKind.IMMEDIATE8TO64, OpKind.IMMEDIATE32TO64)


class Act(IntEnum):
    """What happens."""

    SHIFT = 0  # to: += offset
    RENEW = 1  # to: somewhere else on the stack, if `source` is on it
    COPY = 2  # to = source + offset
    LOAD = 3  # to = [base + offset + scaled * scale]
    STORE = 4  # [base + offset + scaled * scale] = source, `size` bytes
    DROP = 5  # to: something else
    SWAP = 6  # to and `source`


class Effect(NamedTuple):
    """One act on registers, by their numbers."""

    act: Act
    to: int = NOWHERE
    source: int = NOWHERE
    offset: int = 0
    base: int = NOWHERE
    scaled: int = NOWHERE
    scale: int = 1
    size: int = WORD_BYTES


class Step(NamedTuple):
    """One instruction. It is followed by the one at `after`, if `falls`, and at `targets`."""

    after: int
    effects: tuple[Effect, ...] = ()
    falls: bool = True
    targets: tuple[int, ...] = ()
    calls: int = 0  # what it calls
    returns: bool = False

    @property
    def following(self) -> tuple[int, ...]:
        """Where control goes next in the same function."""
        return (*self.targets, self.after) if self.falls else self.targets


PUSHED: Final = Effect(Act.SHIFT, RSP, offset=-WORD_BYTES)
POPPED: Final = Effect(Act.SHIFT, RSP, offset=WORD_BYTES)


def dropped(registers: Iterable[int]) -> tuple[Effect, ...]:
    """These registers hold something else."""
    return tuple(Effect(Act.DROP, each) for each in sorted(registers))


def steps(code: bytes, address: int) -> Iterator[tuple[int, Step]]:
    """(address, instruction) from the start of `code` to where control goes elsewhere.

    Functions that are called are taken to keep to the calling convention.
    """
    for decoded in Decoder(BITS, code, ip=address):
        if decoded.code == Code.INVALID:
            return
        step = _step(decoded)
        yield decoded.ip, step
        if not step.falls:
            return


def _step(decoded: Decoded) -> Step:
    after, flow = decoded.next_ip, decoded.flow_control
    if flow == FlowControl.NEXT:
        return Step(after, tuple(_effects(decoded)))
    if flow == FlowControl.RETURN:
        return Step(after, falls=False, returns=True)
    if flow in (FlowControl.CONDITIONAL_BRANCH, FlowControl.UNCONDITIONAL_BRANCH):
        is_conditional = flow == FlowControl.CONDITIONAL_BRANCH
        return Step(after, falls=is_conditional, targets=(decoded.near_branch_target,))
    if flow == FlowControl.CALL and decoded.near_branch_target == after:  # for its own address
        return Step(after, _pushed(NOWHERE))
    if flow in (FlowControl.CALL, FlowControl.INDIRECT_CALL):
        target = decoded.near_branch_target if flow == FlowControl.CALL else 0
        return Step(after, dropped(CALLER_SAVED), calls=target)
    falls = flow != FlowControl.INDIRECT_BRANCH and decoded.mnemonic not in _HALT
    return Step(after, falls=falls)


def _pushed(source: int) -> tuple[Effect, ...]:
    return PUSHED, Effect(Act.STORE, source=source, base=RSP)


def _effects(decoded: Decoded) -> Iterator[Effect]:
    mnemonic, kind = decoded.mnemonic, decoded.op0_kind
    if mnemonic == Mnemonic.PUSH:
        yield from _pushed(_whole(decoded.op0_register) if kind == OpKind.REGISTER else NOWHERE)
    elif mnemonic == Mnemonic.POP and kind == OpKind.REGISTER:
        yield Effect(Act.LOAD, _whole(decoded.op0_register), base=RSP)
        yield POPPED
    elif mnemonic == Mnemonic.PUSHFQ:
        yield from _pushed(NOWHERE)
    elif mnemonic == Mnemonic.POPFQ:
        yield POPPED
    elif mnemonic == Mnemonic.LEAVE:
        yield Effect(Act.COPY, RSP, RBP)
        yield Effect(Act.LOAD, RBP, base=RSP)
        yield POPPED
    elif kind == OpKind.REGISTER and _whole(decoded.op0_register) != NOWHERE:
        found = _assigned(decoded, _whole(decoded.op0_register))
        if found:
            yield found
        if found is None:
            yield from _dropped(decoded)
    else:
        if kind == OpKind.MEMORY:
            yield from _stored(decoded)
        if kind != OpKind.REGISTER or not RegisterExt.is_vector_register(decoded.op0_register):
            yield from _dropped(decoded)


def _whole(register: int) -> int:
    """The number of a register of 64 bits."""
    return NUMBERS.get(register, NOWHERE)


def _dropped(decoded: Decoded) -> Iterator[Effect]:
    for register in written_registers(decoded):
        number = NUMBERS.get(register, NOWHERE)
        if number == RSP:
            yield Effect(Act.RENEW, RSP, RSP)
        elif number != NOWHERE:
            yield Effect(Act.DROP, number)


def _assigned(decoded: Decoded, to: int) -> Effect | None:
    """The effect of an instruction on its first operand; None for a form that is not followed."""
    mnemonic, second = decoded.mnemonic, decoded.op1_kind
    if mnemonic == Mnemonic.MOV and second == OpKind.REGISTER:
        return Effect(Act.COPY, to, _whole(decoded.op1_register))
    if mnemonic == Mnemonic.XCHG and second == OpKind.REGISTER:
        return Effect(Act.SWAP, to, _whole(decoded.op1_register))
    if mnemonic == Mnemonic.MOV and second == OpKind.MEMORY:
        return _at(decoded, Effect(Act.LOAD, to))
    if mnemonic == Mnemonic.LEA:
        base, index = _whole(decoded.memory_base), _whole(decoded.memory_index)
        if index == NOWHERE:
            return Effect(Act.COPY, to, base, _displacement(decoded))
        return Effect(Act.RENEW, to, RSP if RSP in (base, index) else base)
    if mnemonic in (Mnemonic.ADD, Mnemonic.SUB) and second in _IMMEDIATES:
        amount = decoded.immediate(1)
        amount -= (amount >> 63) << 64
        return Effect(Act.SHIFT, to, offset=amount if mnemonic == Mnemonic.ADD else -amount)
    if mnemonic in (Mnemonic.ADD, Mnemonic.SUB, Mnemonic.AND):
        return Effect(Act.RENEW, to, to)
    return None


def _stored(decoded: Decoded) -> Iterator[Effect]:
    source, size = NOWHERE, WORD_BYTES
    if decoded.mnemonic == Mnemonic.MOV and decoded.op1_kind == OpKind.REGISTER:
        source = _whole(decoded.op1_register)
    if source == NOWHERE:
        size = written_bytes(decoded)
    if size:
        yield _at(decoded, Effect(Act.STORE, source=source, size=size))


def _at(decoded: Decoded, effect: Effect) -> Effect:
    """With the place in memory that the instruction names."""
    return effect._replace(
        offset=_displacement(decoded),
        base=_whole(decoded.memory_base),
        scaled=_whole(decoded.memory_index),
        scale=decoded.memory_index_scale,
    )


def _displacement(decoded: Decoded) -> int:
    value = int(decoded.memory_displacement)
    return value - (1 << 64) if value >> 63 else value
