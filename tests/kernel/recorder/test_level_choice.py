# SPDX-License-Identifier: GPL-2.0-only
"""The recorder chooses between `flow` and `record` by the events that it counts beforehand."""

import math
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from tlstax.collectors.host.features import HOST
from tlstax.collectors.placement.model import Plan
from tlstax.collectors.placement.planning import plan_in_child
from tlstax.collectors.preflight.safety import Safety
from tlstax.collectors.recording.stream.plan_file import plan_file_text
from tlstax.collectors.recording.stream.replay import Replay
from tlstax.probes.model import Level
from tlstax.tests.kernel.recorder_runs import OK, PROGRAM, USAGE
from tlstax.tests.patience import COMMAND_S

pytestmark = [
    pytest.mark.root,
    pytest.mark.needs("btf", "uprobes"),
    pytest.mark.skipif(not HOST.socket_events, reason="this kernel lacks events of sockets"),
]
SHARE, ROOM, RUNS_MOST = 0.5, 0.6, 6
# Of rates.c: of switches, of two tracepoints or six functions. The watchdog waits for 2 s.
COUNTERS, GONE_S = 3 if HOST.socket_tracepoints else 7, 10
# Many sends for each switch of threads, so that what others do on the host matters little.
CODE: Final = """
import socket, ssl, sys, time
one, other = socket.socketpair()
print("ready", flush=True)
while True:
    for _ in range(2000):
        one.send(b"x")
        other.recv(1)
    time.sleep(0.005)
"""
Choice = tuple[Any, Replay]
Choose = Callable[[float], Choice]
CommandFor = Callable[[float], tuple[list[str], Path]]


def priced(plan: Plan, trap_ns: float) -> Plan:
    """The plan, as if every hit cost so much."""
    return replace(plan, sites=tuple(replace(site, cost_ns=trap_ns) for site in plan.sites))


@pytest.fixture
def command_for(tmp_path: Path) -> Iterator[CommandFor]:
    """The command that records a process where a trap costs this much, and its stream."""
    with subprocess.Popen(
        ["/usr/bin/python3", "-c", CODE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        target, flow = plan_in_child(process.pid, Level.FLOW)
        stretches = plan_in_child(process.pid, Level.RECORD)[1]

        def command(trap_ns: float) -> tuple[list[str], Path]:
            plan_file, stream = tmp_path / "a.plan", tmp_path / f"{trap_ns}.stream"
            plans = priced(flow, trap_ns), priced(stretches, trap_ns)
            plan_file.write_text(plan_file_text(target, plans[0], Safety(), stretches=plans[1]))
            words = [str(PROGRAM), "--plan", str(plan_file), "--pid", str(process.pid)]
            words += ["--for", "1s", "--budget", f"{SHARE:%}", "--calibrate", "2s"]
            words += ["--choose-level", "--or-everything", "--output", str(stream)]
            return words, stream

        yield command
        process.kill()


@pytest.fixture
def choose(command_for: CommandFor) -> Choose:
    def run(trap_ns: float) -> Choice:
        """How the budget is used where a trap costs this much, and the whole stream."""
        command, stream = command_for(trap_ns)
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=COMMAND_S)
        assert done.returncode == OK, done.stderr
        with stream.open("rb") as file:
            replay = Replay(file)
            while replay.next_window():
                pass
            return replay.budget, replay

    return run


def expected(budget: Any) -> bytes:
    """The level that follows from what the recorder counted."""
    room_ns = ROOM * SHARE * budget.level_base_ns
    return b"flow" if budget.flow_ns <= room_ns < budget.record_ns else b"record"


def test_the_level_follows_the_price_of_the_counted_events(choose: Choose) -> None:
    budget, replay = choose(1)
    assert replay.start.level == expected(budget) == b"record"
    assert replay.plan.level == Level.RECORD, "its probes are those of stretches"
    assert 0 < budget.flow_ns < budget.record_ns, "two traps for each send"

    # A price at which the budget has room for flow, and not for record. Rates differ from run to
    # run on a busy host, so it is set anew by each.
    price_ns, levels = 1.0, set()
    for _ in range(RUNS_MOST):
        room_ns = ROOM * SHARE * budget.level_base_ns
        price_ns *= room_ns / math.sqrt(budget.flow_ns * budget.record_ns)
        price_ns = max(1.0, round(price_ns))
        budget, replay = choose(price_ns)
        assert replay.start.level == expected(budget)
        assert replay.plan.level.name.lower().encode() == replay.start.level
        levels.add(replay.start.level)
        if b"flow" in levels:
            break
    assert b"flow" in levels

    budget, replay = choose(10_000_000)
    assert replay.start.level == b"record", "in windows: everything that is seen is exact"
    assert budget.flow_ns > ROOM * SHARE * budget.level_base_ns


def links_count(pid: int) -> int:
    """Programs that a process has attached, other than to probes and samples."""
    count = 0
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            count += os.readlink(descriptor) == "anon_inode:bpf_link"
    return count


@pytest.mark.timing
def test_a_recorder_that_stops_while_it_counts_is_killed(command_for: CommandFor) -> None:
    """Its programs would run at every switch on the host until somebody continues it."""
    with subprocess.Popen(command_for(1)[0], stderr=subprocess.PIPE) as recorder:
        while not links_count(recorder.pid):
            assert recorder.poll() is None
        recorder.send_signal(signal.SIGSTOP)
        try:
            assert 0 < links_count(recorder.pid) <= COUNTERS
            assert recorder.wait(GONE_S) == -signal.SIGKILL
        finally:
            recorder.kill()


@pytest.mark.parametrize("options", [("--calibrate", "2s"), ("--budget", "5%")])
def test_a_choice_needs_a_budget_and_stretches(options: tuple[str, str]) -> None:
    command = [str(PROGRAM), "--plan", "x", "--pid", "1", "--choose-level", *options]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == USAGE
    assert "--choose-level goes with --budget and --calibrate only" in done.stderr
