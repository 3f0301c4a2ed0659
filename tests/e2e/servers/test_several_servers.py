# SPDX-License-Identifier: GPL-2.0-only
"""Real servers of one host, recorded by one recorder: each by its own counts, plan and ending."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.document import explain
from tlstax.analysis.rows import tables
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Handshake, Target
from tlstax.tests.kernel.recorder_runs import PROGRAM
from tlstax.tests.kernel.remote.remote_host import RemoteHost
from tlstax.tests.patience import COMMAND_S
from tlstax.tests.processes import children_of, name_of
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.catalogue import find_kind
from tlstax.workloads.servers.lab_server import open_server
from tlstax.workloads.servers.mariadb import PrivateServer

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]
KINDS = ("mariadb", "mariadb", "mysql56")
LIBRARIES = ("OpenSSL", "OpenSSL", "yaSSL")
CONNECTS = (60, 90, 30)
SETTLE_S, GONE_S = 1.5, 5.0
ACCEPT = ("--accept", "red-zone", "--accept", "rip-relative")
"""What the ends of handshakes of yaSSL need, and nothing is tried over ssh."""


@pytest.fixture
def servers(npm: None, lab_directory: Path) -> Iterator[list[PrivateServer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(open_server(find_kind(kind))) for kind in KINDS]


@pytest.fixture
def attached(
    servers: list[PrivateServer], spawn: Callable[..., "subprocess.Popen[str]"], tmp_path: Path
) -> "subprocess.Popen[str]":
    """`tlstax attach` of all of them, without a limit: every handshake is to be seen."""
    command = [sys.executable, "-m", "tlstax", "attach", "-o", str(tmp_path / "all")]
    command += ["--budget", "none", "--quiet", *(str(server.pid) for server in servers)]
    process = spawn(command, stderr=subprocess.PIPE, text=True)
    await_attached(process, servers)
    return process


def await_attached(process: "subprocess.Popen[str]", servers: list[PrivateServer]) -> None:
    """Until it said so of each, in any order."""
    assert process.stderr is not None
    left, said = {server.pid for server in servers}, ""
    while left:
        line = process.stderr.readline()
        said += line
        assert line, said
        if found := re.search(r": attached to (\d+)", line):
            left.remove(int(found[1]))


def connect(server: PrivateServer, count: int) -> int:
    """TLS connections to a server; how many there were."""
    driver = Sysbench.of_server(server, table_rows=10)
    try:
        return driver.run(Load(SCENARIOS["connect"], 2, 0, count), "tls").connection_count
    except TlstaxError as error:
        lives = name_of(server.pid) or "it has ended"
        raise AssertionError(f"{error}; {server.pid}: {lives}{server.log_tail()}") from error


def ended(process: "subprocess.Popen[str]") -> str:
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=COMMAND_S)
    assert "Traceback" not in said
    return said


def rows_of(folder: Path, server: PrivateServer, table: type[Any]) -> list[Any]:
    (capture,) = folder.glob(f"*-{server.pid}.tlstax")
    with CaptureReader.open(capture) as reader:
        return list(reader.rows(table))


def test_each_has_its_own_handshakes(
    servers: list[PrivateServer], attached: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    names = [*children_of(attached.pid).values()]
    assert names.count("tlstax-recorder") == 1
    with ThreadPoolExecutor() as pool:
        driven = list(pool.map(connect, servers, CONNECTS))
    time.sleep(SETTLE_S)
    said = ended(attached)
    assert attached.returncode == ExitCode.OK, said
    for server, count, library in zip(servers, driven, LIBRARIES, strict=True):
        (target,) = rows_of(tmp_path / "all", server, Target)
        assert (target.pid, target.tls_library) == (server.pid, library)
        found = rows_of(tmp_path / "all", server, Handshake)
        assert [row.outcome for row in found] == ["success"] * count
        (capture,) = (tmp_path / "all").glob(f"*-{server.pid}.tlstax")
        with CaptureReader.open(capture) as reader:
            document = explain.explain(tables.load(reader))
        others = ", ".join(str(other.pid) for other in servers if other is not server)
        assert document.health.observer.recorded_with == others


def test_one_that_is_killed_leaves_the_others(
    servers: list[PrivateServer], attached: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    counts = [connect(server, count) for server, count in zip(servers, CONNECTS, strict=True)]
    os.kill(servers[0].pid, signal.SIGKILL)
    time.sleep(SETTLE_S)
    counts[1:] = [
        before + connect(server, CONNECTS[0])
        for before, server in zip(counts[1:], servers[1:], strict=True)
    ]
    time.sleep(SETTLE_S)
    said = ended(attached)
    assert attached.returncode == ExitCode.TARGET, said
    assert f"process {servers[0].pid} ended while it was recorded: it exited or was killed" in said
    for server, count in zip(servers, counts, strict=True):
        assert len(rows_of(tmp_path / "all", server, Handshake)) == count


@pytest.fixture
def box() -> Iterator[RemoteHost]:
    """Another host, which is this one in namespaces; its user may not enter the tests' folders."""
    with tempfile.TemporaryDirectory(prefix="tlstax-box-") as folder:
        Path(folder).chmod(0o755)
        host = RemoteHost(Path(folder, "box"), PROGRAM, sys.executable)
        yield host
        host.close()


def test_over_ssh_too(
    servers: list[PrivateServer], box: RemoteHost, tmp_path: Path,
    spawn: Callable[..., "subprocess.Popen[str]"],
) -> None:  # fmt: skip
    """One of them is killed; whoever is still recorded has each of its handshakes."""
    command = [sys.executable, "-m", "tlstax", "attach", "-o", str(tmp_path / "all")]
    command += ["--ssh", "box", "--sudo", "--budget", "none", "--quiet", *ACCEPT]
    command += [str(server.pid) for server in servers]
    environment = {**os.environ, "PATH": f"{box.path}:{os.environ['PATH']}"}
    environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    process = spawn(command, stderr=subprocess.PIPE, text=True, env=environment)
    await_attached(process, servers)
    assert len(box.processes("tlstax-recorder")) == 1
    counts = [connect(server, count) for server, count in zip(servers, CONNECTS, strict=True)]
    time.sleep(SETTLE_S)
    os.kill(servers[0].pid, signal.SIGKILL)
    time.sleep(SETTLE_S)
    counts[1:] = [
        before + connect(server, CONNECTS[0])
        for before, server in zip(counts[1:], servers[1:], strict=True)
    ]
    time.sleep(SETTLE_S)
    said = ended(process)
    assert process.returncode == ExitCode.TARGET, said
    assert f"the recording of process {servers[0].pid} on box ended" in said
    assert "explains one of 2 captures" in said
    box.await_nothing_left(GONE_S)
    for server, count, library in zip(servers, counts, LIBRARIES, strict=True):
        (target,) = rows_of(tmp_path / "all", server, Target)
        assert target.tls_library == library
        found = rows_of(tmp_path / "all", server, Handshake)
        assert [row.outcome for row in found] == ["success"] * count
