# SPDX-License-Identifier: GPL-2.0-only
"""How the kernel executes an instruction under a uprobe, and decoding of instructions (x86-64).

A uprobe replaces the first byte of an instruction by a trap. After the trap the kernel must still
execute the instruction. It *emulates* push, nop, jmp, jcc and call within the same trap; it copies
any other elsewhere and *single-steps* it, a second trap (measured: 0.4 us against 14 us).
Source for the list: arch/x86/kernel/uprobes.c, branch_setup_xol_ops() and push_setup_xol_ops().
Newer kernels emulate more forms (multi-byte nops): TRIAL_FORMS, which are tried on the host.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from iced_x86 import (
    Code,
    Decoder,
    FlowControl,
    Formatter,
    FormatterSyntax,
    Instruction,
    InstructionInfoFactory,
    MemorySizeExt,
    OpAccess,
    Register,
    RegisterExt,
)

from tlstax.collectors.binary.machine import TrialForm

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
CALLEE_SAVED: Final = frozenset(
    {Register.RBX, Register.RBP, Register.R12, Register.R13, Register.R14, Register.R15}
)
EMULATED_FLOW = frozenset(
    {FlowControl.CONDITIONAL_BRANCH, FlowControl.UNCONDITIONAL_BRANCH, FlowControl.CALL}
)
WRITES = frozenset(
    {OpAccess.WRITE, OpAccess.COND_WRITE, OpAccess.READ_WRITE, OpAccess.READ_COND_WRITE}
)
# ALWAYS_EMULATED: by every kernel. TRIAL_FORMS: by some, see host/emulation.py.
ALWAYS_EMULATED: Final = frozenset({"push", "nop", "jmp", "jcc", "call"})
MOST_STORED_BYTES: Final = 64
"""Of an instruction that says no size."""
EMULATED_CODES: Final = {
    Code.JMP_REL8_64: "jmp", Code.JMP_REL32_64: "jmp", Code.CALL_REL32_64: "call"
}  # fmt: skip


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


def decode(code: bytes, address: int) -> Iterator[Instruction]:
    """Instructions from the start of `code`, up to the first invalid one."""
    for instruction in Decoder(BITS, code, ip=address):
        if instruction.code == Code.INVALID:
            return
        yield instruction


def form_of(instruction: Instruction, code: bytes) -> str:
    """Its form for the kernel: one of ALWAYS_EMULATED, of TRIAL_FORMS, or "" (single-stepped).

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


def _opcode_byte(instruction: Instruction, code: bytes) -> int:
    """The first byte of `code` that is not a prefix."""
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


def written_bytes(instruction: Instruction) -> int:
    """How much of memory it may write; 0 for none."""
    return max(
        (
            MemorySizeExt.size(used.memory_size) or MOST_STORED_BYTES
            for used in _INFO.info(instruction).used_memory()
            if used.access in WRITES
        ),
        default=0,
    )
