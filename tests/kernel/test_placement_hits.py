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
from tlstax.collectors.recording.engine.native import Engine, Options
from tlstax.probes.definitions import load_definitions

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]
CALLS = 1000
SOURCE = r"""
#include <stdio.h>
#include <unistd.h>
const char version[] = "Placed 1";
#define BODY(name, code) asm(".text\n.globl " #name "\n.type " #name ",@function\n" #name ":\n" \
    code ".size " #name ",.-" #name "\n")
/* A return probe past the start: the stack is as on entry until the push is done. */
BODY(later, "endbr64\nmov %rdi,%rax\npush %rbx\ncall inside\npop %rbx\nret\n");
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
int later(int), jumped_by(int);
int main(void) {
    char go;
    setvbuf(stdout, NULL, _IONBF, 0);
    puts("ready");
    if (read(0, &go, 1) != 1) return 1;
    for (int i = 0; i < CALLS; i++) { later(i); jumped_by(i); }
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
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "placed.c").write_text(SOURCE)
    (tmp_path / "placed.toml").write_text(DEFINITION)
    path = tmp_path / "placed"
    flags = ["-O1", "-fcf-protection=none", f"-DCALLS={CALLS}", "-no-pie"]
    subprocess.run(["gcc", *flags, "-o", path, tmp_path / "placed.c"], check=True)
    return path


def ways(planned: Plan, boundary: str, event: str) -> list[tuple[str, str]]:
    """Kind of probe and mnemonic of each site of a boundary."""
    return [
        (site.kind, site.instruction.split()[0])
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
        engine = Engine(process.pid, planned, Options(sample_hz=0, features=features))
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

    assert [site for site in planned.sites if site.stepped] == []
    assert ways(planned, "outer", "enter") == [("uprobe", "push")]
    assert ways(planned, "outer", "exit") == [("uretprobe", "push")]
    assert ways(planned, "middle", "enter") == [("uprobe", "jne")]
    assert {kind for kind, _ in ways(planned, "middle", "exit")} == {"uprobe"}
    assert sorted(ways(planned, "inner", "enter")) == [("uprobe", "call"), ("uprobe", "jmp")]
    assert sorted(ways(planned, "inner", "exit")) == [("uprobe", "je"), ("uretprobe", "jmp")]

    counts = {phase: slot.counts[number] for number, phase in enumerate(PHASES)}
    assert {phase: count for phase, count in counts.items() if count} == {
        "command": CALLS,
        "tde": CALLS,
        "certificate": CALLS + CALLS // 2,
    }
    assert losses == {}
    # Every call crosses one entry and one exit of each boundary.
    for boundary, count in (("outer", CALLS), ("middle", CALLS), ("inner", CALLS + CALLS // 2)):
        for event in ("enter", "exit"):
            sites = zip(planned.sites, hits, strict=True)
            assert count == sum(n for s, n in sites if (s.boundary, s.event) == (boundary, event))
