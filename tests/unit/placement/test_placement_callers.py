# SPDX-License-Identifier: GPL-2.0-only
"""Functions that are seen where they are called, and when that is refused."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tlstax.collectors.binary.instructions import ALWAYS_EMULATED
from tlstax.collectors.host.probe_costs.prices import Prices
from tlstax.collectors.placement.call_sites import RefusedError
from tlstax.collectors.placement.callers import Callers, CallerSpot, FindersOf
from tlstax.collectors.process.target import Target

Compile = Callable[..., Path]
MakeTarget = Callable[..., Target]
Find = Callable[..., list[CallerSpot]]
MAIN = "int main(void) { return 0; }"


def assembly(name: str, *lines: str) -> str:
    """C source with one function written in assembly."""
    body = "".join(f"{line}\\n" for line in lines)
    head = f".text\\n.globl {name}\\n.type {name}, @function\\n{name}:\\n"
    return f'asm("{head}{body}.size {name}, .-{name}\\n");\n'


DULL = assembly("dull", "mov (%rdi),%rax", "jmp *%rax")


@pytest.fixture
def find(target_of: MakeTarget) -> Iterator[Find]:
    """The sites around the calls of `dull`, defined in the first of some files."""
    with ExitStack() as stack:

        def run(
            *paths: Path,
            events: Sequence[str] = ("enter", "exit"),
            argument: int = -1,
            returned: bool = False,
            strays: bool = False,
            output: int = -1,
        ) -> list[CallerSpot]:
            target = target_of(*paths)
            finders = FindersOf(stack, {}, ALWAYS_EMULATED, Prices(), {})
            (symbol,) = finders.of(target.objects[0]).elf.find(re.compile("^dull$"))
            callers = Callers(target, finders)
            found, _ = callers.points(
                target.objects[0], symbol, events, argument, returned, strays, output=output
            )
            return found

        yield run


def test_the_call_and_what_follows_it(compile_c: Compile, find: Find) -> None:
    lines = ("push %rbx", "sub $16,%rsp", "call dull", "mov %eax,%ebx", "test %eax,%eax", "je 1f",
             "inc %ebx", "1: mov %ebx,%eax", "add $16,%rsp", "pop %rbx", "ret")  # fmt: skip
    path = compile_c(DULL + assembly("one", *lines) + MAIN)
    enter, leave = find(path, argument=1, returned=True)
    assert (enter.event, enter.point.instruction.split()[0]) == ("enter", "call")
    assert (enter.point.register, enter.point.stack_bytes) == ("rsi", -8)
    assert (leave.event, leave.point.instruction.split()[0]) == ("exit", "je")
    assert (leave.point.register, leave.point.stack_bytes) == ("rax", 0)
    assert {point.point.kind for point in (enter, leave)} == {"uprobe"}
    assert "the call in one: dull has no suitable" in enter.point.reason


def twice(*before_first: str) -> str:
    """C source of a function that calls `dull` for a size, as far as can be told, and again."""
    first = ("sub $24,%rsp", "lea 8(%rsp),%rsi", *before_first, "call dull", "test %eax,%eax")
    second = ("jle 9f", "lea 8(%rsp),%rsi", "call dull", "test %eax,%eax", "je 9f", "inc %ecx")
    return DULL + assembly("one", *first, *second, "9: add $24,%rsp", "ret") + MAIN


@pytest.mark.parametrize("clear", ["xor %esi,%esi", "mov $0,%esi", "xor %rsi,%rsi"])
def test_a_call_that_only_asks_for_a_size_has_no_probe(
    clear: str, compile_c: Compile, find: Find
) -> None:
    path = compile_c(twice(clear, "mov %rbx,%rdi"))
    both = find(path, strays=True)
    assert [spot.event for spot in both] == ["enter", "exit"] * 2
    enter, leave = find(path, strays=True, output=1)
    assert (enter.event, leave.event) == ("enter", "exit")
    assert enter.point.address == both[2].point.address, "the later call"
    assert "ask for a size" in enter.point.reason


@pytest.mark.parametrize(
    "lines",
    [
        ("mov %rbx,%rsi",),
        ("xor %edi,%edi",),
        ("xor %esi,%esi", "test %edx,%edx", "je 1f", "mov %rbx,%rsi", "1: nop"),
        ("xor %esi,%esi", "call dull"),
        ("xor %si,%si",),
    ],
    ids=["other", "another register", "on one way only", "before a call", "a part of it"],
)
def test_a_call_that_may_make_something_keeps_its_probes(
    lines: tuple[str, ...], compile_c: Compile, find: Find
) -> None:
    path = compile_c(twice(*lines))
    # Of two calls in a row the first one is the query: what it left in the register is not known.
    left_out = 1 if lines[-1].startswith("call") else 0
    every, kept = (find(path, strays=True, events=("enter",), output=one) for one in (-1, 1))
    assert len(kept) == len(every) - left_out


JUMPS = DULL + assembly("one", "mov %rsi,%rdi", "jmp dull")


def test_a_jump_into_it_is_left_behind_the_call_of_the_function_that_jumps(
    compile_c: Compile, find: Find
) -> None:
    calls = assembly("two", "sub $8,%rsp", "call one", "test %eax,%eax", "je 1f", "1: add $8,%rsp",
                     "ret")  # fmt: skip
    enter, leave = find(compile_c(JUMPS + calls + MAIN), strays=True)
    assert (enter.event, enter.point.function, enter.point.stack_bytes) == ("enter", "one", 0)
    assert (leave.event, leave.point.function, leave.point.stack_bytes) == ("exit", "two", 0)
    assert {enter.point.kind, leave.point.kind} == {"uprobe"}
    # Other ways through `one` cross it, too: their exits must not count as missed entries.
    assert leave.point.stray


def test_a_jump_is_refused_where_every_hit_counts(compile_c: Compile, find: Find) -> None:
    with pytest.raises(RefusedError, match="one jumps into it, and is called for other reasons"):
        find(compile_c(JUMPS + MAIN))


def test_calls_from_another_object_go_through_its_stub(
    compile_c: Compile, find: Find, tmp_path: Path
) -> None:
    library = compile_c(DULL, "-shared", "-fPIC", name="libdull.so")
    source = "int dull(void *); int main(void) { return dull(0) > 3 ? 5 : 6; }"
    program = compile_c(source, "-O0", "-ldull", f"-L{tmp_path}")
    points = find(library, program)
    assert {point.mapped.name for point in points} == {"program"}
    assert [point.event for point in points] == ["enter", "exit"]


def test_a_name_that_is_the_end_of_another_one_is_found(
    compile_c: Compile, find: Find, tmp_path: Path
) -> None:
    # The linker keeps one text for both, as for DH_compute_key and ECDH_compute_key of libcrypto.
    library = compile_c(DULL + assembly("very_dull", "ret"), "-shared", "-fPIC", name="libdull.so")
    source = (
        "int dull(void *), very_dull(void *);"
        "int main(void) { return dull(0) > 3 ? very_dull(0) : 6; }"
    )
    program = compile_c(source, "-O0", "-ldull", f"-L{tmp_path}")
    assert b"\0dull\0" not in program.read_bytes().partition(b"libdull.so")[0]
    assert len([point for point in find(library, program) if point.mapped.name == "program"]) == 2


TAKEN = "int dull(void *); int (*volatile pointer)(void *) = dull;"
LOADED = "int dull(void *); void *address(void) { return (void *)dull; }"


@pytest.mark.parametrize(
    "flags",
    [("-no-pie", "-fno-pie"), ("-pie", "-fPIE", "-Wl,-z,pack-relative-relocs")],
    ids=["fixed", "packed"],
)
@pytest.mark.parametrize("source", [TAKEN, LOADED], ids=["kept", "loaded"])
def test_an_address_is_found_without_a_relocation(
    compile_c: Compile, find: Find, source: str, flags: tuple[str, ...]
) -> None:
    with pytest.raises(RefusedError, match=r"a pointer to it|its address"):
        find(compile_c(DULL + source + MAIN, *flags))


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("", "nothing in the process calls it directly"),
        (TAKEN, "keeps a pointer to it"),
        (LOADED, "takes its address"),
        (assembly("one", "test %edi,%edi", "push %rbx", "je dull", "pop %rbx", "ret"), "jumps"),
        (assembly("one", "sub $8,%rsp", "call dull", "add $8,%rsp", "ret"), "no emulated"),
        (assembly("one", "sub $8,%rsp", "1: test %eax,%eax", "je 2f", "call dull",
                  "2: test %edx,%edx", "jne 1b", "add $8,%rsp", "ret"), "by another path"),
        (assembly("one", "sub $8,%rsp", "call dull", "xor %eax,%eax", "je 1f", "1: add $8,%rsp",
                  "ret"), "does not keep the result"),
        (assembly("one", "sub $8,%rsp", "call dull", "test %eax,%eax", "je 1f",
                  "jmp *(%rdx,%rax,8)", "1: add $8,%rsp", "ret"), "by another path"),
        ("".join(assembly(f"one{n}", "sub $8,%rsp", "call dull", "nop", "add $8,%rsp", "ret")
                 for n in range(17)), "more than 16 places"),
    ],
    ids=["none", "pointer", "address", "jcc", "no place", "join", "value", "table", "many"],
)  # fmt: skip
def test_what_is_refused(compile_c: Compile, find: Find, source: str, why: str) -> None:
    path = compile_c(DULL + source + MAIN, "-fPIE", "-pie")
    with pytest.raises(RefusedError, match=why):
        find(path, returned=True)
