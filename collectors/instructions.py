# SPDX-License-Identifier: GPL-2.0-only
"""What the kernel does with a uprobe on an instruction, and what code reads and returns (x86-64).

A uprobe replaces the first byte of an instruction by a trap. Afterwards the kernel must still carry
out the instruction: push, nop, jmp, jcc and call it *emulates* within the same trap; any other it
copies elsewhere and *single-steps*, which is a second trap (measured: 0.4 us against 14 us).
Source for the list: arch/x86/kernel/uprobes.c, branch_setup_xol_ops() and push_setup_xol_ops().
Newer kernels emulate a little more (multi-byte nops): TRIAL_FORMS, which are tried on the host.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

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
REGISTER_NAMES: Final[Mapping[int, str]] = {
    Register.RAX: "rax", Register.RBX: "rbx", Register.RCX: "rcx", Register.RDX: "rdx",
    Register.RSI: "rsi", Register.RDI: "rdi", Register.RBP: "rbp", Register.R8: "r8",
    Register.R9: "r9", Register.R10: "r10", Register.R11: "r11", Register.R12: "r12",
    Register.R13: "r13", Register.R14: "r14", Register.R15: "r15",
}  # fmt: skip
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
# What every kernel emulates, and what one does is asked for by trial (collectors/emulation.py).
ALWAYS_EMULATED: Final = frozenset({"push", "nop", "jmp", "jcc", "call"})
EMULATED_CODES: Final = {
    Code.JMP_REL8_64: "jmp", Code.JMP_REL32_64: "jmp", Code.CALL_REL32_64: "call"
}  # fmt: skip


class TrialForm(NamedTuple):
    """An instruction that newer kernels may emulate; it occurs where functions begin."""

    code: bytes  # one example
    pattern: bytes  # what all of them begin with
    before: bytes = b""  # code that makes the example harmless in a function of its own
    after: bytes = b""


def _same(code: str, before: str = "", after: str = "") -> TrialForm:
    raw = bytes.fromhex(code)
    return TrialForm(raw, raw, bytes.fromhex(before), bytes.fromhex(after))


TRIAL_FORMS: Final[Mapping[str, TrialForm]] = {
    "nop of 2": _same("6690"),
    "nop of 3": _same("0f1f00"),
    "nop of 4": _same("0f1f4000"),
    "nop of 5": _same("0f1f440000"),
    "nop of 6": _same("660f1f440000"),
    "nop of 7": _same("0f1f8000000000"),
    "nop of 8": _same("0f1f840000000000"),
    "nop of 9": _same("660f1f840000000000"),
    "endbr64": _same("f30f1efa"),
    "mov %rsp,%rbp": _same("4889e5", before="55", after="5d"),
    "sub $imm8,%rsp": TrialForm(
        bytes.fromhex("4883ec18"), bytes.fromhex("4883ec"), after=bytes.fromhex("4883c418")
    ),
}
IMMEDIATES: Final = (OpKind.IMMEDIATE8TO64, OpKind.IMMEDIATE32TO64)
ACCESSOR_STEPS = 48  # instructions on one path through an accessor
ACCESSOR_PATHS = 16

Chain = tuple[int, ...]  # displacements followed from the first argument; () is the argument itself


def decode(code: bytes, address: int) -> Iterator[Instruction]:
    """Instructions from the start of `code`, up to the first invalid one."""
    for instruction in Decoder(BITS, code, ip=address):
        if instruction.code == Code.INVALID:
            return
        yield instruction


def form_of(instruction: Instruction, code: bytes) -> str:
    """What the kernel sees in it: one of ALWAYS_EMULATED, of TRIAL_FORMS, or "" (single-stepped).

    `code` holds the instruction's own bytes.
    """
    for name, form in TRIAL_FORMS.items():
        if code.startswith(form.pattern) and len(code) == len(form.code):
            return name
    prefixes = code[: code.index(_opcode_byte(instruction, code))]
    if instruction.code == Code.PUSH_R64:
        return "push" if prefixes in (b"", b"\x41") else ""
    if instruction.code == Code.NOPD and code == b"\x90":
        return "nop"
    if instruction.flow_control not in EMULATED_FLOW or b"\x66" in prefixes:
        return ""
    if instruction.is_jcc_short_or_near:
        return "jcc"
    return EMULATED_CODES.get(instruction.code, "")


def is_emulated(
    instruction: Instruction, code: bytes, emulated: Collection[str] = ALWAYS_EMULATED
) -> bool:
    """Whether the kernel emulates it. `emulated` are the forms that it was seen to emulate."""
    return form_of(instruction, code) in emulated


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


class Held(NamedTuple):
    """What a register or a place on the stack holds: a chain of loads, and what was added to it."""

    chain: Chain
    added: int = 0


Known = dict[int, Held]  # by register, or by SLOT + its place relative to the stack on entry
SLOT: Final = -(1 << 32)
STACK: Final[Chain] = (-1,)  # the chain of the stack pointer


def returned_fields(code: bytes, address: int) -> set[Chain]:
    """What a function that only reads fields returns: chains of loads from its first argument.

    `(8, 64)` means that it returned `*(*(argument + 8) + 64)`. All paths are followed; those that
    return anything else, such as what another function returned, add nothing.
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
    """The instructions of all paths, each with what the registers hold before it."""
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
    """Update what each register and place on the stack holds after one instruction."""
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
    """What an instruction puts into the register that it names first."""
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
