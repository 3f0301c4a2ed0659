# SPDX-License-Identifier: GPL-2.0-only
"""Several servers of another host: one login, one recorder there, a capture for each here."""

import os
import re
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tlstax.collectors.capture import schema
from tlstax.tests import least_budget
from tlstax.tests.kernel.recorder_runs import (
    IO,
    OK,
    TARGET,
    USAGE,
    Breakpoints,
    Leftover,
    Process,
    Started,
    rows_of,
    serve,
)
from tlstax.tests.kernel.remote.remote_host import RemoteHost
from tlstax.tests.kernel.remote.sessions import GONE_SECONDS, Attach, said, ssh_of

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]
BUDGET, NO_PID, MANY, SETTLE_S = 7, 1 << 22, 200, 1.2
COUNTS = (5, 9, 14)


@pytest.fixture
def servers(program: Path, started: Started) -> list[Process]:
    return [started(program, "tls", "s" * count) for count in COUNTS]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "captures"


@pytest.fixture
def heard() -> list[str]:
    """What `several` heard before it was attached."""
    return []


@pytest.fixture
def several(
    environment: dict[str, str], folder: Path, spawn: Attach, repository: Path, tlstax: list[str],
    heard: list[str],
) -> Attach:  # fmt: skip
    """Start `tlstax attach --ssh` of some processes; it is attached when this returns."""

    def run(who: list[int | str], *more: str, waits_for: int | None = None) -> Process:
        command = [*tlstax, "attach", "--ssh", "box", "--sudo", *map(str, who), "-o", str(folder)]
        command += ["--definitions", str(repository / "tests/testprogs"), *more]
        process = spawn(command, stderr=subprocess.PIPE, text=True, env=environment)
        for _ in range(len(who) if waits_for is None else waits_for):
            assert process.stderr is not None
            while "attached to" not in (line := process.stderr.readline()):
                heard.append(line)
                assert line, heard
        return process

    return run


def handshakes_of(folder: Path, server: Process) -> int:
    return len(rows_of(capture_of(folder, server.pid), schema.Handshake))


def capture_of(folder: Path, pid: int) -> Path:
    (found,) = folder.glob(f"truth-{pid}.tlstax")
    return found


def meta_of(capture: Path) -> dict[str, str]:
    return {row.key: row.value for row in rows_of(capture, schema.Meta)}


def errors_in(text: str) -> list[str]:
    """The lines that are errors: what, why, what to do."""
    return [line for line in text.splitlines() if re.fullmatch(r"tlstax: .+: .+\. .+\.", line)]


@pytest.mark.parametrize("more", [("--budget", "none"), ("--budget", "50%"), ()])
def test_each_has_a_capture_as_if_it_were_alone(
    servers: list[Process], several: Attach, folder: Path, box: RemoteHost, leftover: Leftover,
    breakpoints: Breakpoints, more: tuple[str, ...],
) -> None:  # fmt: skip
    pids = [server.pid for server in servers]
    process = several(pids, "--sample-hz", "999", *more)
    assert len(box.processes("tlstax-recorder")) == 1
    assert box.files() == []
    for server in servers:
        assert breakpoints(server.pid) > 10
        serve(server)
    time.sleep(SETTLE_S)
    process.send_signal(signal.SIGINT)
    text = said(process, OK)
    assert "explains one of 3 captures" in text
    if "50%" in more:
        assert [f"process {pid}: Budget 50%" in text for pid in pids] == [True] * 3
    box.await_nothing_left(GONE_SECONDS)
    assert leftover() == set()
    sources: set[str] = set()
    for server, count in zip(servers, COUNTS, strict=True):
        capture = capture_of(folder, server.pid)
        assert capture.stat().st_mode & 0o777 == 0o600
        assert [row.pid for row in rows_of(capture, schema.Target)] == [server.pid]
        if "none" in more:
            assert handshakes_of(folder, server) == count
        meta = meta_of(capture)
        others = ", ".join(str(pid) for pid in pids if pid != server.pid)
        assert (meta["recorded_with"], meta["target_ending"]) == (others, "it was running")
        assert meta["recording_id"] == meta_of(capture_of(folder, pids[0]))["recording_id"] != ""
        sources |= {row.source for row in rows_of(capture, schema.Frame)}
        walked, whole = int(meta["stack_walk_count"]), int(meta["stack_whole_count"])
        assert 0 < walked <= whole / 0.8, "each is walked by its own tables"
    assert sources >= {"symtab", "dynsym"}  # one of them alone may have too few samples


def test_one_that_is_killed_costs_its_own_line(
    servers: list[Process], several: Attach, folder: Path, box: RemoteHost
) -> None:
    first, second, third = servers
    process = several([server.pid for server in servers], "--budget", "none", "--quiet")
    for server in (first, second):
        serve(server)
    time.sleep(SETTLE_S)
    second.kill()
    second.wait()
    assert process.stderr is not None
    notice = process.stderr.readline()
    assert f"process {second.pid} is no longer recorded: it exited or was killed" in notice
    serve(third)
    time.sleep(SETTLE_S)
    process.send_signal(signal.SIGINT)
    text = said(process, TARGET)
    (error,) = errors_in(text)
    assert f"the recording of process {second.pid} on box ended" in error
    assert "explains one of 2 captures" in text
    box.await_nothing_left(GONE_SECONDS)
    assert [handshakes_of(folder, server) for server in servers] == list(COUNTS)
    endings = [meta_of(capture_of(folder, server.pid))["target_ending"] for server in servers]
    assert endings == ["it was running", "it exited or was killed", "it was running"]


def test_what_cannot_be_recorded_leaves_the_others(
    servers: list[Process], several: Attach, folder: Path, spawn: Attach, box: RemoteHost,
    heard: list[str],
) -> None:  # fmt: skip
    """No such process; a program without TLS; a capture that is there."""
    folder.mkdir()
    (earlier := folder / f"truth-{servers[1].pid}.tlstax").write_text("mine")
    asleep = spawn(["sleep", "1000"])
    pids = [NO_PID, asleep.pid, servers[1].pid, servers[0].pid]
    process = several(pids, "--for", "3s", "--budget", "none", "--quiet", waits_for=1)
    serve(servers[0])
    text = "".join(heard) + said(process, TARGET)
    errors = errors_in(text)
    assert [str(pid) in error for pid, error in zip(pids, errors, strict=False)] == [True] * 3
    assert "the file exists" in errors[2]
    assert earlier.read_text() == "mine"
    names = {earlier.name, f"truth-{servers[0].pid}.tlstax"}
    assert {path.name for path in folder.iterdir()} == names
    assert handshakes_of(folder, servers[0]) == COUNTS[0]
    assert "recorded_with" not in meta_of(capture_of(folder, servers[0].pid))
    box.await_nothing_left(GONE_SECONDS)


def test_all_of_a_name(
    program: Path, started: Started, several: Attach, folder: Path, tmp_path: Path
) -> None:
    (alias := tmp_path / f"server{os.getpid()}").symlink_to(program)
    both = [started(alias, "tls", "s") for _ in range(2)]  # each has a client of that name, too
    words = ("--name", alias.name)
    text = said(several([], *words), TARGET)
    assert f"4 processes are called {alias.name}" in text
    said(several([], *words, "--all", "--for", "1s"), OK)
    names = {path.name for path in folder.iterdir()}
    assert names >= {f"{alias.name}-{server.pid}.tlstax" for server in both}
    assert len(names) == 4
    assert "is called no-such" in said(several([], "--name", "no-such", "--all"), TARGET)


def test_more_than_one_recorder_records(several: Attach, folder: Path) -> None:
    assert "16 at most" in said(several(list(range(1, 18)), waits_for=0), USAGE)
    assert not folder.exists()


@pytest.mark.parametrize("tlstax", [least_budget.TLSTAX], ids=["least"])
def test_a_budget_that_nothing_fits_is_of_each(
    servers: list[Process], several: Attach, box: RemoteHost
) -> None:
    process = several([server.pid for server in servers], *least_budget.OPTIONS, waits_for=0)
    text = said(process, BUDGET)
    assert len(errors_in(text)) == len(servers)
    box.await_nothing_left(GONE_SECONDS)


def test_a_capture_that_cannot_be_written_ends_all(
    program: Path, started: Started, several: Attach, folder: Path, breakpoints: Breakpoints
) -> None:
    """Its server would be recorded for nobody."""
    servers = [started(program, "tls", "s" * count) for count in (MANY, 1)]
    process = several([server.pid for server in servers], "--budget", "none")
    most = capture_of(folder, servers[0].pid).stat().st_size
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most, most))
    serve(servers[0])
    text = said(process, IO)
    assert "cannot write the capture" in errors_in(text)[0]
    assert "the other recordings ended, too" in text
    assert [breakpoints(server.pid) for server in servers] == [0, 0]


def test_the_line_is_cut(
    servers: list[Process], several: Attach, folder: Path, box: RemoteHost, leftover: Leftover
) -> None:
    process = several([server.pid for server in servers], "--budget", "none")
    for server in servers:
        serve(server)
    time.sleep(SETTLE_S)
    os.kill(ssh_of(process), signal.SIGKILL)
    text = said(process, IO)
    assert text.count("the line to box was cut while process") == 3
    box.await_nothing_left(GONE_SECONDS)
    assert leftover() == set()
    assert [handshakes_of(folder, server) for server in servers] == list(COUNTS)


def test_tlstax_is_killed(
    servers: list[Process], several: Attach, folder: Path, box: RemoteHost, leftover: Leftover
) -> None:
    process = several([server.pid for server in servers], "--budget", "none")
    for server in servers:
        serve(server)
    time.sleep(SETTLE_S)
    process.kill()
    process.communicate()
    box.await_nothing_left(GONE_SECONDS)
    assert leftover() == set()
    assert [handshakes_of(folder, server) for server in servers] == list(COUNTS)
    assert {path.stat().st_mode & 0o777 for path in folder.glob("*.tlstax")} == {0o600}


def test_interrupted_while_it_plans(
    servers: list[Process], several: Attach, folder: Path, box: RemoteHost
) -> None:
    process = several([server.pid for server in servers], waits_for=0)
    while not list(folder.glob("*.tlstax")):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert "interrupted" in said(process, 130)
    box.await_nothing_left(GONE_SECONDS)
    assert not folder.exists()
