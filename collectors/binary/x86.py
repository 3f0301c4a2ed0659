# SPDX-License-Identifier: GPL-2.0-only
"""x86-64 for placement: a call pushes the return address."""

from collections.abc import Collection, Iterator
from typing import Final

from iced_x86 import Code, Decoder, Mnemonic, OpKind, Register, RegisterExt

from tlstax.collectors.binary import instructions
from tlstax.collectors.binary.machine import (
    X86_64,
    Assignment,
    Depth,
    Effects,
    Instruction,
    Machine,
    Store,
)

_MOST_BYTES: Final = 15
_NOTRACK: Final = b"\x3e"
# Their first operand is the stack pointer, but they do not change it.
_HARMLESS: Final = frozenset({Mnemonic.PUSH, Mnemonic.CMP, Mnemonic.TEST})
_IMMEDIATES: Final = (OpKind.IMMEDIATE8TO64, OpKind.IMMEDIATE32TO64)


class X86(Machine):
    """x86-64."""

    name = X86_64
    arguments = instructions.ARGUMENT_REGISTERS
    result = int(Register.RAX)
    stack = int(Register.RSP)
    names = instructions.REGISTER_NAMES
    callee_saved = instructions.CALLEE_SAVED
    entry_bytes = 0
    always_emulated = instructions.ALWAYS_EMULATED
    trial_forms = instructions.TRIAL_FORMS
    keeps_return_address = False
    jump_slot, global_data, relative = 7, 6, 8

    def decode(self, code: bytes, address: int) -> Iterator[Instruction]:
        """See Machine."""
        return instructions.decode(code, address)

    def first(self, code: bytes, address: int) -> Instruction | None:
        """See Machine."""
        found = next(iter(Decoder(instructions.BITS, code[:_MOST_BYTES], ip=address)), None)
        return None if found is None or found.code == Code.INVALID else found

    def form_of(self, instruction: Instruction, code: bytes) -> str:
        """See Machine."""
        return instructions.form_of(instruction, code)

    def text_of(self, instruction: Instruction) -> str:
        """See Machine."""
        return instructions.text_of(instruction)

    def written_registers(self, instruction: Instruction) -> Collection[int]:
        """See Machine."""
        return instructions.written_registers(instruction)

    def copied(self, instruction: Instruction) -> tuple[int, int] | None:
        """See Machine."""
        kinds = (instruction.op0_kind, instruction.op1_kind)
        if instruction.mnemonic != Mnemonic.MOV or kinds != (OpKind.REGISTER, OpKind.REGISTER):
            return None
        if RegisterExt.size(instruction.op0_register) < 4:
            return None
        return (
            RegisterExt.full_register(instruction.op0_register),
            RegisterExt.full_register(instruction.op1_register),
        )

    def copies_whole(self, instruction: Instruction) -> bool:
        """See Machine."""
        return bool(RegisterExt.size(instruction.op0_register) == 8)

    def moved(self, instruction: Instruction, depth: Depth) -> Depth:
        """See Machine."""
        stack, frame, _ = depth
        mnemonic, to_stack = instruction.mnemonic, instruction.op0_register == Register.RSP
        if mnemonic == Mnemonic.LEAVE:
            return Depth(None if frame is None else frame - 8, None)
        if mnemonic in (Mnemonic.SUB, Mnemonic.ADD) and to_stack:
            by = _immediate(instruction)
            sign = 1 if mnemonic == Mnemonic.SUB else -1
            return Depth(None if stack is None or by is None else stack + sign * by, frame)
        if mnemonic == Mnemonic.LEA and to_stack:
            base = {Register.RSP: stack, Register.RBP: frame}.get(instruction.memory_base)
            if base is None or instruction.memory_index != Register.NONE:
                return Depth(None, frame)
            return Depth(base - _displacement(instruction), frame)
        if mnemonic == Mnemonic.MOV and to_stack:
            return Depth(frame if instruction.op1_register == Register.RBP else None, frame)
        if mnemonic == Mnemonic.MOV and instruction.op0_register == Register.RBP:
            return Depth(stack, stack if instruction.op1_register == Register.RSP else None)
        if mnemonic == Mnemonic.POP and instruction.op0_register == Register.RBP:
            frame = None
        if to_stack and instruction.op0_kind == OpKind.REGISTER and mnemonic not in _HARMLESS:
            return Depth(None, frame)
        if stack is not None:
            stack -= instruction.stack_pointer_increment
        return Depth(stack, frame)

    def is_table_jump(self, instruction: Instruction, code: bytes) -> bool:
        """See Machine. Compilers exempt only jumps through a table from branch tracking."""
        return bool(instruction.memory_index != Register.NONE) or code[:1] == _NOTRACK

    def computes_case(self, instruction: Instruction) -> bool:
        """See Machine."""
        return bool(instruction.mnemonic == Mnemonic.MOVSXD)

    def cleared(self, instruction: Instruction) -> int | None:
        """See Machine."""
        if instruction.op0_kind != OpKind.REGISTER:
            return None
        to = RegisterExt.full_register(instruction.op0_register)
        is_same = (
            instruction.mnemonic == Mnemonic.XOR
            and instruction.op1_kind == OpKind.REGISTER
            and instruction.op0_register == instruction.op1_register
            and RegisterExt.size(instruction.op0_register) >= 4
        )
        is_zero = instruction.code == Code.MOV_R32_IMM32 and instruction.immediate32 == 0
        return int(to) if is_same or is_zero else None

    def effects(self, instruction: Instruction) -> Effects:
        """See Machine."""
        if _stores_register(instruction):
            base, offset = instruction.memory_base, _displacement(instruction)
            return Effects((Store(base, offset, instruction.op1_register),))
        found = []
        if instruction.stack_pointer_increment:
            rsp, by = int(Register.RSP), instruction.stack_pointer_increment
            found.append(Assignment(rsp, False, rsp, by))
        if (assigned := _assigned(instruction)) is not None:
            found.append(assigned)
        return Effects((), tuple(found))


def _assigned(instruction: Instruction) -> Assignment | None:
    """What an instruction writes to its first operand, a register."""
    if instruction.op0_kind != OpKind.REGISTER:
        return None
    to = RegisterExt.full_register(instruction.op0_register)
    if instruction.mnemonic in (Mnemonic.ADD, Mnemonic.SUB):
        by = _immediate(instruction)
        sign = 1 if instruction.mnemonic == Mnemonic.ADD else -1
        return None if by is None else Assignment(to, False, instruction.op0_register, sign * by)
    if instruction.mnemonic == Mnemonic.LEA and instruction.is_ip_rel_memory_operand:
        return Assignment(to, False, -1, instruction.ip_rel_memory_address)
    if instruction.mnemonic != Mnemonic.MOV:
        return None
    if instruction.code == Code.MOV_R32_IMM32:
        return Assignment(to, False, -1, instruction.immediate32)
    if instruction.op1_kind == OpKind.REGISTER:
        return Assignment(to, False, instruction.op1_register, 0)
    if (
        instruction.op1_kind != OpKind.MEMORY
        or instruction.memory_index
        or instruction.has_segment_prefix
    ):
        return None
    return Assignment(to, True, instruction.memory_base, _displacement(instruction))


def _stores_register(instruction: Instruction) -> bool:
    return (
        instruction.mnemonic == Mnemonic.MOV
        and instruction.op0_kind == OpKind.MEMORY
        and instruction.op1_kind == OpKind.REGISTER
        and not instruction.memory_index
        and not instruction.has_segment_prefix
    )


def _displacement(instruction: Instruction) -> int:
    return _signed(instruction.memory_displacement)


def _immediate(instruction: Instruction) -> int | None:
    if instruction.op1_kind not in _IMMEDIATES:
        return None
    return _signed(instruction.immediate(1))


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
