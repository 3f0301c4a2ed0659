# SPDX-License-Identifier: GPL-2.0-only
"""What placement needs to know of an architecture. x86-64: x86.py, arm64: arm64.py."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

Instruction = Any
"""iced_x86's Instruction, or A64, which has what is common to both."""


class FlowKind(IntEnum):
    """How control goes on after an instruction: iced_x86's FlowControl."""

    NEXT = 0
    UNCONDITIONAL_BRANCH = 1
    INDIRECT_BRANCH = 2
    CONDITIONAL_BRANCH = 3
    RETURN = 4
    CALL = 5
    INDIRECT_CALL = 6
    INTERRUPT = 7
    EXCEPTION = 9


class Depth(NamedTuple):
    """How far the stack pointer, and the frame pointer, are below the stack pointer on entry."""

    stack: int | None
    frame: int | None
    number: tuple[int, int] | None = None
    """A register and the number that it was set to last, on machines that take large frames so."""


class TrialForm(NamedTuple):
    """An instruction that newer kernels may emulate; it occurs where functions begin."""

    code: bytes  # one example
    pattern: bytes  # the common first bytes
    before: bytes = b""  # code that makes the example harmless in a test function
    after: bytes = b""


class Store(NamedTuple):
    """A whole register is stored at base + offset."""

    base: int
    offset: int
    register: int


class Assignment(NamedTuple):
    """A register becomes `source + number`, what is there in memory, or (source -1) a number."""

    register: int
    is_load: bool
    source: int
    number: int


class Effects(NamedTuple):
    """What is known of an instruction's effects; what else it writes is unknown."""

    stores: tuple[Store, ...] = ()
    assignments: tuple[Assignment, ...] = ()


class Machine(ABC):
    """An architecture. Registers are numbers of its decoder."""

    name: str
    arguments: tuple[int, ...]  # registers of the integer arguments
    result: int  # the register of the result
    stack: int  # the stack pointer
    names: Mapping[int, str]  # of registers that a probe can read
    callee_saved: frozenset[int]
    entry_bytes: int
    """Added to a depth for that of the ledger, where a call pushes a word on every machine."""
    always_emulated: frozenset[str]
    trial_forms: Mapping[str, TrialForm]
    keeps_return_address: bool  # in a register, which a return probe must find unsigned
    jump_slot: int  # types of relocations: R_*_JUMP_SLOT
    global_data: int
    relative: int

    @abstractmethod
    def decode(self, code: bytes, address: int) -> Iterator[Instruction]:
        """Instructions from the start of `code`, up to the first invalid one."""

    @abstractmethod
    def first(self, code: bytes, address: int) -> Instruction | None:
        """The first instruction; None if it is invalid."""

    @abstractmethod
    def form_of(self, instruction: Instruction, code: bytes) -> str:
        """Its form for the kernel, "" for one that is single-stepped."""

    @abstractmethod
    def text_of(self, instruction: Instruction) -> str:
        """The instruction as objdump would show it."""

    @abstractmethod
    def written_registers(self, instruction: Instruction) -> Collection[int]:
        """The full registers that an instruction may write."""

    @abstractmethod
    def copied(self, instruction: Instruction) -> tuple[int, int] | None:
        """(to, from) as full registers of a move of a whole register or half of one."""

    @abstractmethod
    def copies_whole(self, instruction: Instruction) -> bool:
        """Whether such a move is of a whole register."""

    @abstractmethod
    def moved(self, instruction: Instruction, depth: Depth) -> Depth:
        """The depths after an instruction that is no call."""

    @abstractmethod
    def is_table_jump(self, instruction: Instruction, code: bytes) -> bool:
        """Whether an indirect jump itself shows that it goes through a table of its function."""

    @abstractmethod
    def computes_case(self, instruction: Instruction) -> bool:
        """Whether an instruction computes the target of a jump through a table of distances."""

    @abstractmethod
    def effects(self, instruction: Instruction) -> Effects:
        """What an instruction loads, stores and adds."""

    @abstractmethod
    def cleared(self, instruction: Instruction) -> int | None:
        """The full register that becomes 0, whatever it was; None: no register is known to."""

    def is_emulated(
        self, instruction: Instruction, code: bytes, emulated: Collection[str] = ()
    ) -> bool:
        """Whether the kernel emulates it. `emulated`: the forms that passed the trial."""
        form = self.form_of(instruction, code)
        return form in self.always_emulated or form in emulated

    def is_refused(self, instruction: Instruction) -> bool:
        """Whether the kernel refuses a probe there."""
        return False

    def argument_name(self, number: int) -> str:
        """The name of the register of an argument, "" for -1."""
        return self.names[self.arguments[number]] if number >= 0 else ""

    @property
    def result_name(self) -> str:
        """The name of the register of the result."""
        return self.names[self.result]

    def readable(self, registers: Collection[int]) -> frozenset[int]:
        """Those of the registers that a probe can read."""
        return frozenset(register for register in registers if register in self.names)


X86_64: Final = "EM_X86_64"
ARM64: Final = "EM_AARCH64"
SUPPORTED: Final = {X86_64: "x86_64", ARM64: "aarch64"}
"""Machines of ELF files with their names as `uname -m` prints them."""
