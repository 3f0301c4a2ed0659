# SPDX-License-Identifier: GPL-2.0-only
"""Processes that want the same plan at the same time: one makes it, the others take that one."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tlstax.collectors.placement import plan_cache

PATIENCE_S = 60
ONLY_ONE_S = 1.0
# As a round does for its hosts: facts that are not read in /proc, so no price is measured. Planning
# goes on until the test says so; each step is a line of a file.
PLANNER = """
import os, sys, time
from pathlib import Path
from tlstax.collectors.placement import placement, plan_cache, planning
pid, proc, log, go = int(sys.argv[1]), *map(Path, sys.argv[2:5])
plan_cache.WAIT_S = float(sys.argv[5])
def note(what):
    with log.open("a") as file:
        file.write(f"{what} {os.getpid()}\\n")
def slow(*given, plan=placement.plan, **named):
    note("plans")
    parent = os.getppid()
    while not go.exists() and os.getppid() == parent:  # a test that failed has killed it
        time.sleep(0.02)
    return plan(*given, **named)
def asked(*given, run=planning.run_in_child):
    note("asks")
    return run(*given)
placement.plan, planning.run_in_child = slow, asked
target, made = planning.plan_in_child(pid, proc=proc)
print(target.pid, len(made.sites), [missing.boundary for missing in made.missing])
"""


class Planners:
    """Processes that plan for one other process."""

    def __init__(self, spawn: Callable[..., Any], folder: Path, program: Path) -> None:
        self._spawn, self._folder = spawn, folder
        (folder / "proc").symlink_to("/proc")
        self._log, self._go = folder / "log", folder / "go"
        self._log.touch()
        crowd = spawn([program], stdin=-1, stdout=-1, bufsize=0)
        crowd.stdout.readline()
        self._pid = crowd.pid

    def start(self, wait_s: float = PATIENCE_S) -> "subprocess.Popen[bytes]":
        """One that has asked for a plan; `wait_s`: how long for that of another one."""
        count = len(self.which("asks"))
        where = (str(path) for path in (self._folder / "proc", self._log, self._go))
        command = [sys.executable, "-c", PLANNER, str(self._pid), *where, str(wait_s)]
        made: subprocess.Popen[bytes] = self._spawn(command, stdout=subprocess.PIPE)
        self.await_count("asks", count + 1)
        return made

    def which(self, step: str) -> list[int]:
        """The processes that took a step."""
        lines = (line.split() for line in self._log.read_text().splitlines())
        return [int(pid) for name, pid in lines if name == step]

    def await_count(self, step: str, count: int) -> list[int]:
        """Until so many took a step."""
        end = time.monotonic() + PATIENCE_S
        while len(self.which(step)) < count:
            assert time.monotonic() < end, self._log.read_text()
            time.sleep(0.02)
        return self.which(step)

    def let_go(self) -> None:
        """Planning comes to its end."""
        self._go.touch()


@pytest.fixture
def planners(
    repository: Path, spawn: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Planners:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Planners(spawn, tmp_path, repository / "tests/testprogs/bin/crowd")


def answer(process: "subprocess.Popen[bytes]") -> bytes:
    """What it planned."""
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    return said


def test_of_two_that_want_a_plan_one_makes_it(planners: Planners, tmp_path: Path) -> None:
    """A round over hosts with the same build planned for each of those that it began with."""
    first = planners.start()
    planners.await_count("plans", 1)
    second = planners.start()
    planners.let_go()
    assert answer(first) == answer(second) != b""
    assert len(planners.which("plans")) == 1
    (lock,) = (tmp_path / "cache/tlstax" / plan_cache.TURNS_FOLDER).iterdir()
    assert lock.stat().st_mode & 0o777 == 0o600
    assert lock.parent.stat().st_mode & 0o777 == 0o700


def test_one_that_dies_gives_way_to_the_next(planners: Planners) -> None:
    first = planners.start()
    (planning,) = planners.await_count("plans", 1)
    second = planners.start()
    time.sleep(ONLY_ONE_S)
    assert planners.which("plans") == [planning]
    os.kill(planning, signal.SIGKILL)
    planners.await_count("plans", 2)
    planners.let_go()
    assert answer(second) != b""
    first.communicate(timeout=PATIENCE_S)
    assert first.returncode != 0


def test_nobody_waits_for_ever(planners: Planners) -> None:
    first = planners.start()
    planners.await_count("plans", 1)
    begun_s = time.monotonic()
    second = planners.start(wait_s=ONLY_ONE_S)
    planners.await_count("plans", 2)
    assert time.monotonic() - begun_s > ONLY_ONE_S / 2
    planners.let_go()
    assert answer(first) == answer(second)


def test_where_no_lock_can_be_had_each_one_plans(planners: Planners, tmp_path: Path) -> None:
    """The folder of the locks is a file here, which also stops root."""
    (tmp_path / "cache/tlstax").mkdir(parents=True)
    (tmp_path / "cache/tlstax" / plan_cache.TURNS_FOLDER).touch()
    first, second = planners.start(), planners.start()
    planners.await_count("plans", 2)
    planners.let_go()
    assert answer(first) == answer(second)
