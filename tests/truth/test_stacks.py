# SPDX-License-Identifier: GPL-2.0-only
"""Stacks of a program that says what calls what: expected frames exactly, none more, none less.

A wrong caller in a flame graph accuses the wrong function; a missing one hides who asked.
"""

import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tlstax.collectors.placement.planning import plan_in_child
from tlstax.collectors.preflight.safety import Safety
from tlstax.collectors.process.symbols import Symbolizer
from tlstax.collectors.recording.stream.plan_file import plan_file_text
from tlstax.probes.model import Level
from tlstax.tests.safe_programs import is_guarded
from tlstax.tests.truth.by_recorder import StackRecorder

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]
SPIN_MS, HZ, SAMPLES_LEAST = 400, 499, 10
LATER_MS = 1800
"""Until the recorder knows of new code, and longer: rows that it cannot find are remembered."""
WAITED_S = 0.2
NOTICED_S = 1.2  # the recorder looks for new code at most once a second
THREAD = ["st_run", "thread"]
HELD = ["st_spin", "st_hold"]
STACKS = {
    "plain": [*HELD, "st_plain", *THREAD],
    "recursion": [*HELD, *["st_recursive"] * 100, *THREAD],
    "tail": [*HELD, "st_tail_end", "st_tail", *THREAD],
    "alloca": [*HELD, "st_alloca", *THREAD],
    "aligned": [*HELD, "st_alloca", "st_aligned", *THREAD],
    "counter": [*HELD, "st_counter", *THREAD],
    "leaf": ["st_bare_leaf", "st_leaf", *THREAD],
    "frame": [*HELD, "st_hold_bp", "st_bare_frame", "st_frame", *THREAD],
    "moved": ["st_bare_moved", "st_moved", *THREAD],
    "caller": [*HELD, "st_bare_caller", "st_caller", *THREAD],
}
BELOW_SIGNAL = ["st_signal", *THREAD]
# What glibc begins a thread with, and calls "thread" from: with and without names.
BEGINS = {"start_thread", "__GI___clone3", "__clone3", "clone3"}
Spawn = Callable[..., "subprocess.Popen[Any]"]
Stack = tuple[str, ...]
Stacks = tuple[Counter[Stack], dict[str, int], Counter[Stack]]
Record = Callable[[str], Stacks]


@pytest.fixture
def program(repository: Path) -> Path:
    """The compiled program; `make testprogs` builds it."""
    return repository / "tests/testprogs/bin/stacks"


@pytest.fixture
def record(program: Path, spawn: Spawn, tmp_path: Path) -> Callable[[str], Stacks]:
    """Record a kind of stacks."""
    return lambda kind: recorded(program, kind, spawn, folder=tmp_path)


def recorded(
    program: Path, kind: str, spawn: Spawn, tables: bool = True, *, folder: Path
) -> tuple[Counter[Stack], dict[str, int], Counter[Stack]]:
    """Sampled stacks of a kind, innermost first, counts of the walks, stacks of its waits."""
    spin_ms = LATER_MS if kind == "later" else SPIN_MS
    process = spawn([program, kind, str(spin_ms)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    target, plan = plan_in_child(process.pid, Level.RECORD, program.parent.parent)
    symbolizer = Symbolizer(target)
    text = plan_file_text(target, plan, Safety(guarded=is_guarded()))
    engine = StackRecorder(process.pid, text, folder, HZ, spawn, tables=tables)
    try:
        engine.attach()
        process.stdin.write(b"g")
        process.stdin.flush()
        if kind == "later":
            assert process.stdout.readline() == b"opened\n"
            time.sleep(NOTICED_S)
            engine.keep_up()
            engine.maps.samples()
            process.stdin.write(b"g")
            process.stdin.flush()
        assert process.stdout.readline() == b"done\n"
        time.sleep(WAITED_S)  # until it waits again
        process.stdin.write(b"g")
        process.stdin.flush()
        process.wait(30)
        engine.finish()

        def named(leaf: int, stack: int) -> Stack:
            addresses = [leaf] if leaf else []
            if stack >= 0:
                addresses += engine.stack_addresses(stack)
            return tuple(
                symbolizer.user(address - (depth > 0)).symbol
                for depth, address in enumerate(addresses)
            )

        samples: Counter[Stack] = Counter()
        for key, count in engine.maps.samples():
            samples[named(key.user_ip, key.user_stack)] += count
        waits: Counter[Stack] = Counter()
        for wait, value in engine.maps.waits():
            waits[named(0, wait.user_stack)] += value.wait_count
        return samples, engine.walker.counts(), waits
    finally:
        engine.close()
        symbolizer.close()


def without_start(stack: Stack) -> list[str]:
    """The stack up to "thread"; all of it unless glibc's two functions are below."""
    begins = [name for name in stack[-2:] if name in BEGINS or name.startswith("[libc+")]
    return list(stack[:-2] if len(begins) == 2 else stack)


def held(samples: Counter[Stack], leaf: str) -> Counter[Stack]:
    """The stacks whose innermost function is `leaf`."""
    return Counter({stack: n for stack, n in samples.items() if stack and stack[0] == leaf})


@pytest.mark.parametrize("kind", STACKS)
def test_every_frame(record: Record, kind: str) -> None:
    samples, walks, _ = record(kind)
    found = held(samples, STACKS[kind][0])
    wrong = {stack: n for stack, n in found.items() if without_start(stack) != STACKS[kind]}
    assert sum(found.values()) > SAMPLES_LEAST, samples
    assert not wrong
    assert walks["complete"] >= sum(found.values())


def test_a_signal_handler_has_what_it_interrupted_as_caller(record: Record) -> None:
    samples, _, _ = record("signal")
    found = held(samples, "st_spin")
    assert sum(found.values()) > SAMPLES_LEAST
    for stack in found:
        assert list(stack[:3]) == [*HELD, "handler"]
        names = without_start(stack)
        assert names[-len(BELOW_SIGNAL) :] == BELOW_SIGNAL, stack
        # The frame of the signal, and what raise() is made of.
        assert 1 <= len(names) - len(BELOW_SIGNAL) - 3 <= 4, stack


def test_a_stack_of_more_frames_than_fit_is_counted(record: Record) -> None:
    samples, walks, _ = record("deep")
    found = held(samples, "st_spin")
    assert all(len(stack) == 128 for stack in found)
    assert walks["too_deep"] >= sum(found.values()) > 0


def test_a_stack_that_ends_where_memory_does(record: Record) -> None:
    """Words are read with those that follow; behind these there is nothing."""
    samples, walks, _ = record("edge")
    found = held(samples, "st_spin")
    assert sum(found.values()) > SAMPLES_LEAST
    for stack in found:
        assert list(stack[:3]) == [*HELD, "st_edge_begin"]
        assert len(stack) == 4, stack  # and glibc's clone()
    assert walks["complete"] >= sum(found.values())


def test_a_library_that_is_opened_later_is_walked_from_the_next_window_on(
    record: Record,
) -> None:
    samples, _, _ = record("later")
    found = held(samples, "st_spin")
    assert sum(found.values()) > SAMPLES_LEAST
    for stack in found:
        names = without_start(stack)
        assert names[:3] == [*HELD, "st_called_back"], stack
        assert names[-4:] == ["st_zlib", "st_later", *THREAD], stack
        assert len(names) == 8, stack  # and one of zlib's


def test_waits_have_whole_stacks(record: Record) -> None:
    """The thread waits for the test in read(), below the function that it began with."""
    _, _, waits = record("plain")
    stacks = [stack for stack in waits if "thread" in stack]
    assert stacks
    for stack in stacks:
        assert without_start(stack)[-1] == "thread"


def test_without_tables_callers_are_missing(program: Path, spawn: Spawn, tmp_path: Path) -> None:
    """What the tables are for: else this program would prove nothing."""
    samples, walks, _ = recorded(program, "counter", spawn, tables=False, folder=tmp_path)
    found = held(samples, "st_spin")
    assert found
    assert all(without_start(stack) != STACKS["counter"] for stack in found)
    assert walks["complete"] == 0
