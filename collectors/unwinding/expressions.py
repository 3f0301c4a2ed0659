# SPDX-License-Identifier: GPL-2.0-only
"""Recognises the DWARF expressions that compilers and linkers write into call frame information.

The kernel's programs do not evaluate expressions. The few forms in use become rules; any other
one is unsupported, and counted by whoever meets it. DWARF 5, section 2.5.
"""

from typing import Final

from tlstax.collectors.unwinding.row_format import RSP, Rule, RuleKind

BREG0: Final = 0x70
_DEREF, _CONST1U, _LIT0 = 0x06, 0x08, 0x30
_AND, _MUL, _PLUS, _PLUS_UCONST, _SHL, _GE = 0x1A, 0x1E, 0x22, 0x23, 0x24, 0x2A
_RETURN_ADDRESS_REGISTER: Final = 16
_REGISTERS: Final = 17
_OFFSET_MOST: Final = (1 << 31) - 1

Operation = tuple[int, int, int]  # operation, register or number, offset


def uleb(data: bytes, position: int) -> tuple[int, int]:
    """An unsigned LEB128 number and the position after it. IndexError at the end of the data."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise IndexError("a number of more than 64 bits")


def sleb(data: bytes, position: int) -> tuple[int, int]:
    """The same for a signed number."""
    start = position
    value, position = uleb(data, position)
    if data[position - 1] & 0x40:
        value -= 1 << 7 * (position - start)
    return value, position


def _operations(expression: bytes) -> list[Operation]:
    """The operations; LIT and CONST1U become one kind. An unknown one raises IndexError."""
    found: list[Operation] = []
    position = 0
    while position < len(expression):
        code = expression[position]
        position += 1
        if BREG0 <= code < BREG0 + _REGISTERS:
            offset, position = sleb(expression, position)
            found.append((BREG0, code - BREG0, offset))
        elif _LIT0 <= code < _LIT0 + 32:
            found.append((_LIT0, code - _LIT0, 0))
        elif code == _CONST1U:
            found.append((_LIT0, expression[position], 0))
            position += 1
        elif code == _PLUS_UCONST:
            value, position = uleb(expression, position)
            found += [(_LIT0, value, 0), (_PLUS, 0, 0)]
        elif code in (_DEREF, _AND, _MUL, _PLUS, _SHL, _GE):
            found.append((code, 0, 0))
        else:
            raise IndexError("an operation that no rule has")
    return found


def cfa_rule(expression: bytes) -> Rule | None:
    """The rule for a CFA, without that for rbp; None for a form that is not supported."""
    try:
        operations = _operations(expression)
    except IndexError:
        return None
    codes = [code for code, _, _ in operations]
    if any(abs(number) > _OFFSET_MOST for operation in operations for number in operation[1:]):
        return None
    if not operations or codes[0] != BREG0 or operations[0][1] >= _RETURN_ADDRESS_REGISTER:
        return None
    _, register, offset = operations[0]
    rest, numbers = codes[1:], [number for _, number, _ in operations[1:]]
    if not rest:
        return Rule(RuleKind.REGISTER, register, offset=offset)
    if rest == [_DEREF]:
        return Rule(RuleKind.INDIRECT, register, offset=offset)
    if rest == [_DEREF, _LIT0, _PLUS]:
        return Rule(RuleKind.INDIRECT, register, offset=offset, add=numbers[1])
    if register != RSP:
        return None
    if rest == [BREG0, _LIT0, _AND, _LIT0, _GE, _LIT0, _SHL, _PLUS]:
        pushed = numbers[0] == _RETURN_ADDRESS_REGISTER and numbers[1] == 15 and numbers[5] == 3
        is_plt = pushed and operations[1][2] == 0 and numbers[3] < 16
        return Rule(RuleKind.PLT, numbers[3], offset=offset) if is_plt else None
    return _scaled(operations, offset)


def _scaled(operations: list[Operation], offset: int) -> Rule | None:
    """*(rsp + offset + register * scale) + add: what OpenSSL's assembly code writes."""
    codes = [code for code, _, _ in operations[1:]]
    scale = 1
    if codes[:1] != [BREG0] or operations[1][1] >= _RETURN_ADDRESS_REGISTER:
        return None
    _, register, more = operations[1]
    rest = operations[2:]
    if codes[1:3] in ([_LIT0, _MUL], [_LIT0, _SHL]):
        scale = rest[0][1] if codes[2] == _MUL else 1 << min(rest[0][1], 8)
        rest = rest[2:]
    left = [code for code, _, _ in rest]
    add = rest[2][1] if left == [_PLUS, _DEREF, _LIT0, _PLUS] else 0
    if left not in ([_PLUS, _DEREF], [_PLUS, _DEREF, _LIT0, _PLUS]) or not 0 < scale < 256:
        return None
    total = offset + more * scale
    if abs(total) > _OFFSET_MOST:
        return None
    return Rule(RuleKind.SCALED, register, scale=scale, offset=total, add=add)


def register_address(expression: bytes) -> tuple[int, int] | None:
    """(register, offset) of an expression that is only a register + offset; None otherwise."""
    try:
        operations = _operations(expression)
    except IndexError:
        return None
    if len(operations) != 1 or operations[0][0] != BREG0 or abs(operations[0][2]) > _OFFSET_MOST:
        return None
    return operations[0][1], operations[0][2]
