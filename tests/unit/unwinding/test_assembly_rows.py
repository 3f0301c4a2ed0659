# SPDX-License-Identifier: GPL-2.0-only
"""Rows from instructions, compared with the call frame information of a file that has it.

A wrong row accuses a wrong caller; one that is missing only cuts a stack off.
"""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.unwinding import file_table
from tlstax.collectors.unwinding.assembly_code import NOWHERE
from tlstax.collectors.unwinding.assembly_rows import Code
from tlstax.collectors.unwinding.assembly_state import State, Value, rule_of
from tlstax.collectors.unwinding.frame_entries import read_entries
from tlstax.collectors.unwinding.row_format import (
    OFFSET_SHIFT,
    RBP,
    RSP,
    SAVED_SHIFT,
    Kind,
    Rule,
    RuleKind,
    Saved,
)

LIBCRYPTO = Path("/usr/lib/x86_64-linux-gnu/libcrypto.so.3")
EVERY = 16
AGREED_LEAST = 10_000
WRONG_MOST = 4
"""OpenSSL 3.0's own information is wrong in four places: bn_gather5 has none for its prologue, and
two functions say it one instruction late."""
SAME = Saved.SAME, 0
BASE = 0x1000


def follow(content: str, *entries: int) -> dict[int, Rule | None]:
    """The rows of some code, written in hexadecimal, that begins at BASE."""
    code = bytes.fromhex(content)

    def read(address: int) -> bytes:
        return code[address - BASE :]

    found = Code(read, lambda address: BASE <= address < BASE + len(code))
    return {row.address - BASE: row.rule for row in found.rows(entries or (BASE,))}


def sp(offset: int, **more: int) -> Rule:
    return Rule(RuleKind.REGISTER, RSP, offset=offset, **more)


def test_pushed_and_popped() -> None:
    rows = follow("55 48 83 ec 20 48 83 c4 20 5d c3")
    assert rows == {
        0: sp(8),
        1: sp(16),  # rbp is still the caller's
        5: sp(48),
        9: sp(16),
        10: sp(8),
        11: None,
    }


def test_rbp_is_where_it_was_pushed_once_it_holds_data() -> None:
    rows = follow("55 bd 07 00 00 00 90 5d c3")
    assert rows[6] == sp(16, saved=Saved.AT_CFA, saved_offset=-16)
    assert rows[8] == sp(8)


# mov %rsp,%rax; push %rbp; neg %rsi; lea -16(%rsp,%rsi,8),%rsp; neg %rsi; and $-1024,%rsp;
# mov %rax,8(%rsp,%rsi,8); mov $7,%ebp; nop; mov 8(%rsp,%rsi,8),%rdx; mov -8(%rdx),%rbp;
# lea (%rdx),%rsp; ret
MOVED = (
    "4889e0 55 48f7de 488d64f4f0 48f7de 4881e400fcffff 488944f408 bd07000000 90"
    " 488b54f408 488b6af8 488d22 c3"
)


def test_a_stack_that_is_moved_and_aligned_is_found_behind_the_number() -> None:
    rows = follow(MOVED)
    by_slot = Rule(RuleKind.SCALED, 4, scale=8, offset=8, add=8)
    assert rows[0x20] == by_slot._replace(saved=Saved.AT_CFA, saved_offset=-16)
    assert list(rows.values())[-2:] == [sp(8), None]


def test_a_return_that_is_not_at_its_entry_costs_the_function_its_rows() -> None:
    assert follow("55 90 c3") == {}
    assert follow(MOVED.replace("488944f408", "909090 90 90")) == {}


def test_a_way_into_what_is_no_instruction_costs_the_function_its_rows() -> None:
    assert follow("67e301 c3 06") == {}


def test_a_loop_that_moves_the_stack_loses_it_unless_a_register_has_it() -> None:
    probing = "4889e0 55 4881ec00100000 48ffce 75f4 90 488d60f8 5d c3"  # sub; dec; jnz back; nop
    rows = follow(probing)
    by_rax = Rule(RuleKind.REGISTER, 0, offset=8)
    assert by_rax in rows.values()
    without = follow(probing.replace("4889e0", "4831c0").replace("488d60f8", "90909090"))
    assert without == {}


def test_registers_that_assembly_writes_without_a_convention_are_lost_at_its_call() -> None:
    # mov %rsp,%rbp; push %rbp; call 1f; mov %rbp,%rsp; ret; 1: nop or xor %ebp,%ebp; ret
    keeps = follow("4889e5 50 e804000000 4889ec c3 6690 c3")
    assert keeps[0xC] == sp(8, saved=Saved.LOST)
    assert set(follow("4889e5 50 e804000000 4889ec c3 31ed c3")) == {0xD, 0xF, 0x10}


def test_what_no_call_frame_information_says_agrees_with_what_it_says() -> None:
    """All of libcrypto's code as if it had none, compared at each instruction."""
    with Elf(LIBCRYPTO) as elf:
        table = file_table.build(elf)
        section, text = elf.section(".eh_frame"), elf.section(".text")
        assert table is not None
        assert section is not None
        assert text is not None
        functions = read_entries(elf.content(".eh_frame"), section.address).functions
        first, last = text.address, text.address + text.size
        entries = sorted(f.start for f in functions if first <= f.start < last)[::EVERY]
        code = Code(lambda at: elf.code_at(at, last - at), lambda at: first <= at < last)
        found: Counter[str] = Counter()
        for address, state in code.followed(entries):
            if rule_of(state) is not None:
                found[judge(table, table.row(address), state)] += 1
    assert found["agrees"] >= AGREED_LEAST
    assert found["wrong"] <= WRONG_MOST, found
    assert found["another rbp"] == 0, found
    assert found["rbp lost"] <= 0.05 * found["agrees"], "after calls of what saves it"
    assert found["not comparable"] <= 0.01 * found["agrees"], found


def judge(table: file_table.FileTable, row: int, state: State) -> str:
    """Whether the CFA of a row is the one that instructions lead to."""
    kind = Kind(row >> 8 & 7)
    if kind in (Kind.SP, Kind.BP):
        register = RSP if kind == Kind.SP else RBP
        rule = Rule(RuleKind.REGISTER, register, offset=(row >> OFFSET_SHIFT & 0x1FFF) * 8)
        saved, offset = (Saved.AT_CFA, -8 * (row >> SAVED_SHIFT)) if row >> SAVED_SHIFT else SAME
    elif kind == Kind.RULE:
        rule = table.rules[row >> OFFSET_SHIFT]
        saved, offset = Saved(rule.saved), rule.saved_offset
    else:
        return "not comparable"
    base = state.stack if rule.kind == RuleKind.SCALED else state.value(rule.register)
    if base is None:
        return "not comparable"
    found: Value | None = Value(base.base, base.offset + rule.offset)
    if rule.kind == RuleKind.INDIRECT:
        found = state.slots.get((base.base, base.offset + rule.offset, NOWHERE, 1))
    elif rule.kind == RuleKind.SCALED:
        place = base.base, base.offset + rule.offset, rule.register, rule.scale
        found = state.slots.get(place)
    if found is None or found.base != 0:
        return "not comparable"
    add = rule.add if rule.kind != RuleKind.REGISTER else 0
    if found.offset + add != 0:
        return "wrong"
    ours = rule_of(state)
    assert ours is not None
    # Both are right while rbp is saved and has not changed yet.
    differs = ours.saved == saved and ours.saved_offset != offset
    differs |= ours.saved == Saved.AT_CFA and saved == Saved.SAME
    lost = ours.saved == Saved.LOST and saved == Saved.SAME
    return "another rbp" if differs else "rbp lost" if lost else "agrees"


@settings(deadline=None, max_examples=200)
@given(st.binary(min_size=1, max_size=200), st.integers(0, 20))
def test_any_bytes_are_followed_or_refused(content: bytes, second: int) -> None:
    rows = follow(content.hex(), BASE, BASE + min(second, len(content) - 1))
    assert list(rows) == sorted(rows)


def test_functions_that_call_each_other_without_end() -> None:
    calls = "e800000000" * 3 + "e8f1ffffff c3"
    assert isinstance(follow(calls), dict)
    chain = b"".join(b"\xe8\x0b\x00\x00\x00\xc3" + bytes([0x90]) * 10 for _ in range(2000))
    assert follow(chain.hex())[0] == sp(8)


@pytest.mark.parametrize("size", [1 << 16])
def test_the_work_is_bounded(size: int) -> None:
    """Conditional jumps everywhere: more blocks than are followed give no rows, not hours."""
    content = (b"\x48\x83\xec\x08\x75\xf0\x74\x10" * (size // 8)).hex()
    assert isinstance(follow(content), dict)
