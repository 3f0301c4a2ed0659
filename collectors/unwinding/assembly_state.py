# SPDX-License-Identifier: GPL-2.0-only
"""What is known of the stack before an instruction, and the rule that follows from it.

Addresses on the stack are a base and an offset. One base is the caller's stack pointer; where a
stack pointer is moved by an amount that nobody knows (aligned, or by the size of a number), its
new value is a base of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tlstax.collectors.unwinding.assembly_code import NOWHERE, Act, Effect
from tlstax.collectors.unwinding.row_format import (
    RBP,
    RSP,
    WORD_BYTES,
    Rule,
    RuleKind,
    Saved,
)

OFFSET_MOST: Final = 1 << 22


class Value(NamedTuple):
    """An address on the stack: so far above a base."""

    base: int
    offset: int


AT_CFA: Final = 0
"""The base that is the caller's stack pointer after the return."""
CALLERS_RBP: Final = Value(-1, 0)
RETURNING: Final = Value(AT_CFA, -WORD_BYTES)
"""The stack pointer at an entry and at a return."""
Slot = tuple[int, int, int, int]  # base, offset, register that is added times a factor


@dataclass
class State:
    """What is known before an instruction."""

    stack: Value = RETURNING
    registers: dict[int, Value] = field(default_factory=lambda: {RBP: CALLERS_RBP})
    slots: dict[Slot, Value] = field(default_factory=dict)

    def copy(self) -> "State":
        """Another one that is the same."""
        return State(self.stack, dict(self.registers), dict(self.slots))

    def value(self, register: int) -> Value | None:
        """What a register holds, if it is known."""
        return self.stack if register == RSP else self.registers.get(register)

    def assign(self, register: int, value: Value | None, base: int) -> None:
        """Give a register a value; an unknown stack pointer becomes a base."""
        if register == RSP:
            if value is None or value == CALLERS_RBP:
                self.forget_base(base)
                value = Value(base, 0)
            self.stack = value
            return
        if value is None:
            self.registers.pop(register, None)
        else:
            self.registers[register] = value
        for slot in [each for each in self.slots if each[2] == register]:
            del self.slots[slot]

    def forget_base(self, base: int) -> None:
        """What was relative to it: it is about to be another address."""
        self.registers = {r: v for r, v in self.registers.items() if v.base != base}
        self.slots = {s: v for s, v in self.slots.items() if base not in (s[0], v.base)}

    def place(self, effect: Effect) -> Slot | None:
        """The slot that an instruction names; None if it is not known to be on the stack."""
        base = self.value(effect.base)
        if base is None or base == CALLERS_RBP:
            return None
        scale = effect.scale if effect.scaled != NOWHERE else 1
        return base.base, base.offset + effect.offset, effect.scaled, scale

    def store(self, effect: Effect) -> None:
        """A store. One to an unknown place is not taken to change what the function saved."""
        slot, value = self.place(effect), self.value(effect.source)
        if slot is None:
            return
        base, offset, index, _ = slot
        if index == NOWHERE:
            end = offset + effect.size
            for other in list(self.slots):
                if other[0] == base and other[2] == NOWHERE and offset - 8 < other[1] < end:
                    del self.slots[other]
        self.slots.pop(slot, None)
        if value is not None:
            self.slots[slot] = value

    def apply(self, effect: Effect, address: int) -> None:
        """One effect of the instruction at an address."""
        act, to = effect.act, effect.to
        if act == Act.STORE:
            self.store(effect)
            return
        if act == Act.SWAP:
            one, other = self.value(to), self.value(effect.source)
            self.assign(effect.source, one, address)
            self.assign(to, other, address)
            return
        value = None
        if act == Act.SHIFT:
            value = _moved(self.value(to), effect.offset)
        elif act == Act.COPY:
            value = _moved(self.value(effect.source), effect.offset)
        elif act == Act.LOAD:
            slot = self.place(effect)
            value = self.slots.get(slot) if slot else None
        elif act == Act.RENEW:
            source = self.value(effect.source)
            if source is not None and source != CALLERS_RBP:
                self.forget_base(address)
                value = Value(address, 0)
        self.assign(to, value, address)


def meeting(states: Sequence[State], base: int, is_new_base: bool) -> State:
    """What holds in all of them; with `is_new_base` their stack pointers are taken to differ."""
    first, *others = (_rebased(each, base) if is_new_base else each for each in states)
    met = first.copy()
    for other in others:
        met.registers = dict(met.registers.items() & other.registers.items())
        met.slots = dict(met.slots.items() & other.slots.items())
    return met


def _rebased(state: State, base: int) -> State:
    """The same with the stack pointer as a base, and what is known relative to it."""
    found, before = state.copy(), state.stack
    found.forget_base(base)
    found.stack = Value(base, 0)
    if before.base == base:
        return found
    for (old, offset, index, scale), value in list(found.slots.items()):
        if old == before.base:
            found.slots[base, offset - before.offset, index, scale] = value
    for register, value in found.registers.items():
        if value.base == before.base != AT_CFA:
            found.registers[register] = Value(base, value.offset - before.offset)
    return found


def _moved(value: Value | None, by: int) -> Value | None:
    if value is None or not by:
        return value
    moved = value.offset + by
    return None if value == CALLERS_RBP or abs(moved) > OFFSET_MOST else Value(value.base, moved)


# ---- the rule of a state ----


def rule_of(state: State) -> Rule | None:
    """How to find the caller; None if it is not known."""
    found = _from(RSP, state.stack, state) or _from_registers(state)
    return found and _with_rbp(found, state)


def _from(register: int, value: Value, state: State) -> Rule | None:
    """The CFA from a register with this value, or from what is stored relative to it."""
    if value.base == AT_CFA:
        return Rule(RuleKind.REGISTER, register, offset=-value.offset)
    for (base, offset, index, scale), saved in sorted(state.slots.items()):
        if base != value.base or saved.base != AT_CFA:
            continue
        place = offset - value.offset
        if index == NOWHERE:
            return Rule(RuleKind.INDIRECT, register, offset=place, add=-saved.offset)
        if register == RSP:
            add = -saved.offset
            return Rule(RuleKind.SCALED, index, scale=scale, offset=place, add=add)
    return None


def _from_registers(state: State) -> Rule | None:
    for register, value in sorted(state.registers.items(), key=lambda each: each[0] != RBP):
        if value != CALLERS_RBP:
            found = _from(register, value, state)
            if found:
                return found
    return None


def _with_rbp(rule: Rule, state: State) -> Rule:
    """With where the caller's rbp is."""
    if state.registers.get(RBP) == CALLERS_RBP:
        return rule
    places = [
        offset
        for (base, offset, index, _), value in state.slots.items()
        if value == CALLERS_RBP and base == AT_CFA and index == NOWHERE
    ]
    if places:  # the uppermost: others may be below the stack pointer by now
        return rule._replace(saved=Saved.AT_CFA, saved_offset=max(places))
    for register, value in state.registers.items():
        if value == CALLERS_RBP:
            return rule._replace(saved=Saved.REGISTER, saved_offset=register)
    return rule._replace(saved=Saved.LOST)
