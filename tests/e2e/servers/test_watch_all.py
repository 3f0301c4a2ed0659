# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax watch --all` on real servers: a restart of one leaves the other alone."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tlstax import ExitCode
from tlstax.analysis.fleet import columns
from tlstax.collectors.watching.server_labels import server_label
from tlstax.tests.bpf_objects import watch_leftovers
from tlstax.tests.e2e.recording.watch_runs import (
    WatchRun,
    await_true,
    connect,
    copied_server,
    rows_of,
    server_of,
)
from tlstax.tests.processes import children_of
from tlstax.workloads.servers.mariadb import PrivateServer

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]
COUNTS, MEANWHILE, AFTER, SETTLE_S, GONE_S = (20, 12), 8, 6, 2.0, 5.0
Spawn = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def program(lab_directory: Path) -> Iterator[Path]:
    made = copied_server(lab_directory, f"tlstax-{lab_directory.name[-6:]}")
    yield made
    made.unlink()


@pytest.fixture
def servers(program: Path) -> Iterator[list[PrivateServer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(server_of(program)) for _ in COUNTS]


def recorders(watch: WatchRun) -> list[int]:
    found = children_of(watch.process.pid)
    return [pid for pid, name in found.items() if name == "tlstax-recorder"]


def handshakes(data: Path) -> dict[str, int]:
    """Successful ones by host."""
    found: dict[str, int] = {}
    for row in rows_of(data, columns.Handshake):
        if row["outcome"] == "success":
            found[row["host"]] = found.get(row["host"], 0) + row["handshake_count"]
    return found


@pytest.fixture
def start_again(spawn: Spawn) -> Iterator[Callable[[int], None]]:
    """Kill a server, and start it as it was started, while its supervisor sees nothing of it."""
    stopped: list[int] = []

    def run(pid: int) -> None:
        process = Path(f"/proc/{pid}")
        command = (process / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        owner, group, parent = (status_of(pid, key) for key in ("Uid", "Gid", "PPid"))
        os.kill(parent, signal.SIGSTOP)
        stopped.append(parent)
        os.kill(pid, signal.SIGKILL)
        await_true(lambda: not (process / "cmdline").read_bytes(), lambda: "it did not end")
        spawn(command, user=owner, group=group, extra_groups=[group], stderr=subprocess.DEVNULL)

    yield run
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)


def status_of(pid: int, key: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


def test_each_server_has_rollups_of_its_own(
    servers: list[PrivateServer], program: Path, tmp_path: Path,
    start_again: Callable[[int], None],
) -> None:  # fmt: skip
    leftover = watch_leftovers()
    data = tmp_path / "data"
    hosts = [f"db1-{server_label(server.pid)}" for server in servers]
    watch = WatchRun(tmp_path / "said", data, "--name", program.name, "--all")
    watch.await_said("recording process", 2)
    (recorder,) = recorders(watch)
    for server, count in zip(servers, COUNTS, strict=True):
        connect(server, count)
    wanted = dict(zip(hosts, COUNTS, strict=True))
    await_true(lambda: handshakes(data) == wanted, lambda: f"{handshakes(data)} {watch.said}")
    start_again(servers[0].pid)
    watch.await_said("is no longer recorded: it exited or was killed")
    connect(servers[1], MEANWHILE)
    watch.await_said("recording process", 3)
    assert len(recorders(watch)) == 2, "that of the other one goes on"
    assert recorder in recorders(watch)
    for server in servers:
        connect(server, AFTER)
    time.sleep(SETTLE_S)
    assert watch.end() == ExitCode.OK, watch.said
    assert handshakes(data) == {
        hosts[0]: COUNTS[0] + AFTER,
        hosts[1]: COUNTS[1] + MEANWHILE + AFTER,
    }, watch.said
    intervals = rows_of(data, columns.Interval)
    assert {row["host"] for row in intervals} == set(hosts)
    assert all(row["engine_cpu_ns"] > 0 for row in intervals)
    assert "tlstax and its recorders used" in watch.said.splitlines()[-1]
    of_host = [len(list(data.glob(f"raw/{host}/*.tlstax"))) for host in hosts]
    assert of_host[0] == of_host[1] + 1, "the other one's hour was not divided"
    files = [path for path in data.rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert leftover() == set()


def test_a_killed_watch_leaves_nothing(
    servers: list[PrivateServer], program: Path, tmp_path: Path
) -> None:
    leftover = watch_leftovers()
    watch = WatchRun(tmp_path / "said", tmp_path / "data", "--name", program.name, "--all")
    watch.await_said("recording process", len(servers))
    own = recorders(watch)
    watch.process.kill()
    watch.process.wait()
    await_true(lambda: not any(Path(f"/proc/{pid}").exists() for pid in own), lambda: str(own))
    await_true(lambda: leftover() == set(), lambda: str(leftover()))


def test_a_killed_recorder_is_replaced(
    servers: list[PrivateServer], program: Path, tmp_path: Path
) -> None:
    watch = WatchRun(tmp_path / "said", tmp_path / "data", "--name", program.name, "--all")
    watch.await_said("recording process", len(servers))
    (recorder,) = recorders(watch)
    os.kill(recorder, signal.SIGKILL)
    watch.await_said("recording process", 2 * len(servers))
    assert len(recorders(watch)) == 1, "they share the next one"
    assert watch.end() == ExitCode.OK, watch.said
    assert watch.said.count("signal 9 ended the recorder") == len(servers)
