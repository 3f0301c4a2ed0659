# SPDX-License-Identifier: GPL-2.0-only
"""Runs the programs of call frame information: which rule applies from which address on.

Only what a stack walk needs is followed: the CFA, rbp and the return address. DWARF 5, section
6.4.2. A program's result is kept, because every second function has the same as another one.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from tlstax.collectors.unwinding.expressions import cfa_rule, register_address, sleb, uleb
from tlstax.collectors.unwinding.frame_entries import Common
from tlstax.collectors.unwinding.row_format import (
    REGISTERS_MOST,
    UNSUPPORTED,
    WORD_BYTES,
    X86_REGISTERS,
    Kind,
    Registers,
    Rule,
    RuleKind,
    Saved,
    plain_row,
    rule_row,
)

_REMEMBERED_MOST: Final = 16
_ROWS_MOST: Final = 1 << 16  # of one function
_PADDING: Final = bytes(16)  # operands at the end that look like padding
_OFFSET_MOST: Final = (1 << 31) - 1
_NEGATE_SIGNATURE: Final = 0x2D  # DW_CFA_AARCH64_negate_ra_state

# Where a register is: SAME, AT_CFA or another of Saved, a number, and an expression or b"".
_Place = tuple[int, int, bytes]
_Known = dict[tuple[int, int, bytes, _Place, _Place], int]
_UNCHANGED: Final[_Place] = (Saved.SAME, 0, b"")


class State(NamedTuple):
    """The rules in force at one address."""

    register: int = X86_REGISTERS.stack
    offset: int = 0
    expression: bytes = b""  # of the CFA, in place of register + offset
    rbp: _Place = _UNCHANGED
    ra: _Place = (Saved.AT_CFA, -WORD_BYTES, b"")
    is_signal_frame: bool = False


def rule_of(state: State, registers: Registers = X86_REGISTERS) -> Rule:
    """The rule that a state amounts to, before it is packed."""
    if registers.is_linked:
        return _linked_rule(state)
    if state.is_signal_frame:
        return _signal_rule(state)
    if state.ra != (Saved.AT_CFA, -WORD_BYTES, b""):
        return UNSUPPORTED
    if state.expression:
        found = cfa_rule(state.expression)
    else:
        found = Rule(RuleKind.REGISTER, state.register, offset=state.offset)
    most = registers.return_address
    if found is None or found.register >= most or abs(found.offset) > _OFFSET_MOST:
        return UNSUPPORTED
    kind, number, expression = state.rbp
    if expression:
        place = register_address(expression)
        if place is None or place[0] != registers.frame:
            return found._replace(saved=Saved.LOST)
        kind, number = Saved.AT_RBP, place[1]
    if abs(number) > _OFFSET_MOST or (kind == Saved.REGISTER and number >= most):
        return found._replace(saved=Saved.LOST)
    return found._replace(saved=kind, saved_offset=number)


def _linked_rule(state: State) -> Rule:
    """The same on arm64. Compilers write no expressions there; a signal frame has no rows."""
    kind, number, _ = state.ra
    place = number if kind == Saved.AT_CFA else 0
    if state.expression or state.is_signal_frame or state.register >= REGISTERS_MOST:
        return UNSUPPORTED
    if kind not in (Saved.SAME, Saved.AT_CFA) or (kind == Saved.AT_CFA and not place):
        return UNSUPPORTED
    if max(abs(state.offset), abs(place)) > _OFFSET_MOST:
        return UNSUPPORTED
    found = Rule(RuleKind.REGISTER, state.register, offset=state.offset, add=place)
    saved, at, expression = state.rbp
    if expression or saved not in (Saved.SAME, Saved.AT_CFA) or abs(at) > _OFFSET_MOST:
        return found._replace(saved=Saved.LOST)
    return found._replace(saved=saved, saved_offset=at)


def _signal_rule(state: State) -> Rule:
    """Registers that the kernel stored on the stack: the CFA is *(rsp + offset)."""
    rsp = X86_REGISTERS.stack
    cfa = cfa_rule(state.expression) if state.expression else None
    rbp, ra = register_address(state.rbp[2]), register_address(state.ra[2])
    if cfa is None or (cfa.kind, cfa.register, cfa.add) != (RuleKind.INDIRECT, rsp, 0):
        return UNSUPPORTED
    if rbp is None or ra is None or rbp[0] != rsp or ra[0] != rsp:
        return UNSUPPORTED
    return Rule(RuleKind.SIGNAL, rsp, offset=cfa.offset, add=ra[1], saved_offset=rbp[1])


class Packer:
    """Turns states into words, and keeps the rules that they refer to."""

    def __init__(self, registers: Registers = X86_REGISTERS) -> None:
        self.registers = registers
        self.rules: list[Rule] = []
        self._numbers: dict[Rule, int] = {}
        self._words: dict[State, int] = {}

    def word(self, state: State) -> int:
        """The word of a row, without address."""
        word = self._words.get(state)
        if word is None:
            word = self._words[state] = self._pack(state)
        return word

    def _pack(self, state: State) -> int:
        if state.ra[0] == Saved.LOST:
            return Kind.END << 8
        rule = rule_of(state, self.registers)
        if rule.kind == RuleKind.REGISTER:
            plain = plain_row(rule, self.registers)
            if plain is not None:
                return plain
        return self.rule_word(rule)

    def rule_word(self, rule: Rule) -> int:
        """The word that refers to a rule, without address."""
        number = self._numbers.setdefault(rule, len(self.rules))
        if number == len(self.rules):
            self.rules.append(rule)
        return rule_row(number)


class Rows(NamedTuple):
    """The rows of one function: each word applies from `start + delta` on."""

    deltas: list[int]
    words: list[int]


class Programs:
    """Runs the programs of one section. Each raises IndexError if it is damaged."""

    def __init__(self, word: Callable[[State], int], registers: Registers = X86_REGISTERS) -> None:
        """`word` packs a state."""
        self._word, self._registers = word, registers
        self._initial: dict[int, State] = {}
        self._known: tuple[_Known, _Known] = ({}, {})

    def initial(self, place: int, common: Common) -> State:
        """The state in which the functions of a CIE begin."""
        state = self._initial.get(place)
        if state is None:
            first = State(register=self._registers.stack, is_signal_frame=common.is_signal_frame)
            if self._registers.is_linked:
                first = first._replace(ra=_UNCHANGED)
            state = _run(common.program, common, first, None, {}, self._registers)
            self._initial[place] = state
        return state

    def rows(self, place: int, common: Common, program: bytes) -> Rows:
        """The rows of a function."""
        rows = Rows([], [])
        first = self.initial(place, common)
        known = self._known[first.is_signal_frame]
        _run(program, common, first, (rows, self._word), known, self._registers)
        return rows


def _run(
    program: bytes,
    common: Common,
    initial: State,
    result: tuple[Rows, Callable[[State], int]] | None,
    known: _Known,
    registers: Registers,
) -> State:
    """Run a program from an initial state; its rows are added to a result, where one is wanted.

    `known` has the words of states, without whether they are of a signal frame: packing is slow.
    """
    register, offset, expression, rbp, ra, is_signal_frame = initial
    code_alignment, data_alignment = common.code_alignment, common.data_alignment
    _, frame, return_address, is_linked = registers
    remembered: list[State] = []
    data = program + _PADDING
    position, end, begin, location = 0, len(program), 0, 0
    while position < end:
        code = data[position]
        position += 1
        low = code & 0x3F
        if 0x40 <= code < 0x80:
            location = begin + low * code_alignment
        elif 0x80 <= code < 0xC0:  # offset
            value = data[position]
            if value < 0x80:
                position += 1
            else:
                value, position = uleb(data, position)
            if low == frame:
                rbp = (Saved.AT_CFA, value * data_alignment, b"")
            elif low == return_address:
                ra = (Saved.AT_CFA, value * data_alignment, b"")
        elif code >= 0xC0:  # restore
            if low == frame:
                rbp = initial.rbp
            elif low == return_address:
                ra = initial.ra
        elif code == 0x0E:  # def_cfa_offset
            offset = data[position]
            if offset < 0x80:
                position += 1
            else:
                offset, position = uleb(data, position)
        elif code == 0x02:
            location = begin + data[position] * code_alignment
            position += 1
        elif code in (0x03, 0x04):
            size = 2 if code == 0x03 else 4
            step = int.from_bytes(data[position : position + size], "little")
            location = begin + step * code_alignment
            position += size
        elif code == 0x0A:  # remember_state
            if len(remembered) == _REMEMBERED_MOST:
                raise IndexError("too many remembered states")
            remembered.append(State(register, offset, expression, rbp, ra, is_signal_frame))
        elif code == 0x0B:  # restore_state
            register, offset, expression, rbp, ra, is_signal_frame = remembered.pop()
        elif code in (0x0C, 0x12):  # def_cfa, def_cfa_sf
            register, position = uleb(data, position)
            offset, position = _number(data, position, code == 0x12, data_alignment)
            expression = b""
        elif code == 0x0D:  # def_cfa_register
            register, position = uleb(data, position)
            expression = b""
        elif code == 0x13:  # def_cfa_offset_sf
            offset, position = _number(data, position, True, data_alignment)
        elif code == 0x0F:  # def_cfa_expression
            size, position = uleb(data, position)
            expression = data[position : position + size]
            position += size
        elif code == _NEGATE_SIGNATURE and is_linked:
            pass  # addresses are read without their signatures
        elif code:
            place = None
            name, place, position = _register_rule(code, data, position, data_alignment)
            if name == frame:
                rbp = initial.rbp if place is None else place
            elif name == return_address:
                ra = initial.ra if place is None else place
        if location != begin:
            if result is not None:
                if len(result[0].deltas) == _ROWS_MOST:
                    raise IndexError("too many rows")
                key = (register, offset, expression, rbp, ra)
                word = known.get(key)
                if word is None:
                    word = known[key] = result[1](State(*key, is_signal_frame))
                result[0].deltas.append(begin)
                result[0].words.append(word)
            begin = location
    final = State(register, offset, expression, rbp, ra, is_signal_frame)
    if position > end + len(_PADDING) or len(data) < position:
        raise IndexError("truncated")
    if result is not None:
        result[0].deltas.append(begin)
        result[0].words.append(result[1](final))
    return final


def _number(data: bytes, position: int, is_factored: bool, factor: int) -> tuple[int, int]:
    if not is_factored:
        return uleb(data, position)
    value, position = sleb(data, position)
    return value * factor, position


def _register_rule(
    code: int, data: bytes, position: int, data_alignment: int
) -> tuple[int, _Place | None, int]:
    """(register, its place, position after it) of the rarer instructions.

    The place is None if the register is as in the CIE.
    """
    if code == 0x2E:  # GNU_args_size: of no effect on the CFA
        _, position = uleb(data, position)
        return -1, None, position
    register, position = uleb(data, position)
    if code == 0x06:  # restore_extended
        return register, None, position
    if code == 0x07:  # undefined
        return register, (Saved.LOST, 0, b""), position
    if code == 0x08:  # same_value
        return register, _UNCHANGED, position
    if code == 0x09:  # register
        other, position = uleb(data, position)
        return register, (Saved.REGISTER, other, b""), position
    if code in (0x05, 0x11):  # offset_extended, _sf
        number, position = (sleb if code == 0x11 else uleb)(data, position)
        return register, (Saved.AT_CFA, number * data_alignment, b""), position
    if code in (0x10, 0x16):  # expression, val_expression
        size, position = uleb(data, position)
        text = data[position : position + size]
        if code == 0x16:  # a value, not a place: no rule has that
            return register, (Saved.AT_RBP, 0, b"\xff"), position + size
        return register, (Saved.AT_RBP, 0, text), position + size
    if code in (0x14, 0x15):  # val_offset, _sf
        _, position = (sleb if code == 0x15 else uleb)(data, position)
        return register, (Saved.AT_RBP, 0, b"\xff"), position
    raise IndexError("an instruction that is not known")
