# SPDX-License-Identifier: GPL-2.0-only
"""The words of an unwind table, as the programs in the kernel read them (probes/bpf/unwind.h).

A row is one word and applies from its address to that of the next row:

    bits 0-7    low byte of the address
    bits 8-10   kind
    bits 11-23  SP, BP: the CFA is this many 8-byte words above that register
    bits 24-31  SP, BP: rbp is saved this many words below the CFA; 0: rbp is unchanged
    bits 11-31  RULE: number of the rule

The CFA is the stack pointer in the caller, after the return. On x86-64 the return address is below
it, except in signal frames. On arm64 x29 is in the place of rbp; the return address is behind it
where it is saved, else in x30. What does not fit in a word is a rule.
"""

import struct
from enum import IntEnum
from typing import Final, NamedTuple

RULE_FORMAT: Final = struct.Struct("<BBBBiii")
RULES_MOST: Final = 4096
OFFSET_SHIFT, SAVED_SHIFT = 11, 24
OFFSET_WORDS_MOST: Final = (1 << 13) - 1
SAVED_WORDS_MOST: Final = 255
WORD_BYTES: Final = 8
RSP: Final = 7
RBP: Final = 6
RETURN_ADDRESS: Final = 16
REGISTERS_MOST: Final = 32


class Registers(NamedTuple):
    """The DWARF numbers of an architecture's registers that a walk follows."""

    stack: int
    frame: int
    return_address: int
    is_linked: bool  # a call leaves the return address in a register


X86_REGISTERS: Final = Registers(RSP, RBP, RETURN_ADDRESS, False)
ARM64_REGISTERS: Final = Registers(31, 29, 30, True)
REGISTERS: Final = {"EM_X86_64": X86_REGISTERS, "EM_AARCH64": ARM64_REGISTERS}
"""By the machine of an ELF file."""


class Kind(IntEnum):
    """Kind of a row."""

    NONE = 0  # no call frame information
    SP = 1
    BP = 2
    RULE = 3
    END = 4  # the first function of a thread: it has no caller


class RuleKind(IntEnum):
    """How a rule computes the CFA."""

    UNSUPPORTED = 0
    REGISTER = 1  # register + offset; arm64: the return address is at CFA + add, 0: in x30
    INDIRECT = 2  # *(register + offset) + add
    PLT = 3  # rsp + offset, and 8 more from byte `register` of each 16 on
    SIGNAL = 4  # *(rsp + offset); rbp is at rsp + saved_offset, rip at rsp + add (arm64: none)
    SCALED = 5  # *(rsp + offset + register * scale) + add


class Saved(IntEnum):
    """Where a rule finds the caller's rbp."""

    SAME = 0
    AT_CFA = 1  # at CFA + saved_offset
    AT_RBP = 2  # at rbp + saved_offset
    LOST = 3
    REGISTER = 4  # in register saved_offset


class Rule(NamedTuple):
    """A row that does not fit in a word."""

    kind: int
    register: int = 0
    saved: int = Saved.SAME
    scale: int = 0
    offset: int = 0
    add: int = 0
    saved_offset: int = 0


UNSUPPORTED: Final = Rule(RuleKind.UNSUPPORTED)


def plain_row(rule: Rule, registers: Registers) -> int | None:
    """The word for a CFA of rsp or rbp + offset, without address; None if it needs a rule."""
    offset, saved, saved_offset = rule.offset, rule.saved, rule.saved_offset
    if rule.register not in registers[:2] or saved not in (Saved.SAME, Saved.AT_CFA):
        return None
    if registers.is_linked and rule.add != (saved_offset + 8 if saved == Saved.AT_CFA else 0):
        return None
    below = -saved_offset if saved == Saved.AT_CFA else 0
    if offset % WORD_BYTES or below % WORD_BYTES or (saved == Saved.AT_CFA and below <= 0):
        return None
    if not 0 <= offset <= OFFSET_WORDS_MOST * WORD_BYTES or below > SAVED_WORDS_MOST * WORD_BYTES:
        return None
    kind = Kind.SP if rule.register == registers.stack else Kind.BP
    words = offset // WORD_BYTES << OFFSET_SHIFT | below // WORD_BYTES << SAVED_SHIFT
    return kind << 8 | words


def rule_row(number: int) -> int:
    """The word that refers to a rule, without address."""
    return Kind.RULE << 8 | number << OFFSET_SHIFT
