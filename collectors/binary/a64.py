# SPDX-License-Identifier: GPL-2.0-only
"""A64 instructions (arm64): decoding, and how the kernel executes them under a uprobe.

Each instruction is one word of 4 bytes. A uprobe replaces it by a breakpoint. The kernel
*simulates* branches, adr and adrp within the trap, newer ones also nop; others are copied elsewhere
and *single-stepped*. Some it refuses: what reads or writes the program counter otherwise, exclusive
loads and stores, and hints that may raise an exception. Source: arch/arm64/kernel/probes/
decode-insn.c, arm_probe_decode_insn().

Registers are numbered 0 to 30 as x0 to x30; SP is 31.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from tlstax.collectors.binary.machine import FlowKind

if TYPE_CHECKING:
    import capstone  # type: ignore[import-untyped]

WORD_BYTES: Final = 4
FRAME, LINK, SP, ZERO = 29, 30, 31, 32
CALLEE_SAVED: Final = frozenset(range(19, 30))
ALWAYS_SIMULATED: Final = frozenset({"branch", "adr"})
NOP: Final = 0xD503201F
BTI_C: Final = 0xD503245F
# Hints that are single-stepped; the kernel refuses others (bits 5 to 11 of the word).
_STEPPED_HINTS: Final = frozenset(
    {0x000, 0x0E0, 0x100, 0x140, 0x300, 0x320, 0x340, 0x360, 0x400, 0x440, 0x480, 0x4C0}
)


@dataclass(frozen=True, slots=True)
class A64:
    """One instruction. The names are those of iced_x86's Instruction."""

    ip: int
    word: int
    flow_control: FlowKind
    near_branch_target: int = 0
    len: int = WORD_BYTES

    @property
    def next_ip(self) -> int:
        """The address behind it."""
        return self.ip + WORD_BYTES

    @property
    def is_jcc_short_or_near(self) -> bool:
        """Whether the flags decide the jump: b.cond, not cbz or tbz."""
        return self.word >> 24 == 0x54

    @property
    def condition_code(self) -> int:
        """The condition of b.cond, plus 1."""
        return (self.word & 0xF) + 1


def decode(code: bytes, address: int) -> Iterator[A64]:
    """Instructions from the start of `code`, up to the first that is none."""
    for at in range(0, len(code) - len(code) % WORD_BYTES, WORD_BYTES):
        word = int.from_bytes(code[at : at + WORD_BYTES], "little")
        if word >> 16 == 0 or (kind := _flow(word)) is None:  # udf: data, or padding
            return
        yield A64(address + at, word, kind, _target(word, address + at))


def _flow(word: int) -> FlowKind | None:
    """How control goes on."""
    top = word >> 24
    if word >> 26 in (0x05, 0x25):
        return FlowKind.UNCONDITIONAL_BRANCH if word >> 26 == 0x05 else FlowKind.CALL
    if top == 0x54 or top & 0x7E in (0x34, 0x36):
        always = top == 0x54 and word & 0xE == 0xE
        return FlowKind.UNCONDITIONAL_BRANCH if always else FlowKind.CONDITIONAL_BRANCH
    if top & 0xFE == 0xD6:  # br, blr, ret, and the same with authentication
        kind = word >> 21 & 0x7
        if kind == 2:
            return FlowKind.RETURN
        return {0: FlowKind.INDIRECT_BRANCH, 1: FlowKind.INDIRECT_CALL}.get(kind)
    if top == 0xD4:
        return FlowKind.NEXT if word & 0xE0001F == 1 else FlowKind.EXCEPTION  # svc, brk
    return FlowKind.NEXT


def _target(word: int, address: int) -> int:
    """Where a direct branch leads; 0 for anything else."""
    top = word >> 24
    if word >> 26 in (0x05, 0x25):
        return address + (_signed(word, 26) << 2)
    if top == 0x54 or top & 0x7E == 0x34:
        return address + (_signed(word >> 5, 19) << 2)
    if top & 0x7E == 0x36:
        return address + (_signed(word >> 5, 14) << 2)
    return 0


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


# ---- the kernel ----


def form_of(word: int) -> str:
    """How the kernel treats it: `branch`, `adr`, `nop`, "" (single-stepped), or `refused`."""
    top = word >> 24
    if top & 0x1F == 0x10:
        return "adr"
    if word == NOP:
        return "nop"
    if word >> 26 in (0x05, 0x25) or top & 0x7E in (0x34, 0x36) or word & 0xFF000010 == 0x54000000:
        return "branch"
    if word & 0xFF9FFC1F == 0xD61F0000:
        return "branch" if word >> 21 & 3 != 3 else "refused"
    if top in (0xD4, 0x54) or top & 0xFE == 0xD6:
        return "refused"
    if word & 0xFFFFF01F == 0xD503201F:  # hint
        return "" if word & 0xFE0 in _STEPPED_HINTS else "refused"
    if word & 0xFFF00000 == 0xD5100000 or word & 0xFFF8F01F == 0xD500401F:  # msr
        return "refused"
    exclusive = word & 0x3F000000 == 0x08000000 and not word >> 23 & 1
    literal = word & 0x3B000000 == 0x18000000
    memory_copy = word & 0x3B200C00 == 0x19000400
    return "refused" if exclusive or literal or memory_copy else ""


# ---- what it does ----


def address_parts(word: int, address: int) -> int | None:
    """The address that adr or adrp computes."""
    if word >> 24 & 0x1F != 0x10:
        return None
    distance = _signed((word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3, 21)
    if word >> 31:
        return (address & ~0xFFF) + (distance << 12)
    return address + distance


def added_immediate(word: int) -> tuple[int, int, int] | None:
    """(to, from, number) of a 64-bit add or sub of an immediate, without flags. 31 is SP."""
    if word & 0xBF800000 != 0x91000000:
        return None
    number = (word >> 10 & 0xFFF) << (12 if word >> 22 & 1 else 0)
    return word & 31, word >> 5 & 31, -number if word >> 30 & 1 else number


def copied(word: int) -> tuple[int, int] | None:
    """(to, from) of a move between registers of 32 or 64 bits, not of SP."""
    if word & 0x7FE0FFE0 != 0x2A0003E0 or 31 in (word & 31, word >> 16 & 31):
        return None
    return word & 31, word >> 16 & 31


def cleared(word: int) -> int | None:
    """The register of `mov xN, #0` or `mov xN, xzr`."""
    is_zero = word & 0x7FFFFFE0 in (0x52800000, 0x2A1F03E0)
    return word & 31 if is_zero and word & 31 != 31 else None


@dataclass(frozen=True, slots=True)
class Access:
    """A load or store of whole registers at a base register plus a constant."""

    load: bool
    registers: tuple[int, ...]  # ZERO: none, or zeros are stored
    size: int  # bytes of each
    base: int
    offset: int  # of the first register's place
    moved: int  # what is added to the base


def access_of(word: int) -> Access | None:
    """The load or store of one or two general registers; None for anything else."""
    base, first = word >> 5 & 31, word & 31
    if word & 0x3E000000 == 0x28000000:  # stp, ldp
        kind, size = word >> 23 & 3, 8 if word >> 31 else 4
        if word >> 30 & 1:  # ldpsw, stgp
            return None
        offset = _signed(word >> 15, 7) * size
        registers = tuple(ZERO if r == 31 else r for r in (first, word >> 10 & 31))
        moved = offset if kind in (1, 3) else 0
        return Access(
            bool(word >> 22 & 1), registers, size, base, 0 if kind == 1 else offset, moved
        )
    size = 1 << (word >> 30)
    register = (ZERO if first == 31 else first,)
    if word & 0x3F000000 == 0x39000000 and word >> 22 & 3 < 2:
        return Access(bool(word >> 22 & 1), register, size, base, (word >> 10 & 0xFFF) * size, 0)
    if word & 0x3F200000 == 0x38000000 and word >> 22 & 3 < 2:
        kind, offset = word >> 10 & 3, _signed(word >> 12, 9)
        moved = offset if kind & 1 else 0
        return Access(bool(word >> 22 & 1), register, size, base, 0 if kind == 1 else offset, moved)
    return None


def stack_change(word: int) -> tuple[str, int] | None:
    """What an instruction does to SP: ("add", bytes), ("frame", bytes above x29) or ("lost", 0)."""
    if (added := added_immediate(word)) and added[0] == SP:
        if added[1] == SP:
            return "add", added[2]
        return ("frame", added[2]) if added[1] == FRAME else ("lost", 0)
    if (moved := _moved_base(word)) is not None:
        return "add", moved
    return ("lost", 0) if SP in written_registers(word) else None


def _moved_base(word: int) -> int | None:
    """What a load or store, also of a vector register, adds to SP as its base."""
    if word >> 5 & 31 != SP:
        return None
    if word & 0x3A000000 == 0x28000000 and word >> 23 & 1:
        wide = 2 + (word >> 30) if word >> 26 & 1 else 2 + (word >> 31)
        return _signed(word >> 15, 7) << wide
    if word & 0x3B200400 == 0x38000400:
        return _signed(word >> 12, 9)
    return None


def number_set(word: int, known: tuple[int, int] | None) -> tuple[int, int] | None:
    """The register that movz sets, or movk completes, and its number; else what stays `known`."""
    register, shift = word & 31, 16 * (word >> 21 & 3)
    part = (word >> 5 & 0xFFFF) << shift
    if word & 0x7F800000 == 0x52800000:
        return register, part
    if known is None or known[0] not in written_registers(word):
        return known
    if word & 0xFF800000 == 0xF2800000:
        return register, known[1] & ~(0xFFFF << shift) | part
    return None


def stack_by_register(word: int) -> tuple[int, int] | None:
    """The sign and the register of `add sp, sp, x` and `sub sp, sp, x`."""
    sign = {0x8B2063FF: 1, 0xCB2063FF: -1}.get(word & 0xFFE0FFFF)
    return None if sign is None else (sign, word >> 16 & 31)


def frame_set(word: int) -> int | None:
    """How far above SP an instruction sets x29."""
    added = added_immediate(word)
    return added[2] if added and added[:2] == (FRAME, SP) else None


def computes_case(word: int) -> bool:
    """Add with a sign-extended distance: the target of a jump through a table."""
    return word & 0xFFE00000 == 0x8B200000 and word >> 15 & 1 == 1


@cache
def _engine() -> "capstone.Cs":
    import capstone  # imported here: only who plans needs it

    engine = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_LITTLE_ENDIAN)
    engine.detail = True
    return engine


def _disassembled(word: int, address: int) -> "capstone.CsInsn | None":
    return next(_engine().disasm(word.to_bytes(WORD_BYTES, "little"), address), None)


def text_of(instruction: A64) -> str:
    """The instruction as objdump would show it."""
    found = _disassembled(instruction.word, instruction.ip)
    return f"{found.mnemonic} {found.op_str}".strip() if found else f".word {instruction.word:#x}"


@cache
def written_registers(word: int) -> frozenset[int]:
    """The general registers that an instruction may write; all of them if it is not known."""
    found = _disassembled(word, 0)
    if found is None:
        return frozenset(range(32))
    if found.mnemonic in _COMPARISONS:  # the decoder takes their first operand for a result
        return frozenset()
    names = {found.reg_name(register) for register in found.regs_access()[1]}
    numbers = {_NUMBERS[name] for name in names if name in _NUMBERS}
    if (access := access_of(word)) is not None:
        numbers |= {access.base} if access.moved else set()
        numbers |= {r for r in access.registers if access.load and r != ZERO}
    if word & 0x3B200C00 == 0x38200000:  # ldadd, swp and others: it says too little of these
        numbers.add(word & 31)
    if word & 0x3FA07C00 == 0x08A07C00 or word & 0xBFA07C00 == 0x08207C00:  # cas, casp
        numbers |= {word >> 16 & 31, (word >> 16 & 31) + 1}
    return frozenset(numbers - {ZERO})


_COMPARISONS: Final = frozenset({"cmp", "cmn", "tst", "ccmp", "ccmn", "fcmp", "fcmpe", "fccmp"})
_NUMBERS: Final = (
    {f"{width}{number}": number for width in "xw" for number in range(31)}
    | {"fp": FRAME, "lr": LINK, "sp": SP, "wsp": SP}
)  # fmt: skip
