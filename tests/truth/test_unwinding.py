# SPDX-License-Identifier: GPL-2.0-only
"""Exceptions, longjmp and the ends of threads pass every kind of probed function: nothing breaks.

The danger is real. With a return probe on one of the functions an exception ends the same program
by SIGABRT, and where a thread ends, the destructors above that function do not run.
"""

import platform
import re
import signal
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.capture.vocabulary import PHASES, STATES
from tlstax.collectors.host import bpf
from tlstax.collectors.host.features import HOST
from tlstax.collectors.host.trial_code import count_program, counter_map, kept
from tlstax.collectors.placement.model import Plan
from tlstax.collectors.placement.planning import plan_in_child
from tlstax.collectors.recording.programs import ledger_layout as layout
from tlstax.collectors.recording.programs.views import SlotView
from tlstax.probes.model import Level
from tlstax.tests.loader.native import Engine, Options
from tlstax.tests.safe_programs import safe_programs

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]
ROUNDS, THREADS_MAX = 10_000, 16_384
PATIENCE_S = 60
SPIN_NS = 100_000_000
IN_THE_THREAD, END_OF_THREAD = ("throw", "longjmp"), ("exit", "cancel")
# longjmp unwinds nothing: the kernel sees by the stack pointer what was left.
IS_ARM64 = platform.machine() == "aarch64"
# x86-64 single-steps a `ret`, so it is the last choice there, and arm64 simulates it.
EXITS = {
    "returns": ("un_returns", "ret"),
    "behind": ("un_behind", "ret") if IS_ARM64 else ("un_address", "nop"),
    "inside": ("un_inside", "ret" if IS_ARM64 else "nop"),
} | ({"address": ("un_address", "ret")} if IS_ARM64 else {})
UNSEEN = [] if IS_ARM64 else ["address"]
HARM = {"throw": -signal.SIGABRT, "longjmp": 0, "exit": 4, "cancel": 4}
Spawn = Callable[..., "subprocess.Popen[Any]"]


@dataclass(frozen=True)
class Ended:
    """A run of the program."""

    code: int  # negative: the signal that it ended by
    plan: Plan | None
    main: SlotView | None  # the account of its first thread
    losses: dict[str, int]


@pytest.fixture
def program(repository: Path) -> Path:
    """The compiled program; `make testprogs` builds it."""
    return repository / "tests/testprogs/bin/unwinding"


def go(process: "subprocess.Popen[Any]", until: bytes) -> bytes:
    """Let it go on, and read what it says next."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"g")
    process.stdin.flush()
    said = process.stdout.readline()
    assert said in (until, b""), said
    return bytes(said)


def run(program: Path, way: str, level: Level, spawn: Spawn) -> Ended:
    """Run the program under the engine at a level."""
    process = spawn([program, way, str(ROUNDS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    _, plan = plan_in_child(process.pid, level, program.parent.parent)
    engine = Engine(process.pid, plan, Options(slots_count=THREADS_MAX, programs=safe_programs()))
    try:
        engine.attach(dense=level >= Level.COMMAND, rare=level >= Level.HANDSHAKE)
        go(process, b"done\n")
        mine = [slot for slot in engine.maps.slots() if slot.tid == process.pid]
        losses = engine.loss_counts()
    finally:
        engine.close()
    if process.poll() is None:
        go(process, b"")
    return Ended(process.wait(PATIENCE_S), plan, mine[0] if mine else None, losses)


def test_each_function_is_seen_in_another_way(program: Path, spawn: Spawn) -> None:
    process = spawn([program, "throw", "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    _, plan = plan_in_child(process.pid, Level.RECORD, program.parent.parent)
    exits = {
        site.boundary: (site.function, site.instruction)
        for site in plan.sites
        if site.event == "exit"
    }
    assert exits == EXITS
    assert [site.boundary for site in plan.sites if site.unseen_exits] == UNSEEN
    assert {site.kind for site in plan.sites} == {"uprobe"}


@pytest.mark.parametrize(
    ("level", "way"),
    [
        *((level, way) for level in Level if level < Level.RECORD for way in ("throw", "cancel")),
        *((Level.RECORD, way) for way in (*IN_THE_THREAD, *END_OF_THREAD)),
    ],
)
def test_the_program_survives_and_its_books_are_sane(
    program: Path, level: Level, way: str, spawn: Spawn
) -> None:
    if level == Level.FLOW and not HOST.socket_events:
        pytest.skip("this kernel lacks events of sockets")
    ended = run(program, way, level, spawn)
    assert ended.code == 0
    if level < Level.RECORD:
        return
    assert ended.main is not None
    # Every call that returned is one call; those that did not are closed by the stack pointer.
    counts = dict(zip(PHASES, ended.main.counts, strict=False))
    assert {counts[phase] for phase in ("keygen", "certificate", "idle")} == {ROUNDS}
    assert ended.main.healed_count == (4 * ROUNDS if way in IN_THE_THREAD else 0)
    assert ended.losses["unmatched_exit"] == 0
    # What the program did outside of the functions is in none of their phases.
    on_cpu = {
        phase: ended.main.cells[number * layout.STATE_CELLS + STATES.index("on_cpu")]
        for number, phase in enumerate(PHASES)
    }
    assert on_cpu["background"] + on_cpu["unknown"] >= 0.95 * SPIN_NS
    assert sum(ended.main.cells) == ended.main.last_ns - ended.main.first_ns


@pytest.mark.needs("uprobe_multi")
@pytest.mark.parametrize("way", [*IN_THE_THREAD, *END_OF_THREAD])
def test_a_return_probe_would_do_harm(program: Path, way: str, spawn: Spawn) -> None:
    with Elf(program) as elf:
        (symbol,) = elf.find(re.compile("un_behind"))
        offset = elf.to_offset(symbol.address)
    assert offset is not None
    process = spawn(
        [program, way, "3"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    with ExitStack() as stack:
        code = count_program(counter_map(stack))
        loaded = bpf.load_program(bpf.ProgramType.KPROBE, code, bpf.ATTACH_UPROBE_MULTI)
        kept(stack, loaded)
        link = bpf.attach_uprobe_multi(loaded, str(program), [offset], [0], process.pid, True)
        kept(stack, link)
        go(process, b"done\n")
        if way != "throw":
            go(process, b"")
        assert process.wait(PATIENCE_S) == HARM[way]
