# SPDX-License-Identifier: GPL-2.0-only
"""Where probes are put: in small programs made for it, and in the system's libraries and server."""

import re
from pathlib import Path

import pytest

from tlstax.collectors.binary.architectures import machine_of
from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.binary.field_chains import returned_fields
from tlstax.collectors.binary.instructions import decode
from tlstax.collectors.binary.machine import X86_64
from tlstax.collectors.placement.placement import ProbePoint, points_of
from tlstax.tests.unit.placement.examples import Compile, assembly
from tlstax.tests.unit.placement.test_plans import MAIN


def all_spots(
    path: Path, name: str, *events: str, argument: int = -1, returned: bool = False
) -> list[tuple[str, ProbePoint]]:
    with Elf(path) as elf:
        (symbol,) = elf.find(re.compile(name))
        return points_of(elf, symbol, events, argument, returned)


def points(path: Path, name: str, *events: str, argument: int = -1) -> dict[str, ProbePoint]:
    found = all_spots(path, name, *events, argument=argument)
    assert len({event for event, _ in found}) == len(found)
    return dict(found)


@pytest.mark.parametrize(
    ("code", "emulated"),
    [
        ("55", True),  # push %rbp
        ("4155", True),  # push %r13
        ("54", True),  # push %rsp
        ("6655", False),  # push %bp
        ("4055", False),  # push with an empty REX prefix
        ("6a01", False),  # push $1
        ("90", True),  # nop
        ("f390", False),  # pause
        ("0f1f4000", False),  # multi-byte nop: older kernels step it
        ("7405", True),  # je
        ("0f8405000000", True),  # je, near
        ("2e7405", True),  # je with a hint
        ("667405", False),  # refused by the kernel: the operand size prefix
        ("eb05", True),  # jmp
        ("e905000000", True),
        ("e805000000", True),  # call
        ("f2e905000000", True),  # bnd jmp
        ("ffe0", False),  # jmp *%rax
        ("ff2505000000", False),  # jmp *...(%rip)
        ("e305", False),  # jrcxz
        ("e205", False),  # loop
        ("c3", False),  # ret
        ("f30f1efa", False),  # endbr64
        ("4883ec18", False),  # sub $0x18,%rsp
        ("4889f8", False),  # mov %rdi,%rax
    ],
)
def test_what_the_kernel_emulates(code: str, emulated: bool) -> None:
    raw = bytes.fromhex(code)
    (instruction,) = decode(raw, 0x1000)
    assert machine_of(X86_64).is_emulated(instruction, raw) is emulated


def test_push_first_serves_entry_and_exit(compile_c: Compile) -> None:
    path = compile_c(assembly("f", "push %rbx", "mov %rdi,%rbx", "pop %rbx", "ret") + MAIN)
    found = points(path, "f", "enter", "exit")
    assert found["enter"].address == found["exit"].address
    assert (found["enter"].kind, found["exit"].kind) == ("uprobe", "uretprobe")
    assert found["enter"].emulated
    assert found["exit"].emulated
    assert found["enter"].instruction == "push %rbx"


def test_entry_skips_what_must_be_stepped(compile_c: Compile) -> None:
    source = assembly("f", "endbr64", "sub $0x18,%rsp", "test %edx,%edx", "js 1f", "1: ret")
    path = compile_c(source + MAIN)
    (point,) = points(path, "f", "enter").values()
    with Elf(path) as elf:
        (symbol,) = elf.find(re.compile("f"))
    assert point.address == symbol.address + 10
    assert point.instruction.startswith("js ")
    assert point.emulated


def test_entry_that_needs_an_argument_does_not_wait_until_it_is_gone(compile_c: Compile) -> None:
    source = assembly("f", "mov (%rdi),%rdi", "push %rbx", "pop %rbx", "ret") + MAIN
    path = compile_c(source)
    assert points(path, "f", "enter")["enter"].emulated
    (point,) = points(path, "f", "enter", argument=0).values()
    assert not point.emulated
    assert point.reason.startswith("stepped: no emulated instruction")
    assert points(path, "f", "enter", argument=1)["enter"].emulated


def test_entry_is_never_inside_a_loop(compile_c: Compile) -> None:
    source = assembly("f", "mov $5,%eax", "1: push %rbx", "pop %rbx", "dec %eax", "jne 1b", "ret")
    (point,) = points(compile_c(source + MAIN), "f", "enter").values()
    assert not point.emulated
    assert "mov" in point.instruction


def test_entry_stays_in_the_first_block(compile_c: Compile) -> None:
    source = assembly("f", "xor %eax,%eax", "ret", "push %rbx", "pop %rbx", "ret") + MAIN
    (point,) = points(compile_c(source), "f", "enter").values()
    assert point.instruction.startswith("xor")
    assert not point.emulated


def test_a_short_symbol_ends_the_search(compile_c: Compile) -> None:
    source = assembly("f", "mov %rdi,%rax", "push %rbx", "pop %rbx", "ret", size=3) + MAIN
    (point,) = points(compile_c(source), "f", "enter").values()
    assert not point.emulated


def test_tail_call_is_left_where_its_target_returns_to(compile_c: Compile) -> None:
    source = assembly("inner", "mov $1,%eax", "ret")
    source += assembly("outer", "mov %rdx,%rcx", "jmp inner")
    path = compile_c(source + MAIN)
    found = points(path, "outer", "enter", "exit")
    with Elf(path) as elf:
        (outer,) = elf.find(re.compile("outer"))
    # The stack is as on entry at the jump, so the return address can be taken there.
    assert found["enter"].address == found["exit"].address == outer.address + 3
    assert found["exit"].kind == "uretprobe"
    assert found["enter"].emulated
    assert found["exit"].emulated


def test_a_return_probe_needs_the_stack_as_on_entry(libraries: dict[str, Path]) -> None:
    found = points(libraries["libssl"], "SSL_accept", "enter", "exit")
    assert found["enter"].address == found["exit"].address
    assert found["exit"].kind == "uretprobe"
    assert found["exit"].emulated
    assert "return probe" in found["exit"].reason


PROLOGUE, EPILOGUE = ("sub $0x18,%rsp",), ("add $0x18,%rsp", "ret")


def test_exits_inside_where_the_stack_has_moved(compile_c: Compile) -> None:
    lines = (*PROLOGUE, "test %edx,%edx", "js 2f", "call *%rdi", "mov %eax,%ecx",
             "cmp %fs:0x28,%rdx", "jne 1f", "mov %ecx,%eax", *EPILOGUE, "1: ud2",
             "2: mov $3,%ecx", "jmp 3f", "3: mov %ecx,%eax", *EPILOGUE)  # fmt: skip
    path = compile_c(assembly("f", *lines) + MAIN)
    found = all_spots(path, "f", "enter", "exit", returned=True)
    assert [event for event, _ in found] == ["enter", "exit", "exit"]
    assert [point.instruction.split()[0] for _, point in found] == ["js", "jne", "jmp"]
    assert found[0][1].stack_bytes == 0x18
    assert all(point.emulated and point.kind == "uprobe" for _, point in found)
    # On the way out the value is still in ecx, and the return address lies above 0x18 bytes.
    assert [point.register for event, point in found if event == "exit"] == ["rcx", "rcx"]
    assert [point.stack_bytes for event, point in found if event == "exit"] == [0x20, 0x20]


@pytest.mark.parametrize(
    "tail",
    [
        ("call *%rdi", *EPILOGUE),  # nothing emulated behind the last call
        ("call *%rdi", "1: dec %eax", "jne 1b", *EPILOGUE),  # a loop behind it
        ("call *%rdi", "test %eax,%eax", "je 1f", "call *%rsi", "1:", *EPILOGUE),  # one way only
        ("call *%rdi", "test %eax,%eax", "je 1f", "jmp *(%rsi,%rax,8)", "1:", *EPILOGUE),  # a table
    ],
    ids=["call", "loop", "one way", "table"],
)
def test_where_exits_inside_do_not_serve(compile_c: Compile, tail: tuple[str, ...]) -> None:
    lines = (*PROLOGUE, "test %edx,%edx", "js 9f", "9:", *tail)
    found = all_spots(compile_c(assembly("f", *lines) + MAIN), "f", "enter", "exit")
    assert not any(point.emulated for _, point in found)
    assert {point.reason.partition(":")[0] for _, point in found} == {"stepped"}


def test_what_is_returned_must_be_known_at_every_exit(compile_c: Compile) -> None:
    lines = (*PROLOGUE, "test %edx,%edx", "js 1f", "1: call *%rdi", "test %eax,%eax", "je 2f",
             "2: xor %eax,%eax", *EPILOGUE)  # fmt: skip
    path = compile_c(assembly("f", *lines) + MAIN)
    assert all(point.emulated for _, point in all_spots(path, "f", "enter", "exit"))
    reading = all_spots(path, "f", "enter", "exit", returned=True)
    assert not any(point.emulated for _, point in reading)


def test_an_argument_is_followed_into_another_register(compile_c: Compile) -> None:
    lines = ("sub $8,%rsp", "mov %rdi,%rbx", "mov (%rsi),%rdi", "test %rdi,%rdi", "je 1f",
             "call *%rdi", "1: add $8,%rsp", "ret")  # fmt: skip
    (point,) = points(compile_c(assembly("f", *lines) + MAIN), "f", "enter", argument=0).values()
    assert point.instruction.startswith("je")
    assert point.register == "rbx"


def test_what_returns_at_once_may_go_around_the_entry(compile_c: Compile) -> None:
    lines = ("sub $8,%rsp", "jrcxz 1f", "push %rbx", "call *%rdi", "pop %rbx", "1: add $8,%rsp",
             "ret")  # fmt: skip
    (point,) = points(compile_c(assembly("f", *lines) + MAIN), "f", "enter").values()
    assert point.instruction == "push %rbx"
    assert "return at once" in point.reason
    bare = ("mov %rdi,%rax", "jrcxz 1f", "push %rbx", "call *%rdi", "pop %rbx", "1: ret")
    path = compile_c(assembly("f", *bare) + MAIN)
    assert all(point.emulated for point in points(path, "f", "enter", "exit").values())
    # An exit alone would be missing for the call that returned at once.
    assert not points(path, "f", "exit")["exit"].emulated


def test_code_that_does_not_disassemble_is_probed_at_its_start(compile_c: Compile) -> None:
    lines = ("mov %rdi,%rax", "test %eax,%eax", "je 1f", ".byte 0x06", "1: ret")
    (point,) = points(compile_c(assembly("f", *lines) + MAIN), "f", "enter").values()
    assert not point.emulated
    assert "does not disassemble" in point.reason
    assert points(compile_c(assembly("f", ".byte 0x06", "ret") + MAIN), "f", "enter") == {}
    jump = ("test %edi,%edi", "je 1f+1", "1: mov $0x90909090,%eax", "ret")
    middle = compile_c(assembly("f", *jump) + MAIN)
    (point,) = points(middle, "f", "enter").values()
    assert "middle of an instruction" in point.reason


@pytest.mark.parametrize(
    ("lines", "chains"),
    [
        (["mov 0x918(%rdi),%rax", "xor %edi,%edi", "ret"], {(0x918,)}),
        (["mov (%rdi),%eax", "ret"], {(0,)}),
        (
            ["mov 8(%rdi),%rax", "test %rax,%rax", "je 1f", "mov 0x2f8(%rax),%rax", "1: ret"],
            {(8,), (8, 0x2F8)},
        ),
        (["test %rdi,%rdi", "je 1f", "mov 16(%rdi),%rdi", "mov 4(%rdi),%eax", "ret",
          "1: xor %eax,%eax", "ret"], {(16, 4)}),
        (["mov 8(%rdi),%rax", "add $1,%rax", "ret"], set()),
        (["mov 8(%rsi),%rax", "ret"], set()),
        (["mov %fs:8,%rax", "ret"], set()),
        (["mov 8(%rdi),%rax", "call main", "ret"], set()),
        (["1: jmp 1b"], set()),
    ],
)  # fmt: skip
def test_fields_that_accessors_return(
    compile_c: Compile, lines: list[str], chains: set[tuple[int, ...]]
) -> None:
    with Elf(compile_c(assembly("f", *lines) + MAIN)) as elf:
        (symbol,) = elf.find(re.compile("f"))
        assert (
            returned_fields(
                machine_of(elf.machine), elf.code_at(symbol.address, symbol.size), symbol.address
            )
            == chains
        )
