# SPDX-License-Identifier: GPL-2.0-only
"""Every transport carries a real client to a real server, proves it, and is gone afterwards.

`make test-transports` adds what takes longer: TLSTAX_TRANSPORTS names what is tested.
"""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.document import explain
from tlstax.analysis.model.clients import Intermediaries
from tlstax.analysis.rows import tables
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Run
from tlstax.collectors.commands.experiment import open_recorder
from tlstax.tests.e2e.stolen import forgiven_ns, host_steal_ns
from tlstax.workloads.drivers import make_driver
from tlstax.workloads.drivers.model import Driver, DriveRequest, Tick
from tlstax.workloads.resources import Resources, clean
from tlstax.workloads.results import ARMS, Arm
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.request import ServerRequest
from tlstax.workloads.tls import TlsChoice
from tlstax.workloads.transports import make_transport
from tlstax.workloads.transports.model import Route
from tlstax.workloads.transports.namespaces import interface_bytes, new_namespace
from tlstax.workloads.transports.network import kernel_has_netem, measure_round_trip, open_link
from tlstax.workloads.transports.processes import written_bytes

pytestmark = [pytest.mark.root, pytest.mark.needs("tun")]

CONNECTS = 10
CONNECT_BYTES = 500  # a connect moves at least so many: greeting, log-in, query, answer
COUNTS = (CONNECTS, CONNECTS, 1, 1, 1, 0)  # of a Run; latencies do not matter here
RTT_MS = 20.0
ENDING_NS = 50_000  # what a thread uses after the clock of its process has counted it
REST_NS, REST_PATIENCE_S = 50_000, 5.0
WANTED = os.environ.get(
    "TLSTAX_TRANSPORTS", "veth wan:rtt_ms=20 ssh:cipher=aes256-cbc ssh:session=no stunnel"
).split()
TUNNELS = list({name.partition(":")[0]: name for name in reversed(WANTED)}.values())[::-1]
TUNNELS = [name for name in TUNNELS if not name.startswith(("veth", "wan"))]


class Lab(NamedTuple):
    resources: Resources
    server: PrivateServer
    driver: Driver


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Resources() as resources, new_namespace(resources, "server") as namespace:
        with PrivateServer(ServerRequest(namespace=namespace)) as server:
            yield Lab(resources, server, make_driver("sysbench", {"table_rows": 100}))
        (left,) = resources.listed()
        assert left.name == namespace, "transports leave nothing"
    assert not resources.directory.exists()


@contextmanager
def opened(lab: Lab, wanted: str) -> Iterator[Route]:
    """A transport as TLSTAX_TRANSPORTS names it: KIND[:KEY=VALUE[,KEY=VALUE]]."""
    kind, _, texts = wanted.partition(":")
    pairs = (text.split("=") for text in texts.split(",") if text)
    values = {"yes": True, "no": False}
    options = {key: values.get(text, text) for key, text in pairs}
    transport = make_transport(kind, lab.resources, options)
    transport.check()
    with transport.open(lab.server) as route:
        yield route


def connect(lab: Lab, route: Route, arm: Arm) -> int:
    """CONNECTS connects; their mean latency in ns."""
    request = DriveRequest(
        route.endpoint, lab.server.account(), arm, TlsChoice(), "connect", operation_count=CONNECTS
    )
    driven = lab.driver.run(request, Tick())
    assert driven.connection_count == CONNECTS
    return driven.latencies.mean_ns


@pytest.mark.parametrize("wanted", WANTED)
def test_a_transport_carries_what_goes_through_it(lab: Lab, wanted: str) -> None:
    with opened(lab, wanted) as route:
        assert route.carried is not None
        wrote = {process: written_bytes([process.pid]) for process in route.processes}
        for arm in ARMS:
            before = route.carried()
            connect(lab, route, arm)
            assert route.carried() - before > CONNECTS * CONNECT_BYTES
        for process, wrote_bytes in wrote.items():  # those that carry, not their parents
            assert wrote_bytes() > CONNECTS * CONNECT_BYTES, process
        namespace = route.endpoint.namespace
        assert {"link", "round trip"} <= route.facts.keys()
        if route.processes:
            assert "cipher" in route.facts
    assert namespace is not None
    assert not Path("/run/netns", namespace).exists()
    for process in route.processes:
        assert not _runs(str(process.pid))


class Billed(NamedTuple):
    """What the report says of a tunnel, and by name: CPU time by the scheduler, stolen time."""

    wanted: str
    line: Intermediaries
    spent_ns: dict[str, int]
    stolen_ns: dict[str, int]


@pytest.fixture(params=TUNNELS)
def billed(
    request: pytest.FixtureRequest, lab: Lab, measured: Callable[..., Billed], tmp_path: Path
) -> Billed:
    return measured(request.param, lambda: bill(lab, request.param, tmp_path))


def bill(lab: Lab, wanted: str, tmp_path: Path) -> Billed:
    stolen_before_ns = host_steal_ns()
    with opened(lab, wanted) as route:
        with open_recorder(lab.server.pid, tmp_path / "capture") as recorder:
            for process in route.processes:
                recorder.add_peer(process.pid, process.role, process.name)
            before = {process.pid: cpu_ns(process.pid) for process in route.processes}
            recorder.begin_run(1)
            connect(lab, route, "plaintext")
            await_rest(before)  # tunnels close their connections after the client does
            totals = recorder.end_run()
            spent = {pid: cpu_ns(pid) - ns for pid, ns in before.items()}
            times = totals.start_ns, totals.end_ns
            recorder.add([Run(1, "storm", "connect", "plaintext", 0, *times, 1, *COUNTS, "{}")])
        with CaptureReader.open(tmp_path / "capture") as reader:
            rows = tables.load(reader)
    (line,) = explain.explain(rows).between
    assert rows.intermediaries is not None
    targets = {window.window_id: window.target_id for window in rows.intermediaries.windows}
    clocks = defaultdict(list)
    for row in rows.intermediaries.process_clocks:
        clocks[targets[row.window_id]].append(row)
    stolen = {
        cost.label: forgiven_ns(clocks[cost.target_id], stolen_before_ns) for cost in line.processes
    }
    told = {process.name: spent[process.pid] for process in route.processes}
    return Billed(wanted, line, told, stolen)


@pytest.mark.needs("btf", "uprobes")
def test_a_tunnel_s_processes_are_part_of_the_report(billed: Billed) -> None:
    assert {cost.label for cost in billed.line.processes} == billed.spent_ns.keys()
    if billed.wanted.startswith("stunnel"):
        assert {cost.handshake_count for cost in billed.line.processes} == {CONNECTS}


@pytest.mark.timing
@pytest.mark.needs("btf", "uprobes")
def test_what_a_tunnel_costs_is_what_the_kernel_charged_it(billed: Billed) -> None:
    for cost in billed.line.processes:
        counted_ns, told_ns = cost.cpu.value_ns * CONNECTS, billed.spent_ns[cost.label]
        ends_ns = ENDING_NS * (cost.thread_count - 1)
        stolen_ns = billed.stolen_ns[cost.label]
        assert cost.closure is not None
        assert (1 - cost.closure) * counted_ns <= 0.01 * counted_ns + ends_ns + stolen_ns
        # Threads that have ended are no longer in the kernel's list.
        if cost.thread_count == 1:
            assert counted_ns == pytest.approx(told_ns, rel=0.1, abs=1e6 + stolen_ns)
        else:
            assert counted_ns >= told_ns * 0.9 - 1e6


def await_rest(pids: Iterable[int]) -> None:
    """Return once processes have used next to nothing for a while, or anyhow after some seconds."""
    deadline = time.monotonic() + REST_PATIENCE_S
    spent_ns = REST_NS
    while spent_ns >= REST_NS and time.monotonic() < deadline:
        before_ns = sum(map(cpu_ns, pids))
        time.sleep(0.2)
        spent_ns = sum(map(cpu_ns, pids)) - before_ns


def cpu_ns(pid: int) -> int:
    """CPU time of a process's living threads by the scheduler."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in threads)


@pytest.mark.timing
def test_a_network_of_given_delay(lab: Lab) -> None:
    with opened(lab, f"wan:rtt_ms={RTT_MS}") as route:
        assert route.rtt_ns is not None
        assert RTT_MS * 1e6 <= route.rtt_ns < RTT_MS * 1.25e6
        # A TCP handshake, the server's greeting and the answer to the log-in, and to the query.
        assert connect(lab, route, "plaintext") >= 4 * RTT_MS * 1e6


def test_netem_or_its_substitute(lab: Lab) -> None:
    """Whichever the kernel has: both where it has netem."""
    namespace = lab.server.request.namespace
    assert namespace is not None
    for netem in (False, True) if kernel_has_netem(namespace) else (False,):
        with open_link(lab.resources, namespace, RTT_MS, netem=netem) as link:
            assert ("netem" in link.facts["link"]) == netem
            before = link.carried_bytes()
            trip = measure_round_trip(link.client, link.server_address)
            assert trip.low_ns >= RTT_MS * 1e6
            assert link.carried_bytes() > before


def test_several_at_a_time(lab: Lab) -> None:
    with opened(lab, "veth") as first, opened(lab, "wan:rtt_ms=1") as second:
        assert first.endpoint.host != second.endpoint.host
        for route in (first, second):
            connect(lab, route, "plaintext")


def test_what_cannot_be(lab: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(TlstaxError) as caught:
        make_transport("wan", lab.resources, {"rtt_ms": 0.01}).check()
    assert caught.value.exit_code == ExitCode.USAGE
    with pytest.raises(TlstaxError) as caught:
        make_transport("pigeon", lab.resources)
    assert "veth" in caught.value.why
    monkeypatch.setattr("tlstax.workloads.servers.programs.find_program.__defaults__", ("/none",))
    with pytest.raises(TlstaxError) as caught:
        make_transport("stunnel", lab.resources).check()
    assert caught.value.exit_code == ExitCode.HOST
    assert "apt-get install" in caught.value.do


KILLED = """
import os, signal, sys
from contextlib import ExitStack
from tlstax.workloads.resources import Resources
from tlstax.workloads.servers.mariadb import PrivateServer, ServerRequest
from tlstax.workloads.transports import make_transport
from tlstax.workloads.transports.network import new_namespace

stack = ExitStack()
resources = stack.enter_context(Resources())
namespace = stack.enter_context(new_namespace(resources, "server"))
server = stack.enter_context(PrivateServer(ServerRequest(namespace=namespace)))
for kind in sys.argv[1:]:
    route = stack.enter_context(make_transport(kind, resources).open(server))
    print(*(process.pid for process in route.processes), end=" ")
print(server.pid, resources.tag, flush=True)
signal.pause()
"""


def test_kill_leaves_nothing_behind(lab_directory: Path) -> None:
    kinds = list(dict.fromkeys(name.partition(":")[0] for name in WANTED))
    command = [sys.executable, "-c", KILLED, *kinds]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        *pids, tag = victim.stdout.readline().split()
        assert pids, shlex.join(command)
        assert clean()[0] == [], "it is alive"
        victim.send_signal(signal.SIGKILL)
    removed, in_use = clean()
    assert in_use == []
    assert any("namespace" in line for line in removed)
    assert not any(tag in path.name for path in Path("/run/netns").iterdir())
    for pid in pids:
        assert not _runs(pid), pid
    assert clean() == ([], [])
    deadline_s = 20.0
    while list(lab_directory.iterdir()) and deadline_s > 0:  # the server's supervisor removes it
        subprocess.run(["sleep", "0.1"], check=True)
        deadline_s -= 0.1


def _runs(pid: str) -> bool:
    """Whether a process is there and more than a zombie, given a moment to end."""
    for _ in range(50):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
        except OSError:
            return False
        if state == "Z":
            return False
        subprocess.run(["sleep", "0.1"], check=True)
    return True


def test_counters_of_an_interface(lab: Lab) -> None:
    assert lab.server.request.namespace is not None
    assert interface_bytes(lab.server.request.namespace, "lo") >= 0
