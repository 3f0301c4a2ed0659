# SPDX-License-Identifier: GPL-2.0-only
"""What the kernel does with a uprobe on an instruction, and what code reads and returns (x86-64).

A uprobe replaces the first byte of an instruction by a trap. Afterwards the kernel must still carry
out the instruction: push, nop, jmp, jcc and call it *emulates* within the same trap; any other it
copies elsewhere and *single-steps*, which is a second trap (measured: 0.7 us against 23..35 us).
Source for the list: arch/x86/kernel/uprobes.c, branch_setup_xol_ops() and push_setup_xol_ops().
Newer kernels emulate a little more (multi-byte nops); only what all of them do is counted here.
"""

from collections.abc import Iterator
from typing import Final

from iced_x86 import (
    Code,
    Decoder,
    FlowControl,
    Formatter,
    FormatterSyntax,
    Instruction,
    InstructionInfoFactory,
    Mnemonic,
    OpAccess,
    OpKind,
    Register,
    RegisterExt,
)

BITS = 64
# Integer arguments of the System V calling convention, in order.
ARGUMENT_REGISTERS: Final = (
    Register.RDI, Register.RSI, Register.RDX, Register.RCX, Register.R8, Register.R9,
)  # fmt: skip
ARGUMENT_NAMES: Final = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")
CALLEE_SAVED: Final = frozenset(
    {Register.RBX, Register.RBP, Register.R12, Register.R13, Register.R14, Register.R15}
)
EMULATED_FLOW = frozenset(
    {FlowControl.CONDITIONAL_BRANCH, FlowControl.UNCONDITIONAL_BRANCH, FlowControl.CALL}
)
ENDS_BLOCK = frozenset(
    {
        FlowControl.UNCONDITIONAL_BRANCH, FlowControl.INDIRECT_BRANCH,
        FlowControl.CONDITIONAL_BRANCH, FlowControl.RETURN, FlowControl.CALL,
        FlowControl.INDIRECT_CALL, FlowControl.INTERRUPT, FlowControl.XBEGIN_XABORT_XEND,
        FlowControl.EXCEPTION,
    }
)  # fmt: skip
WRITES = frozenset(
    {OpAccess.WRITE, OpAccess.COND_WRITE, OpAccess.READ_WRITE, OpAccess.READ_COND_WRITE}
)
ACCESSOR_STEPS = 48  # instructions on one path through an accessor
ACCESSOR_PATHS = 16

Chain = tuple[int, ...]  # displacements followed from the first argument; () is the argument itself


def decode(code: bytes, address: int) -> Iterator[Instruction]:
    """Instructions from the start of `code`, up to the first invalid one."""
    for instruction in Decoder(BITS, code, ip=address):
        if instruction.code == Code.INVALID:
            return
        yield instruction


def is_emulated(instruction: Instruction, code: bytes) -> bool:
    """Whether the kernel emulates it. `code` holds the instruction's own bytes."""
    prefixes = code[: code.index(_opcode_byte(instruction, code))]
    if instruction.code == Code.PUSH_R64:
        return prefixes in (b"", b"\x41")
    if instruction.code == Code.NOPD and code == b"\x90":
        return True
    if instruction.flow_control not in EMULATED_FLOW or b"\x66" in prefixes:
        return False
    return instruction.is_jcc_short_or_near or instruction.code in (
        Code.JMP_REL8_64, Code.JMP_REL32_64, Code.CALL_REL32_64,
    )  # fmt: skip


def _opcode_byte(instruction: Instruction, code: bytes) -> int:
    """The first byte of `code` that is no prefix."""
    legacy = b"\x26\x2e\x36\x3e\x64\x65\x66\x67\xf0\xf2\xf3"
    rest = code.lstrip(legacy + bytes(range(0x40, 0x50)))
    return rest[0] if rest else code[-1]


def text_of(instruction: Instruction) -> str:
    """The instruction in AT&T syntax, as objdump would show it."""
    return str(_FORMATTER.format(instruction)).replace("\t", " ")


_FORMATTER = Formatter(FormatterSyntax.GAS)
_FORMATTER.hex_prefix = "0x"
_FORMATTER.uppercase_hex = False
_FORMATTER.leading_zeros = False
_FORMATTER.branch_leading_zeros = False
_INFO = InstructionInfoFactory()


def written_registers(instruction: Instruction) -> set[int]:
    """The full registers (RAX for AL) an instruction may write."""
    return {
        RegisterExt.full_register(used.register)
        for used in _INFO.info(instruction).used_registers()
        if used.access in WRITES
    }


def branch_targets(code: bytes, address: int) -> set[int]:
    """Where the direct jumps of a function go to."""
    return {
        instruction.near_branch_target
        for instruction in decode(code, address)
        if instruction.flow_control
        in (FlowControl.CONDITIONAL_BRANCH, FlowControl.UNCONDITIONAL_BRANCH)
    }


def returned_fields(code: bytes, address: int) -> set[Chain]:
    """What a function that only reads fields returns: chains of loads from its first argument.

    `(8, 64)` means that it returned `*(*(argument + 8) + 64)`. All paths are followed; those that
    return anything else, such as what another function returned, add nothing.
    """
    return {
        chain
        for instruction, known in _walk(code, address)
        if instruction.flow_control == FlowControl.RETURN and (chain := known.get(Register.RAX))
    }


def copied_fields(code: bytes, address: int) -> set[tuple[Chain, int]]:
    """What a function copies into its first argument: (chain of loads, offset it is stored at)."""
    found = set()
    for instruction, known in _walk(code, address):
        stores = (
            instruction.mnemonic == Mnemonic.MOV
            and instruction.op0_kind == OpKind.MEMORY
            and instruction.op1_kind == OpKind.REGISTER
            and not instruction.memory_index
            and known.get(instruction.memory_base) == ()
        )
        if stores and (chain := known.get(instruction.op1_register)):
            found.add((chain, instruction.memory_displacement))
    return found


def _walk(code: bytes, address: int) -> Iterator[tuple[Instruction, dict[int, Chain]]]:
    """The instructions of all paths, each with what the registers hold before it."""
    by_address = {instruction.ip: instruction for instruction in decode(code, address)}
    paths: list[tuple[int, dict[int, Chain], int]] = [(address, {Register.RDI: ()}, 0)]
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
                known = {r: chain for r, chain in known.items() if r in CALLEE_SAVED}
            elif flow != FlowControl.NEXT:
                break
            _follow_load(instruction, known)
            position = instruction.next_ip


def _follow_load(instruction: Instruction, known: dict[int, Chain]) -> None:
    """Update what each register holds after one instruction."""
    result: Chain | None = None
    if instruction.mnemonic == Mnemonic.MOV and instruction.op0_kind == OpKind.REGISTER:
        if instruction.op1_kind == OpKind.REGISTER:
            result = known.get(instruction.op1_register)
        elif instruction.op1_kind == OpKind.MEMORY and not instruction.memory_index:
            chain = known.get(instruction.memory_base)
            displacement = instruction.memory_displacement
            if chain is not None and not instruction.has_segment_prefix and displacement < 1 << 16:
                result = (*chain, displacement)
    for register in written_registers(instruction):
        known.pop(register, None)
    if result is not None:
        known[RegisterExt.full_register(instruction.op0_register)] = result
