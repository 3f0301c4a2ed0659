# SPDX-License-Identifier: GPL-2.0-only
"""Real clients recorded together with a real server: the same handshakes, CPU time that agrees."""

import json
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tlstax.analysis.document import explain
from tlstax.analysis.model.clients import EndToEnd
from tlstax.analysis.rows import tables
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import (
    CommandPart,
    Handshake,
    PrimitiveCalls,
    System,
    Target,
    Window,
)
from tlstax.collectors.recording.by_recorder.recorder import Recorder
from tlstax.collectors.recording.request import Request
from tlstax.probes.model import Level
from tlstax.tests.e2e.stolen import forgiven_ns, host_steal_ns
from tlstax.workloads.drivers.model import DriveResult
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.results import RunTotals
from tlstax.workloads.servers.mariadb import PrivateServer

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

CLIENT = Path(__file__).resolve().parents[2] / "testprogs" / "tls_client.py"
CONNECTS = 40
SECONDS = 3
# Beside the accounts of the server's threads, which the kernel holds. Server and client each have
# 6 MiB of unwind tables and of the ring for stacks, and their own accounts.
RESIDENT_BYTES = (40 + 2 * 10) << 20


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateServer]:
    with PrivateServer() as server:
        yield server


@dataclass(frozen=True)
class Storm:
    """What the driver, the recorder and the report say of one run."""

    driven: DriveResult
    totals: RunTotals
    before_ns: int  # CPU time of the driver before it was recorded
    rows: tables.Tables
    stolen_ns: int  # of the driver


@pytest.fixture
def storm(server: PrivateServer, measured: Callable[..., Any], tmp_path: Path) -> Storm:
    found: Storm = measured("storm", lambda: make_storm(server, tmp_path / "capture"))
    return found


def make_storm(server: PrivateServer, path: Path) -> Storm:
    driver = Sysbench.of_server(server, table_rows=100)
    before_ns, stolen_before_ns = 0, host_steal_ns()
    with Recorder(Request(server.pid, path, sample_hz=499)) as recorder:

        def at_gate(pid: int) -> None:
            nonlocal before_ns
            recorder.add_client(pid)
            recorder.begin_run(1)
            before_ns = int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])

        load = Load(SCENARIOS["connect"], 2, SECONDS)
        driven = driver.run(load, "tls", recorder.poll, at_gate)
        totals = recorder.end_run()
    with CaptureReader.open(path) as reader:
        rows = tables.load(reader)
    assert rows.clients is not None
    stolen_ns = forgiven_ns(rows.clients.process_clocks, stolen_before_ns)
    return Storm(driven, totals, before_ns, rows, stolen_ns)


def both_sides(rows: tables.Tables) -> EndToEnd:
    (line,) = explain.explain(rows).end_to_end
    return line


def test_both_sides_count_the_same_handshakes(storm: Storm) -> None:
    assert storm.totals.client_handshake_count == storm.driven.connection_count
    assert storm.totals.handshake_count == storm.driven.connection_count
    clients = storm.rows.clients
    assert clients is not None
    ended = Counter[str]()
    for row in clients.phase_counts:
        ended[row.phase] += row.ended_count
    assert ended["connect"] == ended["disconnect"] == storm.driven.connection_count
    assert {row.tls_version for row in clients.handshakes} == {"TLSv1.3"}
    assert {row.group_name for row in clients.handshakes} == {"X25519"}


@pytest.mark.timing
def test_the_client_s_cpu_time_is_what_the_kernel_charged_it(storm: Storm) -> None:
    assert storm.rows.clients is not None
    on_cpu_ns = sum(row.time_ns for row in storm.rows.clients.ledger if row.state == "on_cpu")
    told_ns = storm.driven.client_cpu_ns - storm.before_ns
    assert on_cpu_ns == pytest.approx(told_ns, abs=0.03 * told_ns + storm.stolen_ns)


def test_windows_of_both_sides_are_the_same(storm: Storm) -> None:
    assert storm.rows.clients is not None
    server = {(row.start_ns, row.end_ns) for row in storm.rows.windows}
    client = {(row.start_ns, row.end_ns) for row in storm.rows.clients.windows}
    assert len(client) >= SECONDS
    assert client <= server


def test_the_client_s_lane_has_its_counts_and_parts(storm: Storm) -> None:
    line = both_sides(storm.rows)
    shakes = dict.fromkeys(("client", "server"), storm.driven.connection_count)
    assert line.handshake_counts == shakes
    assert line.operation_counts["client"] == storm.driven.connection_count
    names = {part.name for part in line.parts}
    assert {"client_connect_cpu", "client_handshake_cpu", "server_handshake_cpu"} <= names


@pytest.mark.timing
def test_the_client_s_threads_close_and_its_lane_is_the_operation(storm: Storm) -> None:
    line = both_sides(storm.rows)
    assert line.closure is not None
    told_ns = storm.driven.client_cpu_ns - storm.before_ns
    assert line.closure >= 0.99 - storm.stolen_ns / told_ns
    # Both threads all the time: the driver knows the same mean by its own clock, from within.
    threads_ns = 2 * sum(row.end_ns - row.start_ns for row in storm.rows.windows if row.run_id == 1)
    lane_ns = line.latency.value_ns * line.operation_counts["client"]
    assert lane_ns == pytest.approx(threads_ns, rel=0.1)
    told_ns = storm.driven.latencies.mean_ns * storm.driven.operation_count
    assert lane_ns == pytest.approx(told_ns, rel=0.1)


def test_the_recorder_stays_small(
    server: PrivateServer, spawn: Callable[..., "subprocess.Popen[str]"], tmp_path: Path
) -> None:
    capture = tmp_path / "capture"
    command = [sys.executable, "-m", "tlstax", "attach", str(server.pid), "--for", f"{SECONDS}s"]
    recorders: list[subprocess.Popen[str]] = []

    def at_gate(pid: int) -> None:
        more = ["--client", str(pid), "--quiet", "-o", str(capture)]
        recorder = spawn([*command, *more], stderr=subprocess.PIPE, text=True)
        recorders.append(recorder)
        assert recorder.stderr is not None
        assert "attached" in recorder.stderr.readline()

    load = Load(SCENARIOS["connect"], 2, SECONDS)
    Sysbench.of_server(server, table_rows=100).run(load, "tls", time.sleep, at_gate)
    _, said = recorders[0].communicate(timeout=60)
    assert recorders[0].returncode == 0, said
    with CaptureReader.open(capture) as reader:
        assert {row.role for row in reader.rows(Target)} == {"server", "client"}
        own_bytes = max(row.engine_rss_bytes for row in reader.rows(System))
        assert own_bytes - int(reader.meta()["thread_room_bytes"]) < RESIDENT_BYTES


@pytest.mark.parametrize(
    "more",
    [("--functions", "cipher"), ("--level", "flow", "--calibrate")],
    ids=["functions", "stretches"],
)
def test_what_else_is_recorded_goes_with_a_client(
    server: PrivateServer, spawn: Callable[..., "subprocess.Popen[str]"], tmp_path: Path,
    more: tuple[str, ...],
) -> None:  # fmt: skip
    capture = tmp_path / "capture"
    command = [sys.executable, "-m", "tlstax", "attach", str(server.pid), "--quiet", *more]
    recorders: list[subprocess.Popen[str]] = []

    def at_gate(pid: int) -> None:
        words = [*command, "--client", str(pid), "-o", str(capture)]
        recorder = spawn(words, stderr=subprocess.PIPE, text=True)
        recorders.append(recorder)
        assert recorder.stderr is not None
        while "attached" not in (line := recorder.stderr.readline()):
            assert line, "it ended"

    load = Load(SCENARIOS["connect"], 2, 3 * SECONDS)
    driven = Sysbench.of_server(server, table_rows=100).run(load, "tls", time.sleep, at_gate)
    recorders[0].send_signal(signal.SIGINT)
    _, said = recorders[0].communicate(timeout=60)
    assert recorders[0].returncode == 0, said
    with CaptureReader.open(capture) as reader:
        assert {row.role for row in reader.rows(Target)} == {"server", "client"}
        windows = {row.window_id: row.target_id for row in reader.rows(Window)}
        found = Counter(windows[row.window_id] for row in reader.rows(Handshake))
        assert found[1] == found[2] == driven.connection_count
        of_functions = {windows[row.window_id] for row in reader.rows(PrimitiveCalls)}
        of_stretches = {windows[row.window_id] for row in reader.rows(CommandPart)}
    assert (of_functions, of_stretches) == (({1}, set()) if "--functions" in more else (set(), {1}))


class Strange(NamedTuple):
    """A client of which tlstax knows no more than its library: its own times, what was recorded."""

    library: str
    handshake_ns: int
    rows: tables.Tables


@pytest.fixture(params=["openssl", "gnutls"])
def strange(
    request: pytest.FixtureRequest, server: PrivateServer, measured: Callable[..., Any],
    tmp_path: Path,
) -> Strange:  # fmt: skip
    found: Strange = measured(
        request.param, lambda: record_strange(request.param, server, tmp_path)
    )
    return found


def record_strange(library: str, server: PrivateServer, tmp_path: Path) -> Strange:
    ca_file = server.client_directory / "cacert.pem"
    arguments = [library, str(server.port), str(ca_file), str(CONNECTS)]
    command = [sys.executable, str(CLIENT), *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        await_library(client.pid, {"openssl": "libssl", "gnutls": "libgnutls"}[library])
        request = Request(
            server.pid, tmp_path / "capture", clients=(client.pid,), client_level=Level.RECORD
        )
        with Recorder(request) as recorder:
            client.stdin.write(b"\n")
            client.stdin.close()
            while client.poll() is None:
                recorder.poll(0.2)
            recorder.poll(0.2)
        told = json.loads(client.stdout.read())
    assert client.returncode == 0
    with CaptureReader.open(tmp_path / "capture") as reader:
        return Strange(library, sum(told["handshake_ns"]), tables.load(reader))


def test_a_client_without_a_known_library(strange: Strange) -> None:
    library, rows = strange.library, strange.rows
    assert rows.clients is not None
    (target,) = rows.clients.targets
    assert re.fullmatch(r"3\.\d+\.\d+", target.tls_version)
    assert target.tls_library == {"openssl": "OpenSSL", "gnutls": "GnuTLS"}[library]
    shakes = rows.clients.handshakes
    assert [row.outcome for row in shakes] == ["success"] * CONNECTS
    assert sum(row.outcome == "success" for row in rows.handshakes) == CONNECTS
    ended = Counter[str]()
    for row in rows.clients.phase_counts:
        ended[row.phase] += row.ended_count
    assert ended["handshake"] == ended["record_write"] == CONNECTS
    assert ended["record_read"] >= CONNECTS
    assert ended["keygen"] >= CONNECTS
    assert ended["derive"] >= CONNECTS
    assert ended["verify"] >= CONNECTS
    assert ended["certificate"] >= CONNECTS


@pytest.mark.timing
def test_its_handshakes_take_what_it_measured_itself(strange: Strange) -> None:
    assert strange.rows.clients is not None
    shakes = strange.rows.clients.handshakes
    # Its own clock also counts the way into the library.
    measured_ns = sum(row.end_ns - row.start_ns for row in shakes)
    assert measured_ns == pytest.approx(strange.handshake_ns, rel=0.1)


def await_library(pid: int, name: str) -> None:
    """Wait until the process has mapped the library."""
    for _ in range(500):
        if f"/{name}" in Path(f"/proc/{pid}/maps").read_text():
            return
        subprocess.run(["sleep", "0.02"], check=True)
    pytest.fail(f"{name} was not mapped")
