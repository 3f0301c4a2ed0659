# SPDX-License-Identifier: GPL-2.0-only
"""Where probes are put in arm64 code: simulated instructions, at the right stack depth.

A call pushes nothing there. The ledger compares stack pointers as if it pushed a word.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tlstax.collectors.binary.architectures import machine_of
from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.binary.field_chains import copied_fields, returned_fields
from tlstax.collectors.binary.machine import ARM64
from tlstax.collectors.placement.call_sites import References, RefusedError
from tlstax.collectors.placement.exit_order import _at_returns
from tlstax.collectors.placement.placed import Wanted
from tlstax.collectors.placement.placement import ProbePoint, points_of
from tlstax.collectors.placement.probe_points import Finder
from tlstax.collectors.process.mappings import MappedObject, TextSegment
from tlstax.probes.model import Boundary, Level
from tlstax.tests.unit.arm64_code import BASE, assembled, program

PROLOGUE = ["stp x29, x30, [sp, #-32]!", "mov x29, sp", "str x19, [sp, #16]"]
EPILOGUE = ["ldr x19, [sp, #16]", "ldp x29, x30, [sp], #32", "ret"]


def points(
    path: Path, name: str, *events: str, argument: int = -1, returned: bool = False
) -> list[tuple[str, ProbePoint]]:
    with Elf(path) as elf:
        (symbol,) = elf.find(re.compile(name))
        return points_of(elf, symbol, events, argument, returned)


def summary(found: list[tuple[str, ProbePoint]]) -> list[tuple[str, str, str, str, int]]:
    return [
        (event, point.instruction.split()[0], point.kind, point.register, point.stack_bytes)
        for event, point in found
    ]


def test_an_entry_on_the_first_simulated_instruction_and_an_exit_on_the_return(
    tmp_path: Path,
) -> None:
    body = [*PROLOGUE, "mov x19, x0", "bl Lg", "mov w0, w19", *EPILOGUE]
    path = program(tmp_path, {"f": body, "g": ["ret"]})
    assert summary(points(path, "f", "enter", "exit", argument=0, returned=True)) == [
        ("enter", "bl", "uprobe", "x0", 32 - 8),
        ("exit", "ret", "uprobe", "x0", 0),
    ]


def test_an_argument_is_read_where_it_was_moved_to(tmp_path: Path) -> None:
    body = [*PROLOGUE, "mov x19, x1", "mov x1, #7", "cbz x0, 1f", "bl Lg", "1:", *EPILOGUE]
    path = program(tmp_path, {"f": body, "g": ["ret"]})
    ((_, point),) = points(path, "f", "enter", argument=1)
    assert (point.instruction.split()[0], point.register) == ("cbz", "x19")


def test_a_function_that_begins_with_a_simulated_instruction(tmp_path: Path) -> None:
    path = program(tmp_path, {"f": ["cbz x0, 1f", "ldr w0, [x0]", "1:", "ret"]})
    assert summary(points(path, "f", "enter", "exit", returned=True))[0] == (
        "enter", "cbz", "uprobe", "", -8,
    )  # fmt: skip


def test_no_return_probe_behind_the_first_instruction(tmp_path: Path) -> None:
    """x30 may be signed or saved by then."""
    body = ["paciasp", "cbz x0, 1f", *PROLOGUE, "1:", "br x3"]
    path = program(tmp_path, {"f": body})
    found = points(path, "f", "enter", "exit")
    assert [(p.kind, p.address) for e, p in found if e == "exit"] == [("uretprobe", BASE)]


def test_a_function_whose_first_instruction_the_kernel_refuses(tmp_path: Path) -> None:
    path = program(tmp_path, {"f": ["ldxr x1, [x0]", "add x1, x1, #1", "brk #1"]})
    assert points(path, "f", "enter") == []


def test_the_stack_depth_after_a_frame_of_variable_size(tmp_path: Path) -> None:
    body = [*PROLOGUE, "sub sp, sp, x1", "bl Lg", "mov sp, x29", *EPILOGUE]
    path = program(tmp_path, {"f": body, "g": ["ret"]})
    with Elf(path) as elf:
        (symbol,) = elf.find(re.compile("f"))
        flow = Finder(elf).flow(symbol)
    depths = [flow.depth_bytes[BASE + 4 * number] for number in range(9)]
    assert depths == [0, 32, 32, 32, None, None, 32, 32, 0]


@pytest.mark.parametrize(
    ("lines", "depth"),
    [
        (["mov x13, #4432", "sub sp, sp, x13"], 32 + 4432),
        (["mov x12, #0x1230", "movk x12, #1, lsl #16", "sub sp, sp, x12"], 32 + 0x11230),
        (["mov x13, #4432", "mov x13, x0", "sub sp, sp, x13"], None),
        (["mov x13, #4432", "bl Lg", "sub sp, sp, x13"], None),
        (["mov x13, #4432", "cbz x0, 1f", "mov x13, #16", "1:", "sub sp, sp, x13"], None),
    ],
)
def test_the_stack_depth_of_a_frame_that_a_register_takes(
    tmp_path: Path, lines: list[str], depth: int | None
) -> None:
    """Frames above 4 KB: the number is in a register, if nothing else has written it."""
    body = [*PROLOGUE, *lines, "bl Lg", "mov sp, x29", *EPILOGUE]
    path = program(tmp_path, {"f": body, "g": ["ret"]})
    with Elf(path) as elf:
        (symbol,) = elf.find(re.compile("f"))
        flow = Finder(elf).flow(symbol)
    assert flow.depth_bytes[max(flow.calls)] == depth


def test_a_tail_call_and_a_jump_through_a_table(tmp_path: Path) -> None:
    table = ["adr x2, 1f", "add x2, x2, w1, sxth #2", "br x2", "1:", "ret"]
    path = program(tmp_path, {"f": ["b Lh"], "g": table, "h": ["ret"]})
    with Elf(path) as elf:
        finder = Finder(elf)
        flows = {symbol.name: finder.flow(symbol) for symbol in elf.find(re.compile("[fg]"))}
    assert list(flows["f"].leaves.values()) == ["tail call"]
    assert flows["g"].open_ends == {BASE + 12}


def test_calls_of_a_function_and_its_address(tmp_path: Path) -> None:
    functions = {
        "f": ["ret"],
        "calls": ["bl Lf", "b.eq Lf", "cbnz x0, Lf", "b Lf"],
        "g": ["ret"],
        "takes": ["adr x0, Lg", "ret"],
    }
    path = program(tmp_path, functions)
    with Elf(path) as elf:
        references = References(Finder(elf))
        assert references.calls_of("f", BASE) == {BASE + 4 * number for number in range(1, 5)}
        try:
            references.calls_of("g", BASE + 20)
        except RefusedError as refused:
            why = str(refused)
    assert "takes its address" in why


def test_fields_that_accessors_return_and_setters_copy(tmp_path: Path) -> None:
    machine = machine_of(ARM64)
    accessors: Mapping[tuple[str, ...], set[tuple[int, ...]]] = {
        ("ldr x0, [x0, #2328]", "ret"): {(2328,)},
        ("ldr x1, [x0, #8]", "ldr w0, [x1, #64]", "ret"): {(8, 64)},
        ("cbz x0, 1f", "ldr x0, [x0, #16]", "ret", "1:", "mov x0, #0", "ret"): {(16,)},
        ("add x0, x0, #32", "ldr x0, [x0, #8]", "ret"): {(40,)},
        ("stp x29, x30, [sp, #-16]!", "ldr x0, [x0, #8]", "ldp x29, x30, [sp], #16", "ret"): {(8,)},
        ("bl .", "ret"): set(),
    }
    for lines, fields in accessors.items():
        assert returned_fields(machine, assembled(tmp_path, *lines), 0) == fields, lines
    setter = ("ldr x1, [x0, #8]", "ldr x1, [x1, #24]", "str x1, [x0, #48]", "ret")
    assert copied_fields(machine, assembled(tmp_path, *setter), 0) == {((8, 24), 48)}


RARE = Boundary("own", "phase", (), "connect", "-", Level.HANDSHAKE)


def exits_at_returns(path: Path) -> list[ProbePoint]:
    with Elf(path) as elf:
        (symbol,) = elf.find(re.compile("f"))
        segment = TextSegment(BASE, BASE + 0x1000, BASE)
        mapped = MappedObject(str(path), "", "0:0", 1, "", False, (segment,))
        wanted = Wanted(RARE, "server", mapped, Finder(elf), symbol)
        return [probes.point for probes in _at_returns(wanted) if probes.event == "exit"]


def test_returns_that_are_simulated_are_not_called_single_stepped(tmp_path: Path) -> None:
    body = [*PROLOGUE, "cbz x0, 1f", "bl Lg", "1:", *EPILOGUE]
    (point,) = exits_at_returns(program(tmp_path, {"f": body, "g": ["ret"]}))
    assert (point.instruction, point.emulated) == ("ret", True)
    assert "single-stepped" not in point.reason
    assert point.reason.startswith("one of its 1 returns")


def test_no_probe_on_a_return_that_the_kernel_refuses(tmp_path: Path) -> None:
    body = ["paciasp", *PROLOGUE, "cbz x0, 1f", "bl Lg", "1:", *EPILOGUE[:-1], "retaa"]
    with pytest.raises(RefusedError, match="the kernel refuses a probe on one of its returns"):
        exits_at_returns(program(tmp_path, {"f": body, "g": ["ret"]}))
