# SPDX-License-Identifier: GPL-2.0-only
"""Shared by the kernel rung: `tlstax` as a process, a target for it, and what it leaves behind."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tlstax.collectors.placement.planning import plan_in_child
from tlstax.collectors.preflight.cgroups import group_of
from tlstax.collectors.recording.by_recorder import child
from tlstax.tests.bpf_objects import Objects, watch_leftovers
from tlstax.tests.freezing import frozen_processes
from tlstax.tests.kernel.recorder_runs import (
    HANDSHAKES,
    PROGRAM,
    SANITIZED,
    MakeGroup,
    Record,
    Started,
    plan_text,
)

READY = b'"ready"'
PTRACE_SEIZE = 0x4206  # linux/ptrace.h


@pytest.fixture(autouse=True)
def recorder_under_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recordings that a test makes itself, without a command, have the recorder under test."""
    if SANITIZED:
        monkeypatch.setattr(child, "recorder_path", lambda: PROGRAM)


@pytest.fixture
def leftover() -> Callable[[], Objects]:
    """Objects that came during the test and stay."""
    return watch_leftovers()


@pytest.fixture
def tlstax() -> list[str]:
    """The command that runs tlstax in the tests' own environment."""
    return [sys.executable, "-m", "tlstax"]


@pytest.fixture
def program(repository: Path) -> Path:
    """The truth program; `make testprogs` builds it."""
    path = repository / "tests/testprogs/bin/truth"
    assert path.exists(), "run `make testprogs`"
    return path


@pytest.fixture
def target(program: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """The truth program, serving 500 handshakes once it is told to go; it must end well."""
    process = subprocess.Popen(
        [program, "tls", "s" * 500], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert READY in process.stdout.readline()
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


@pytest.fixture
def started() -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """A function that starts a truth program and returns when it waits for its go byte."""
    processes = []

    def start(*command: object) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        processes.append(process)
        assert process.stdout is not None
        assert READY in process.stdout.readline()
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def mapped_address(pid: int, inode: int, offset: int) -> int | None:
    """Where a process maps an offset of a file executably."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        if "x" not in fields[1] or int(fields[4]) != inode:
            continue
        start, end = (int(part, 16) for part in fields[0].split("-"))
        mapped_offset = int(fields[2], 16)
        if mapped_offset <= offset < mapped_offset + end - start:
            return start + offset - mapped_offset
    return None


@pytest.fixture
def breakpoints(repository: Path) -> Callable[[int], int]:
    """How many of the planned sites differ in the process's memory from its files."""

    @cache  # a plan takes longer than some of the times that are measured with this
    def planned(pid: int) -> dict[int, bytes]:
        """The byte that the file has at each site, by its address in the process."""
        _, plan = plan_in_child(pid, extra=repository / "tests/testprogs")
        found: dict[int, bytes] = {}
        for site in plan.sites:
            address = mapped_address(pid, site.object.inode, site.file_offset)
            if address is not None:
                with open(site.object.open_path, "rb") as file:
                    file.seek(site.file_offset)
                    found[address] = file.read(1)
        assert len(found) > 10, "the sites of the plan were not found in the process"
        return found

    def count(pid: int) -> int:
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
        try:
            pairs = planned(pid).items()
            return sum(os.pread(memory, 1, address) != byte for address, byte in pairs)
        finally:
            os.close(memory)

    return count


@pytest.fixture
def traced(target: "subprocess.Popen[bytes]") -> "subprocess.Popen[bytes]":
    """A process that this one traces, as a debugger does."""
    assert ctypes.CDLL(None).ptrace(PTRACE_SEIZE, target.pid, 0, 0) == 0
    return target


@pytest.fixture
def frozen(target: "subprocess.Popen[bytes]") -> Iterator["subprocess.Popen[bytes]"]:
    """A process in a frozen cgroup, in the version that this host has."""
    with frozen_processes(target.pid):
        yield target


@pytest.fixture
def replaced(
    program: Path, tmp_path: Path, started: Callable[..., "subprocess.Popen[bytes]"]
) -> "subprocess.Popen[bytes]":
    """A process whose program was replaced on disk."""
    path = tmp_path / "server"
    path.write_bytes(program.read_bytes())
    path.chmod(0o755)
    process = started(path, "tls", "s" * 500)
    path.unlink()
    path.write_bytes(program.read_bytes())
    return process


@pytest.fixture
def recorded_server(program: Path, started: Started) -> "subprocess.Popen[bytes]":
    """The truth program, which waits for a byte and then serves."""
    return started(program, "tls", "s" * HANDSHAKES)


@pytest.fixture
def plan_path(recorded_server: "subprocess.Popen[bytes]", repository: Path, tmp_path: Path) -> Path:
    path = tmp_path / "server.plan"
    path.write_text(plan_text(recorded_server.pid, repository))
    return path


@pytest.fixture
def record_it(
    recorded_server: "subprocess.Popen[bytes]", plan_path: Path, spawn: Record
) -> Callable[..., "subprocess.Popen[bytes]"]:
    """Start the recorder on the server; its stream goes to a pipe unless told otherwise."""

    def run(
        *more: object, stdout: Any = subprocess.PIPE, pipe_bytes: int = -1
    ) -> "subprocess.Popen[bytes]":
        command = [
            PROGRAM,
            "--plan",
            plan_path,
            "--pid",
            recorded_server.pid,
            "--window",
            "100ms",
            *more,
        ]
        return spawn(
            [str(part) for part in command],
            stdout=stdout,
            stderr=subprocess.PIPE,
            pipesize=pipe_bytes,
        )

    return run


@pytest.fixture
def put_in() -> Iterator[MakeGroup]:
    """Put a process in a control group of that name; it goes back at the end."""
    own = group_of("self", "freezer")
    if own is None or not os.access(own.place, os.W_OK):
        pytest.skip("no cgroup hierarchy in which a group can be made")
    made: list[tuple[Path, int]] = []

    def put(name: str, pid: int) -> None:
        (own.place / name).mkdir()
        made.append((own.place / name, pid))
        (own.place / name / "cgroup.procs").write_text(str(pid))

    yield put
    for folder, pid in made:
        (own.place / "cgroup.procs").write_text(str(pid))
        folder.rmdir()
