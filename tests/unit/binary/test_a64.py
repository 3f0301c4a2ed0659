# SPDX-License-Identifier: GPL-2.0-only
"""arm64 instructions that are misread give probes that the kernel refuses, or at a wrong stack."""

from pathlib import Path

import pytest

from tlstax.collectors.binary import a64
from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.binary.import_stubs import _slot_of_arm64
from tlstax.collectors.binary.machine import FlowKind
from tlstax.tests.unit.arm64_code import BASE, program, words_of

FORMS = {
    "branch": ["b .+8", "bl .+8", "b.eq .+8", "b.hi .-4", "cbz x0, .+8", "cbnz w3, .+8",
               "tbz x1, #40, .+8", "tbnz w1, #3, .+8", "br x17", "blr x8", "ret", "ret x1"],
    "adr": ["adr x0, .+16", "adrp x3, 0"],
    "nop": ["nop"],
    "": ["mov x0, x1", "stp x29, x30, [sp, #-32]!", "ldr x0, [x1]", "sub sp, sp, #16",
         "mrs x0, tpidr_el0", "paciasp", "bti c", "xpaclri", "ldar x0, [x1]", "stlr x0, [x1]",
         "cas x0, x1, [x2]", "ldadd x0, x1, [x2]", "ldp q0, q1, [sp], #32", "dmb ish", "isb"],
    "refused": ["ldxr x0, [x1]", "stxr w2, x0, [x1]", "ldaxp x0, x1, [x2]", "stlxr w2, x0, [x1]",
                "ldr x0, .+8", "ldr q0, .+16", "ldrsw x0, .+8", "prfm pldl1keep, .+8", "svc #0",
                "brk #1", "msr tpidr_el0, x0", "msr daifset, #2", "autiasp", "yield", "wfe",
                "retaa", "braaz x1", "eret", "cpyfp [x0]!, [x1]!, x2!"],
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_what_the_kernel_does_with_an_instruction(form: str, tmp_path: Path) -> None:
    words = words_of(tmp_path, *FORMS[form])
    assert {line: a64.form_of(word) for line, word in zip(FORMS[form], words, strict=True)} == (
        dict.fromkeys(FORMS[form], form)
    )


def test_where_branches_lead(tmp_path: Path) -> None:
    lines = ("b .+8", "bl .-4", "b.ne .+64", "cbz x0, .-32", "tbnz w0, #1, .+16", "ret", "br x1",
             "blr x2", "add x0, x0, #1", "brk #0")  # fmt: skip
    code = b"".join(word.to_bytes(4, "little") for word in words_of(tmp_path, *lines))
    found = [(one.flow_control, one.near_branch_target) for one in a64.decode(code, 0x4000)]
    assert found == [
        (FlowKind.UNCONDITIONAL_BRANCH, 0x4008),
        (FlowKind.CALL, 0x4000),
        (FlowKind.CONDITIONAL_BRANCH, 0x4048),
        (FlowKind.CONDITIONAL_BRANCH, 0x400C - 32),
        (FlowKind.CONDITIONAL_BRANCH, 0x4020),
        (FlowKind.RETURN, 0),
        (FlowKind.INDIRECT_BRANCH, 0),
        (FlowKind.INDIRECT_CALL, 0),
        (FlowKind.NEXT, 0),
        (FlowKind.EXCEPTION, 0),
    ]
    assert list(a64.decode(bytes(4) + code, 0)) == []  # zeros are no code


@pytest.mark.parametrize(
    ("line", "change"),
    [
        ("sub sp, sp, #48", ("add", -48)),
        ("sub sp, sp, #1, lsl #12", ("add", -4096)),
        ("add sp, sp, #48", ("add", 48)),
        ("stp x29, x30, [sp, #-64]!", ("add", -64)),
        ("ldp x29, x30, [sp], #64", ("add", 64)),
        ("str x30, [sp, #-16]!", ("add", -16)),
        ("ldr x19, [sp], #16", ("add", 16)),
        ("stp d8, d9, [sp, #-32]!", ("add", -32)),
        ("stp q8, q9, [sp, #-64]!", ("add", -64)),
        ("ldr d8, [sp], #16", ("add", 16)),
        ("mov sp, x29", ("frame", 0)),
        ("sub sp, x29, #16", ("frame", -16)),
        ("mov sp, x3", ("lost", 0)),
        ("sub sp, sp, x3", ("lost", 0)),
        ("stp x19, x20, [sp, #16]", None),
        ("str x3, [sp, #40]", None),
        ("ldr q0, [sp, #48]", None),
        ("strb w3, [sp, #7]", None),
        ("ldur x3, [sp, #-7]", None),
        ("ldp x29, x30, [x3], #16", None),
        ("cmp sp, x3", None),
    ],
)
def test_what_moves_the_stack_pointer(
    line: str, change: tuple[str, int] | None, tmp_path: Path
) -> None:
    (word,) = words_of(tmp_path, line)
    assert a64.stack_change(word) == change


@pytest.mark.parametrize(
    ("line", "registers"),
    [
        ("mov x19, x0", {19}),
        ("ldp x19, x20, [sp, #16]", {19, 20}),
        ("ldp w1, w2, [x3], #8", {1, 2, 3}),
        ("str x0, [x1, #8]!", {1}),
        ("stp x0, x1, [sp, #16]", set()),
        ("bl .+4", {30}),
        ("cmp x0, #1", set()),
        ("cbz x0, .+4", set()),
        ("adrp x16, 0", {16}),
        ("fmov d0, x1", set()),
        ("fmov x3, d0", {3}),
        ("ldadd x0, x5, [x2]", {5}),
        ("csel x4, x0, x1, eq", {4}),
        ("paciasp", {30}),
    ],
)
def test_which_registers_are_written(line: str, registers: set[int], tmp_path: Path) -> None:
    (word,) = words_of(tmp_path, line)
    assert a64.written_registers(word) == registers


@pytest.mark.parametrize(
    ("line", "register"),
    [
        ("mov x1, #0", 1),
        ("mov w1, #0", 1),
        ("mov x2, xzr", 2),
        ("mov w2, wzr", 2),
        ("mov x1, #1", None),
        ("movz x1, #1, lsl #16", None),
        ("mov x1, x2", None),
        ("movn x1, #0", None),
    ],
)
def test_which_register_is_cleared(line: str, register: int | None, tmp_path: Path) -> None:
    (word,) = words_of(tmp_path, line)
    assert a64.cleared(word) == register


@pytest.mark.parametrize("stub_bytes", [16, 24])
def test_each_instruction_of_a_stub_has_its_name(stub_bytes: int, tmp_path: Path) -> None:
    """Samples are taken at any of them; behind the last comes the next stub."""
    stub = ["adrp x16, 0", "ldr x17, [x16, #{slot}]", "add x16, x16, #{slot}", "br x17"]
    if stub_bytes == 24:  # for branch target identification
        stub = ["bti c", *stub, "nop"]
    head = ["stp x16, x30, [sp, #-16]!", "adrp x16, 0", "ldr x17, [x16, #8]",
            "add x16, x16, #8", "br x17", "nop", "nop", "nop"]  # fmt: skip
    slots = (16, 24, 32)
    stubs = {f"s{slot}": [line.format(slot=slot) for line in stub] for slot in slots}
    with Elf(program(tmp_path, {"head": head, **stubs, "end": ["nop"]})) as elf:
        section = elf.section(".text")
        assert section is not None
        for number, slot in enumerate(slots):
            start = BASE + 32 + number * stub_bytes
            found = [
                _slot_of_arm64(elf, section, address, stub_bytes)
                for address in range(start, start + stub_bytes, 4)
            ]
            assert found == [(BASE + slot, start)] * (stub_bytes // 4)
        for address in range(BASE, BASE + 32, 4):
            found_there = _slot_of_arm64(elf, section, address, stub_bytes)
            assert found_there is None or found_there[0] == BASE + 8
