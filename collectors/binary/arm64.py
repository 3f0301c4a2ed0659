# SPDX-License-Identifier: GPL-2.0-only
"""arm64 for placement: a call pushes nothing and leaves the return address in x30."""

from collections.abc import Collection, Iterator, Mapping

from tlstax.collectors.binary import a64
from tlstax.collectors.binary.machine import (
    ARM64,
    Assignment,
    Depth,
    Effects,
    Instruction,
    Machine,
    Store,
    TrialForm,
)


class Arm64(Machine):
    """arm64."""

    name = ARM64
    arguments = tuple(range(8))
    result = 0
    stack = a64.SP
    # A cookie has room for 16: x0 to x7, which hold arguments, and x19 to x26, which keep them.
    names: Mapping[int, str] = {number: f"x{number}" for number in (*range(8), *range(19, 27))}
    callee_saved = a64.CALLEE_SAVED
    entry_bytes = -8
    always_emulated = a64.ALWAYS_SIMULATED
    trial_forms: Mapping[str, TrialForm] = {
        "nop": TrialForm(a64.NOP.to_bytes(4, "little"), a64.NOP.to_bytes(4, "little"))
    }
    keeps_return_address = True
    jump_slot, global_data, relative = 1026, 1025, 1027

    def decode(self, code: bytes, address: int) -> Iterator[Instruction]:
        """See Machine."""
        return a64.decode(code, address)

    def first(self, code: bytes, address: int) -> Instruction | None:
        """See Machine."""
        return next(a64.decode(code[: a64.WORD_BYTES], address), None)

    def form_of(self, instruction: Instruction, code: bytes) -> str:
        """See Machine."""
        return a64.form_of(instruction.word)

    def text_of(self, instruction: Instruction) -> str:
        """See Machine."""
        return a64.text_of(instruction)

    def written_registers(self, instruction: Instruction) -> Collection[int]:
        """See Machine."""
        return a64.written_registers(instruction.word)

    def copied(self, instruction: Instruction) -> tuple[int, int] | None:
        """See Machine."""
        return a64.copied(instruction.word)

    def copies_whole(self, instruction: Instruction) -> bool:
        """See Machine."""
        return bool(instruction.word >> 31)

    def moved(self, instruction: Instruction, depth: Depth) -> Depth:
        """See Machine."""
        stack, frame, number = depth
        change = a64.stack_change(instruction.word)
        by_register = a64.stack_by_register(instruction.word)
        if by_register and number and by_register[1] == number[0]:
            change = "add", by_register[0] * number[1]
        number = a64.number_set(instruction.word, number)
        if (above := a64.frame_set(instruction.word)) is not None:
            frame = None if stack is None else stack - above
        elif a64.FRAME in a64.written_registers(instruction.word):
            frame = None
        if change is None:
            return Depth(stack, frame, number)
        kind, by = change
        base = {"add": stack, "frame": depth.frame}.get(kind)
        return Depth(None if base is None else base - by, frame, number)

    def is_table_jump(self, instruction: Instruction, code: bytes) -> bool:
        """See Machine."""
        return False

    def computes_case(self, instruction: Instruction) -> bool:
        """See Machine."""
        return a64.computes_case(instruction.word)

    def effects(self, instruction: Instruction) -> Effects:
        """See Machine."""
        word = instruction.word
        if (address := a64.address_parts(word, instruction.ip)) is not None:
            return Effects((), (Assignment(word & 31, False, -1, address),))
        if (added := a64.added_immediate(word)) is not None:
            return Effects((), (Assignment(added[0], False, added[1], added[2]),))
        if (copied := a64.copied(word)) is not None:
            return Effects((), (Assignment(copied[0], False, copied[1], 0),))
        access = a64.access_of(word)
        if access is None or access.size < 4:
            return Effects()
        places = [
            (register, access.offset + number * access.size)
            for number, register in enumerate(access.registers)
        ]
        if not access.load:
            # What is added first also moves the place.
            stores = tuple(Store(access.base, at, r) for r, at in places)
            return Effects(stores, _moved_base(access))
        loads = tuple(Assignment(r, True, access.base, at) for r, at in places if r != a64.ZERO)
        return Effects((), (*_moved_base(access), *loads))

    def cleared(self, instruction: Instruction) -> int | None:
        """See Machine."""
        return a64.cleared(instruction.word)

    def is_refused(self, instruction: Instruction) -> bool:
        """See Machine."""
        return a64.form_of(instruction.word) == "refused"


def _moved_base(access: a64.Access) -> tuple[Assignment, ...]:
    if not access.moved:
        return ()
    return (Assignment(access.base, False, access.base, access.moved),)
