# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax lab run` of a matrix: whatever ends it, finished runs are kept and nothing is left."""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.__main__ import main
from tlstax.analysis.report.commands.folder import render_folder
from tlstax.analysis.report.commands.report import render_report
from tlstax.collectors.capture.join import join_captures
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import ProcessClock
from tlstax.collectors.commands.experiment import open_recorder
from tlstax.collectors.placement.library_code import crypto_instructions
from tlstax.collectors.recording.by_recorder.recorder import Recorder
from tlstax.tests.e2e.stolen import forgiven_ns, host_steal_ns
from tlstax.workloads.matrix import runner
from tlstax.workloads.stages import Stages

pytestmark = [pytest.mark.root, pytest.mark.needs("uprobes", "btf")]

PATIENCE_S = 300.0
RUNS = 8  # of the recipe: 2 cells, 4 rounds
RECIPE = """\
kind = "matrix"
title = "Small"
[matrix]
servers = ["{server}"]
scenarios = ["connect"]
transports = ["unix"]
drivers = ["{driver}"]
{further}
[scale.smoke]
rounds = 4
rounds_in_turn = 2
operations = 20
"""


def write(
    folder: Path, *, server: str = "mariadb", driver: str = "sysbench", further: str = ""
) -> Path:
    path = folder / "small.toml"
    path.write_text(RECIPE.format(server=server, driver=driver, further=further))
    return path


def states(folder: Path) -> dict[str, int]:
    with closing(sqlite3.connect(folder / "results.sqlite", timeout=30)) as connection:
        return dict(connection.execute("SELECT state, count(*) FROM run GROUP BY state"))


def reasons(folder: Path) -> list[str]:
    with closing(sqlite3.connect(folder / "results.sqlite")) as connection:
        rows = connection.execute("SELECT DISTINCT reason FROM run WHERE state = 'failed'")
        return [row[0] for row in rows]


@contextmanager
def resuming(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """`tlstax lab resume` in a process of its own, once it has finished one more run."""
    done = states(folder).get("done", 0)
    command = [sys.executable, "-m", "tlstax", "lab", "resume", str(folder)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as it:
        deadline = time.monotonic() + PATIENCE_S
        while states(folder).get("done", 0) <= done:
            assert it.poll() is None, it.stdout and it.stdout.read()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield it


@pytest.mark.timeout(900)
def test_whatever_ends_a_matrix_it_is_gone_on_with(
    make_disk: Callable[[str], Path],
    tmp_path: Path,
    lab_directory: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # The plan has room on it, and the captures of all runs have not.
    small_disk = make_disk("420k")
    # The disk is full in the middle.
    recipe = write(tmp_path)
    assert main(["lab", "run", str(recipe), "-o", str(small_disk), "--seed", "1"]) == ExitCode.IO
    said = capsys.readouterr()
    assert "full" in said.err or "No space left" in said.err
    (folder,) = small_disk.iterdir()
    first = states(folder)
    assert sum(first.values()) == RUNS
    assert first["planned"] > 0
    assert list(lab_directory.iterdir()) == []
    subprocess.run(["mount", "-o", "remount,size=200m", small_disk], check=True)

    # Ctrl-C.
    with resuming(folder) as process:
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == ExitCode.INTERRUPTED, output
    assert "go on with: tlstax lab resume" in output
    assert list(lab_directory.iterdir()) == []
    interrupted = states(folder)
    assert interrupted.get("done", 0) > first.get("done", 0)
    assert interrupted["planned"] > 0

    # kill -9.
    with resuming(folder) as process:
        process.kill()
    assert main(["lab", "clean"]) == 0
    assert list(lab_directory.iterdir()) == []
    killed = states(folder)
    assert killed["done"] > interrupted["done"]

    # The server is killed under load: one row with its reason; then that row is tried again.
    if killed.get("planned"):
        assert _resume_with_a_dying_server(folder) == ExitCode.FAILED
        (reason,) = reasons(folder)
        assert "ended under load" in reason
        assert states(folder) == {"done": RUNS - 1, "failed": 1}
        assert main(["lab", "resume", "--retry", str(folder)]) == 0
    assert states(folder) == {"done": RUNS}

    document = json.loads((folder / "matrix.json").read_text())
    (pair,) = document["pairs"]
    assert pair["round_count"] == 4
    assert pair["difference"]["low_ns"] is not None, "four rounds have a range"
    steps = sum(step["difference"]["value_ns"] for step in pair["steps"])
    assert steps == pytest.approx(pair["difference"]["value_ns"])
    page = (folder / "matrix.html").read_text()
    assert main(["report", str(folder)]) == 0
    assert (folder / "matrix.html").read_text() == page


WAYS = """\
kind = "matrix"
title = "Two ways"
watch = ["client", "tunnel"]
[baseline]
transport = "veth"
[matrix]
servers = ["mariadb"]
scenarios = ["connect"]
transports = ["veth", "stunnel"]
tls = ["off"]
[scale.smoke]
rounds = 2
rounds_in_turn = 2
operations = 200
"""


class Ways(NamedTuple):
    """A matrix of two ways: what it printed, its document and its page; the most that was stolen.

    The last as a share of a process's CPU time, of all processes by which it was captured.
    """

    said: str
    document: dict[str, Any]
    page: str
    stolen_share: float


@pytest.fixture
def ways(
    measured: Callable[..., Ways],
    tmp_path: Path,
    lab_directory: Path,
    capsys: pytest.CaptureFixture[str],
) -> Ways:
    return measured("ways", lambda: run_ways(tmp_path, capsys))


def run_ways(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ways:
    recipe = tmp_path / "ways.toml"
    recipe.write_text(WAYS)
    stolen_before_ns = host_steal_ns()
    assert main(["lab", "run", str(recipe), "-o", str(tmp_path / "out")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    (folder,) = (tmp_path / "out").iterdir()
    document = json.loads((folder / "matrix.json").read_text())
    shares = [0.0]
    for path in folder.rglob("*.tlstax"):
        with CaptureReader.open(path) as reader:
            rows = [row for row in reader.rows(ProcessClock) if row.process_cpu_ns]
        spent_ns = sum(row.process_cpu_ns or 0 for row in rows)
        shares += [forgiven_ns(rows, stolen_before_ns) / spent_ns] if rows else []
    return Ways(said, document, (folder / "matrix.html").read_text(), max(shares))


def test_clients_and_tunnels_are_in_the_bill_of_their_own_cells(ways: Ways) -> None:
    direct, tunnelled = ways.document["cells"]
    assert direct["processes"] == [], "the tunnel was open all the time, and is not on this way"
    assert {process["role"] for process in tunnelled["processes"]} == {"tunnel"}
    assert all(process["cpu_ns"] > 0 for process in tunnelled["processes"])

    (pair,) = ways.document["pairs"]
    assert pair["both_sides"]["sentence"] in ways.said
    assert "Client and server, per connect" in ways.page


@pytest.mark.timing
def test_what_a_tunnel_takes_both_sides_wait_for(ways: Ways) -> None:
    (pair,) = ways.document["pairs"]
    sides = pair["both_sides"]
    # None: too little CPU time to tell.
    assert sides["closure"] is None or sides["closure"] >= 0.98 - ways.stolen_share
    parts = {part["name"]: part for part in sides["parts"]}
    # Neither of them computes it.
    waits = [parts["client_peer_other"]["difference"], parts["server_peer"]["difference"]]
    assert all(wait["value_ns"] > 0 for wait in waits)
    for which in ("before", "after"):
        client_ns = sum(p[which]["value_ns"] for p in sides["parts"] if p["lane"] == "client")
        latency_ns = pair["totals"][which == "after"]["value_ns"]
        assert client_ns > 0.8 * latency_ns, "its thread exists for as long as its operations"


def _resume_with_a_dying_server(folder: Path) -> int:
    """The server ends at the gate of the first run: its clients are just about to connect."""
    killed: list[int] = []

    def open_and_watch(pid: int, capture: Path, collect: Sequence[str] = ()) -> Recorder:
        made = open_recorder(pid, capture, collect)
        begin_run = made.begin_run

        def begin_and_kill(run_id: int) -> None:
            begin_run(run_id)
            if not killed:
                killed.append(pid)
                os.kill(pid, signal.SIGKILL)

        made.begin_run = begin_and_kill  # type: ignore[method-assign]
        return made

    stages = Stages(
        open_and_watch, join_captures, crypto_instructions, render_report, render_folder
    )
    try:
        runner.resume(folder, stages)
    except TlstaxError as error:
        return int(error.exit_code)
    return 0


def test_a_busy_port_is_told_by_the_servers_own_log(
    tmp_path: Path, lab_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        further = f'[server.busy]\nkind = "mariadb"\noptions = ["port = {port}"]\n'
        recipe = write(tmp_path, server="busy", further=further)
        status = main(["lab", "run", str(recipe), "-o", str(tmp_path / "out")])
    assert status == ExitCode.FAILED
    (folder,) = (tmp_path / "out").iterdir()
    assert states(folder) == {"failed": RUNS}
    for reason in reasons(folder):
        assert "Address already in use" in reason
        assert str(port) in reason
    assert "Address already in use" in capsys.readouterr().err


def test_a_missing_client_is_told_before_anything_starts(
    tmp_path: Path, lab_directory: Path
) -> None:
    recipe = write(tmp_path)
    command = [
        sys.executable,
        "-m",
        "tlstax",
        "lab",
        "run",
        str(recipe),
        "-o",
        str(tmp_path / "out"),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"PATH": str(tmp_path)}
    )
    assert done.returncode == ExitCode.FAILED
    assert "cannot find sysbench" in done.stdout
    assert "apt-get install sysbench" in done.stdout
    (folder,) = (tmp_path / "out").iterdir()
    assert states(folder) == {"failed": RUNS}
