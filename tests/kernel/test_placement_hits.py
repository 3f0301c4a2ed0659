# SPDX-License-Identifier: GPL-2.0-only
"""Every kind of placement under the engine: each call is one entry and one exit, nothing is healed.

The functions are written in assembly, so that each has just the instructions that lead to one kind
of placement. They nest, so a stack pointer that is off by a word would be seen as a missed exit.
"""

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tlstax.collectors.capture.vocabulary import PHASES
from tlstax.collectors.host.features import HOST, Feature
from tlstax.collectors.host.settings import LackError
from tlstax.collectors.placement.model import Plan
from tlstax.collectors.placement.placement import plan
from tlstax.collectors.process.target import open_target
from tlstax.probes.definitions import load_definitions
from tlstax.tests.loader.native import Engine, Options
from tlstax.tests.safe_programs import safe_programs

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]
CALLS = 1000
SOURCE = r"""
#include <stdio.h>
#include <unistd.h>
const char version[] = "Placed 1";
#define BODY(name, code) asm(".text\n.globl " #name "\n.type " #name ",@function\n" #name ":\n" \
    code ".size " #name ",.-" #name "\n")
/* Past its start; nothing emulated behind its call, so its end is seen behind its own call. */
BODY(later, "endbr64\nmov %rdi,%rax\npush %rbx\ncall inside\npop %rbx\nret\n");
/* One way out ends with a call: of the jump before the other one only one direction leads out. */
BODY(parting, "push %rbx\nmov %rdi,%rbx\ncall empty\ntest $1,%bl\njne 1f\ncall empty\nnop\n"
    "1: mov %ebx,%eax\npop %rbx\nret\n");
BODY(empty, "mov %edi,%eax\nret\n");
/* Called through a pointer only, with nothing emulated behind its last call: its returns. */
BODY(pointed, "push %rbx\ncall parting\npop %rbx\ntest $4,%al\nmov $1,%eax\nret\n");
/* The same, but called too often: its end is seen by its return address. */
BODY(frequent, "push %rbx\ncall parting\npop %rbx\nret\n");
/* Exits inside: the stack moves first. One way out has no call behind its jump, one returns. */
BODY(inside, "sub $0x28,%rsp\ntest $1,%edi\njne 3f\ncall called_by\ntest %eax,%eax\njne 2f\n"
    "mov $1,%eax\nadd $0x28,%rsp\nret\n2: add $0x28,%rsp\nmov $2,%eax\nret\n"
    "3: nop\nmov $4,%eax\nadd $0x28,%rsp\nret\n");
/* Nothing emulated at all: seen where it is called, and where it is jumped to. */
BODY(dull, "mov target(%rip),%rax\njmp *%rax\n");
BODY(called_by, "sub $8,%rsp\ncall dull\ntest %eax,%eax\nje 1f\nmov $3,%eax\n"
    "1: add $8,%rsp\nret\n");
BODY(jumped_by, "mov %rdi,%rax\njmp dull\n");
int work(int a) { return a + 1; }
int (*target)(int) = work;
int later(int), jumped_by(int), pointed(int), frequent(int), empty(int);
int (*volatile rare_pointer)(int) = pointed;
int (*volatile pointer)(int) = frequent;
int main(void) {
    char go;
    setvbuf(stdout, NULL, _IONBF, 0);
    puts("ready");
    if (read(0, &go, 1) != 1) return 1;
    for (int i = 0; i < CALLS; i++) {
        if (later(i) > 5) puts("never");
        if (jumped_by(i) > CALLS) puts("never");
        rare_pointer(i);
        pointer(i);
        empty(i);
        usleep(1);
    }
    puts("done");
    return read(0, &go, 1) != 1;
}
"""
DEFINITION = """
id = "placed"
kind = "server"
name = "Placed"
[detect]
objects = ["placed"]
symbols = ["called_by"]
version = { text = "Placed ", pattern = 'Placed \\d+' }
[[boundary]]
id = "outer"
action = "phase"
phase = "command"
level = "command"
functions = ["later"]
missing = "-"
[[boundary]]
id = "middle"
action = "phase"
phase = "tde"
level = "command"
functions = ["inside"]
missing = "-"
[[boundary]]
id = "inner"
action = "phase"
phase = "certificate"
level = "command"
functions = ["dull"]
missing = "-"
[[boundary]]
id = "directions"
action = "phase"
phase = "keygen"
level = "command"
functions = ["parting"]
missing = "-"
[[boundary]]
id = "returns"
action = "phase"
phase = "background"
level = "command"
functions = ["pointed"]
missing = "-"
[[boundary]]
id = "address"
action = "phase"
phase = "idle"
level = "command"
functions = ["frequent"]
missing = "-"
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "placed.c").write_text(SOURCE)
    (tmp_path / "placed.toml").write_text(DEFINITION)
    path = tmp_path / "placed"
    flags = ["-O1", "-fcf-protection=none", f"-DCALLS={CALLS}", "-no-pie"]
    subprocess.run(["gcc", *flags, "-o", path, tmp_path / "placed.c"], check=True)
    return path


def ways(planned: Plan, boundary: str, event: str) -> list[str]:
    """The mnemonic of each site of a boundary."""
    return [
        site.instruction.split()[0]
        for site in planned.sites
        if (site.boundary, site.event) == (boundary, event)
    ]


def refused() -> str:
    """The trial of uprobe_multi on a kernel without it."""
    raise LackError


@pytest.mark.parametrize("multi", [True, False], ids=["multi link", "perf events"])
def test_each_call_is_one_entry_and_one_exit(
    program: Path,
    tmp_path: Path,
    real_losses: Callable[..., dict[str, int]],
    multi: bool,
) -> None:
    features = HOST if multi else replace(HOST, uprobe_multi=Feature(refused))
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        target = open_target(process.pid)
        planned = plan(target, load_definitions(tmp_path))
        engine = Engine(
            process.pid, planned, Options(sample_hz=0, features=features, programs=safe_programs())
        )
        try:
            engine.attach()
            process.stdin.write(b"g")
            process.stdin.flush()
            assert process.stdout.readline() == b"done\n"
            (slot,) = [slot for slot in engine.maps.slots() if slot.tid == process.pid]
            losses = real_losses(engine.loss_counts())
            hits = engine.site_hits()
        finally:
            engine.close()
            process.stdin.write(b"x")
            process.stdin.flush()

    assert {site.kind for site in planned.sites} == {"uprobe"}
    assert [site.boundary for site in planned.sites if site.stepped] == ["returns"]
    assert ways(planned, "outer", "enter") == ["push"]
    assert {site.function for site in planned.sites if site.boundary == "outer"} == {
        "later",
        "main",
    }
    assert ways(planned, "middle", "enter") == ["jne"]
    assert sorted(ways(planned, "inner", "enter")) == ["call", "jmp"]
    assert ways(planned, "inner", "exit")[0] == "je"
    assert ways(planned, "directions", "exit") == ["jne", "nop"]
    assert ways(planned, "returns", "exit") == ["ret"]
    assert ways(planned, "address", "exit") == []

    counts = {phase: slot.counts[number] for number, phase in enumerate(PHASES)}
    assert {phase: count for phase, count in counts.items() if count} == {
        "command": CALLS,
        "tde": CALLS,
        "certificate": CALLS + CALLS // 2,
        "keygen": 2 * CALLS,
        "background": CALLS,
        "idle": CALLS,
    }
    assert losses == {}
    # Every call crosses one entry and one exit of each boundary that has any.
    expected = {
        "outer": CALLS,
        "middle": CALLS,
        "inner": CALLS + CALLS // 2,
        "directions": 2 * CALLS,
        "returns": CALLS,
    }
    for boundary, count in expected.items():
        for event in ("enter", "exit"):
            sites = zip(planned.sites, hits, strict=True)
            assert count == sum(n for s, n in sites if (s.boundary, s.event) == (boundary, event))
