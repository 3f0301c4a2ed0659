# SPDX-License-Identifier: GPL-2.0-only
"""bcc's own tools on a real server, beside the native engine and without it; one is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tlstax import ExitCode
from tlstax.__main__ import main
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.sources.bcc.source import TOOLS
from tlstax.tests.processes import children_of
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.mariadb import PrivateServer

STORM, SELECT = SCENARIOS["connect"], SCENARIOS["point_select"]
CONNECTIONS_COUNT = 40
WORKING = "offcputime,funclatency,biolatency"
"""Those that Debian 12's libbpf-tools has; its profile is bcc's only."""


def attach(pid: int, capture: Path, *more: str) -> "subprocess.Popen[str]":
    command = [
        sys.executable,
        "-m",
        "tlstax",
        "attach",
        str(pid),
        "--quiet",
        "-o",
        str(capture),
        "--accept",
        "return-probes",
    ]
    process = subprocess.Popen([*command, *more], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while "attached" not in (line := process.stderr.readline()):
        assert line, "it ended before it was attached"
    return process


def end(process: "subprocess.Popen[str]") -> str:
    """Stop it; all that it said after it was attached."""
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    with process:
        return process.stderr.read()  # communicate() would lose what readline() has buffered


def tools_of(process: "subprocess.Popen[str]") -> dict[str, int]:
    """The tools that run, by name."""
    children = children_of(process.pid).items()
    return {tool: pid for pid, name in children for tool in TOOLS if name.startswith(tool)}


def collectors(reader: CaptureReader) -> dict[str, schema.Collector]:
    return {row.name.removeprefix("bcc "): row for row in reader.rows(schema.Collector)}


@pytest.mark.root
@pytest.mark.needs("uprobes", "btf")
def test_beside_the_native_engine_they_agree_on_handshakes(
    lab_directory: Path, tmp_path: Path
) -> None:
    capture = tmp_path / "x.tlstax"
    with PrivateServer() as server:
        driver = Sysbench.of_server(server, table_rows=100)
        driver.prepare()
        process = attach(server.pid, capture, "--collect", "native,bcc", "--bcc-tools", WORKING)
        assert set(tools_of(process)) == set(WORKING.split(","))
        driver.run(Load(STORM, 2, 0, CONNECTIONS_COUNT), "tls", time.sleep)
        driver.run(Load(SELECT, 2, 1), "tls", time.sleep)
        said = end(process)
    assert process.returncode == 0, said
    with CaptureReader.open(capture) as reader:
        assert {row.state for row in collectors(reader).values()} == {"finished"}
        native = len(list(reader.rows(schema.Handshake)))
        windows = {row.window_id for row in reader.rows(schema.Window) if row.engine == "bcc"}
        counted = [row for row in reader.rows(schema.PhaseCount) if row.window_id in windows]
        waits = [row for row in reader.rows(schema.OffcpuStack) if row.window_id in windows]
        named = {row.symbol for row in reader.rows(schema.Frame) if row.symbol}
    assert len(windows) == 1
    assert [row.ended_count for row in counted] == [native] == [CONNECTIONS_COUNT + 2]
    assert {"blocked_network", "runnable"} <= {row.state for row in waits}
    assert any("handle_one_connection" in name for name in named)


@pytest.mark.root
@pytest.mark.needs("uprobes", "btf")
def test_one_that_is_killed_and_one_that_is_missing_are_named(
    lab_directory: Path, tmp_path: Path
) -> None:
    capture = tmp_path / "x.tlstax"
    with PrivateServer() as server:
        more = ("--collect", "bcc", "--bcc-directory", str(broken(tmp_path / "tools")))
        process = attach(server.pid, capture, *more)
        running = tools_of(process)
        os.kill(running["offcputime"], signal.SIGKILL)
        time.sleep(2)
        said = end(process)
    assert process.returncode == ExitCode.FAILED, said
    assert "Traceback" not in said
    assert "1 of the sources failed" in said
    with CaptureReader.open(capture) as reader:
        found = collectors(reader)
    assert {name: row.state for name, row in found.items()} == {
        "offcputime": "failed", "profile": "missing",
        "funclatency": "finished", "biolatency": "finished",
    }  # fmt: skip
    assert "ended before the recording did" in found["offcputime"].note
    assert "does not list -v" in found["profile"].note
    assert not any(pid_is_there(pid) for pid in running.values())


@pytest.mark.root
@pytest.mark.needs("uprobes", "btf")
def test_without_a_list_those_tools_run_that_are_here(
    lab_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capture = tmp_path / "x.tlstax"
    with PrivateServer() as server:
        more = ("--collect", "bcc", "--bcc-directory", str(broken(tmp_path / "tools")))
        process = attach(server.pid, capture, *more)
        assert set(tools_of(process)) == set(WORKING.split(","))
        said = end(process)
    assert process.returncode == ExitCode.OK, said
    (line,) = (line for line in said.splitlines() if "profile" in line)
    assert line.startswith("tlstax: bcc profile: ")
    with CaptureReader.open(capture) as reader:
        states = {name: row.state for name, row in collectors(reader).items()}
    assert states == dict.fromkeys(WORKING.split(","), "finished") | {"profile": "missing"}
    assert main(["report", str(capture)]) == ExitCode.OK
    assert "The source bcc profile is missing: " in " ".join(capsys.readouterr().out.split())


def broken(directory: Path) -> Path:
    """A directory with a profile of a version that nobody knows."""
    directory.mkdir()
    tool = directory / "profile-libbpf"
    tool.write_text('#!/bin/sh\necho "Usage: profile [OPTION...] --usage"\n', encoding="ascii")
    tool.chmod(0o755)
    return directory


def pid_is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
