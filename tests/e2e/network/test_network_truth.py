# SPDX-License-Identifier: GPL-2.0-only
"""A known network delay is found where it belongs: round trips in the handshake, on both sides.

Each case is measured over a link without a delay and over one with it, in turns. The difference is
held against the round trip that echoes over the same link took. What a client computes between two
flights, the server waits for over both, so it falls out; what a busy host adds to a wait is only
ever more, so lower quartiles are compared.

A server that waited computes longer, whatever made it wait: its caches are cold. That a delay costs
no CPU time is therefore held against a client nearby that waits as long before all that it sends,
in turns that go on until the interval of their ratios is narrow, as neighbours of the host can make
the CPU time of a single series a third longer.

TLSTAX_TRANSPORTS (make test-transports) adds the cases that are not in the default set.
"""

import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tlstax.collectors.capture.order_statistics import median_bounds
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Handshake, Target, Window
from tlstax.collectors.recording.by_recorder.recorder import Recorder
from tlstax.collectors.recording.request import Request
from tlstax.workloads.drivers import make_driver
from tlstax.workloads.drivers.model import DriveRequest, Tick
from tlstax.workloads.resources import Resources
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.request import ServerRequest
from tlstax.workloads.tls import TlsChoice
from tlstax.workloads.transports import make_transport
from tlstax.workloads.transports.model import Route
from tlstax.workloads.transports.namespaces import new_namespace

pytestmark = [
    pytest.mark.root,
    pytest.mark.needs("btf", "uprobes", "tun"),
]

RTT_MS = 40.0
TURNS, CONNECTS, WATCHED_CONNECTS, WAITING_CONNECTS = 6, 3, 8, 4
MOST_CONTROLS = 6
TOLERATED_TRIPS = 0.2
TOLERATED_CPU = 0.2
TOLERATED_OF_CONTENTION = 0.1
LINKS = ("plain", "delayed")
NEAR_MS = 0.2  # the same kind of link with the least delay
ARMS = ("far", "near and waiting")
CLIENT = Path(__file__).resolve().parents[2] / "testprogs/waiting_client.py"


@dataclass(frozen=True)
class Case:
    """A handshake and the round trips that it takes."""

    version: str
    server_group: str | None  # the only one that the server accepts; clients begin with X25519
    server_trips: int
    client_trips: int


CASES = {
    "TLS 1.3": Case("TLSv1.3", None, 1, 1),
    "TLS 1.2": Case("TLSv1.2", None, 1, 2),
    "TLS 1.3 with HelloRetryRequest": Case("TLSv1.3", "prime256v1", 2, 2),
}
WANTED = list(CASES) if "TLSTAX_TRANSPORTS" in os.environ else ["TLS 1.3"]


@dataclass(frozen=True)
class Seen:
    """Handshakes by link: all of the server's, and a client's where it was recorded too.

    Then the server's by ARMS, turn by turn.
    """

    rtt_ns: int
    server: dict[str, list[Handshake]]
    client: dict[str, list[Handshake]]
    control: list[dict[str, list[Handshake]]]

    def trips(self, shakes: dict[str, list[Handshake]]) -> float:
        """Round trips that the delay added to the wait for the other side."""
        plain, delayed = (quartile(s.blocked_network_ns for s in shakes[link]) for link in LINKS)
        return (delayed - plain) / self.rtt_ns

    def contention(self) -> float:
        """How long the server waited for a CPU, in CPU times: whoever had it spoiled its caches."""
        shakes = [shake for turn in self.control for shakes in turn.values() for shake in shakes]
        return sum(s.runnable_ns for s in shakes) / sum(s.on_cpu_ns for s in shakes)


def cpu_ratio(control: Iterable[dict[str, list[Handshake]]]) -> tuple[float, float]:
    """CPU time of the server for a handshake, far to near: 95 % interval of its median."""
    ratios = []
    for turn in control:
        far, near = (statistics.median(s.on_cpu_ns for s in turn[arm]) for arm in ARMS)
        ratios.append(far / near)
    return median_bounds(sorted(ratios))


def quartile(values: Iterable[int]) -> float:
    """The lower one."""
    return statistics.quantiles(values, n=4)[0]


@pytest.fixture(scope="module", params=WANTED)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture
def seen(case: Case, measured: Callable[..., Seen], tmp_path: Path) -> Seen:
    return measured(case, lambda: see(case, tmp_path / "capture"))


def see(case: Case, path: Path) -> Seen:
    with Resources() as resources, new_namespace(resources, "server") as namespace:
        wanted = ServerRequest(namespace=namespace, tls=TlsChoice(group=case.server_group))
        with (
            PrivateServer(wanted) as server,
            make_transport("veth", resources).open(server) as plain,
            make_transport("wan", resources, {"rtt_ms": RTT_MS}).open(server) as delayed,
            make_transport("wan", resources, {"rtt_ms": NEAR_MS}).open(server) as near,
        ):
            assert delayed.rtt_ns is not None
            rtt_ns = delayed.rtt_ns
            record(server, (plain, delayed), case, path)
            control: list[dict[str, list[Handshake]]] = []
            for number in range(MOST_CONTROLS):
                control += control_turns(
                    server, (delayed, near), case, path.with_name(f"control{number}")
                )
                low, high = cpu_ratio(control)
                if high - low < TOLERATED_CPU:
                    break
    with CaptureReader.open(path) as reader:
        role_of = {row.target_id: row.role for row in reader.rows(Target)}
        windows = {row.window_id: row for row in reader.rows(Window)}
        shakes = [row for row in reader.rows(Handshake) if windows[row.window_id].run_id]
    assert {row.outcome for row in shakes} == {"success"}
    assert {row.tls_version for row in shakes} == {case.version}
    assert {row.resumed for row in shakes} <= {0, None}
    found: dict[str, dict[str, list[Handshake]]] = {
        side: {link: [] for link in LINKS} for side in ("server", "client")
    }
    for row in shakes:
        window = windows[row.window_id]
        assert window.run_id is not None
        found[role_of[window.target_id]][LINKS[window.run_id % 2]].append(row)
    seen = Seen(rtt_ns, **found, control=control)
    print(f"\n{case}: round trips of the server {seen.trips(seen.server):.3f}, of the client")
    print(f"{seen.trips(seen.client):.3f}; CPU time far to near {low:.3f} to {high:.3f}")
    print(f"in {len(control)} turns with a contention of {seen.contention():.2f}")
    return seen


def record(server: PrivateServer, routes: Sequence[Route], case: Case, path: Path) -> None:
    """Even runs over the first route, odd ones over the second; the last two with the client."""
    choice = TlsChoice(version=case.version)
    account = server.account(choice)
    driver = make_driver("sysbench", {"table_rows": 100})
    with Recorder(Request(server.pid, path)) as recorder:
        for run in range(2, 2 * TURNS + 4):
            is_watched = run >= 2 * TURNS + 2

            def at_gate(pids: Sequence[int], run: int = run, is_watched: bool = is_watched) -> None:
                if is_watched:
                    recorder.add_client(pids[0])
                recorder.begin_run(run)

            count = WATCHED_CONNECTS if is_watched else CONNECTS
            endpoint = routes[run % 2].endpoint
            wanted = DriveRequest(
                endpoint, account, "tls", choice, "connect", operation_count=count
            )
            driver.run(wanted, Tick(recorder.poll, at_gate))
            recorder.end_run()


def control_turns(
    server: PrivateServer, routes: Sequence[Route], case: Case, path: Path
) -> list[dict[str, list[Handshake]]]:
    """Even runs over the first route, odd ones over the second, whose client waits instead."""
    with Recorder(Request(server.pid, path)) as recorder:
        for run in range(2, 2 * TURNS + 2):
            endpoint = routes[run % 2].endpoint
            wait_ms = RTT_MS if run % 2 else 0.0
            version = case.version.replace(".", "_")
            recorder.begin_run(run)
            command = [*endpoint.prefix, sys.executable, CLIENT, endpoint.host, endpoint.port]
            wanted = [version, WAITING_CONNECTS, wait_ms]
            with subprocess.Popen([str(part) for part in (*command, *wanted)]) as client:
                while client.poll() is None:
                    recorder.poll(0.05)
            assert client.returncode == 0
            recorder.end_run()
    turns: list[dict[str, list[Handshake]]] = [{arm: [] for arm in ARMS} for _ in range(TURNS)]
    with CaptureReader.open(path) as reader:
        run_of = {row.window_id: row.run_id for row in reader.rows(Window)}
        for row in reader.rows(Handshake):
            if run_id := run_of[row.window_id]:
                turns[run_id // 2 - 1][ARMS[run_id % 2]].append(row)
    return turns


def test_every_handshake_is_recorded(seen: Seen) -> None:
    for link in LINKS:
        assert len(seen.server[link]) == TURNS * CONNECTS + WATCHED_CONNECTS
        assert len(seen.client[link]) == WATCHED_CONNECTS
    assert all(len(shakes) == WAITING_CONNECTS for turn in seen.control for shakes in turn.values())


@pytest.mark.timing
def test_round_trips_of_the_server(seen: Seen, case: Case) -> None:
    assert seen.trips(seen.server) == pytest.approx(case.server_trips, abs=TOLERATED_TRIPS)


@pytest.mark.timing
def test_round_trips_of_the_client(seen: Seen, case: Case) -> None:
    assert seen.trips(seen.client) == pytest.approx(case.client_trips, abs=TOLERATED_TRIPS)


@pytest.mark.timing
def test_a_delay_is_no_cpu_time(seen: Seen) -> None:
    low, high = cpu_ratio(seen.control)
    tolerated = TOLERATED_CPU + TOLERATED_OF_CONTENTION * seen.contention()
    assert 1 - tolerated < low
    assert high < 1 + tolerated
