# SPDX-License-Identifier: GPL-2.0-only
"""Pooling proxies before a real server: clients come and go, and its connections stay.

Part of `make test-transports`: MySQL Router and MySQL 9.7 of Debian sid, and ProxySQL with this
host's MariaDB where TLSTAX_PROXYSQL names one.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.document import explain
from tlstax.analysis.rows import tables
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Run
from tlstax.collectors.commands.experiment import open_recorder
from tlstax.workloads.drivers import make_driver
from tlstax.workloads.drivers.model import DriveRequest, Tick
from tlstax.workloads.resources import Resources
from tlstax.workloads.results import ARMS
from tlstax.workloads.servers.catalogue import find_kind
from tlstax.workloads.servers.lab_server import open_server
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.request import ServerRequest
from tlstax.workloads.tls import TlsChoice
from tlstax.workloads.transports import make_transport
from tlstax.workloads.transports.model import Route, Value
from tlstax.workloads.transports.namespaces import new_namespace
from tlstax.workloads.transports.proxysql import VARIABLE

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

CONNECTS = 40
FEW = 4  # connections that a pool may open for them
PROXIES: dict[str, tuple[str, dict[str, Value]]] = {"mysqlrouter": ("mysql97", {})}
if VARIABLE in os.environ:
    PROXIES |= {"proxysql": ("mariadb", {}), "proxysql socket": ("mariadb", {"socket": True})}


class Lab(NamedTuple):
    server: PrivateServer
    route: Route


@pytest.fixture(scope="module", params=PROXIES)
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    name, options = PROXIES[request.param]
    kind = request.param.split()[0]
    with (
        Resources() as resources,
        new_namespace(resources, "server") as namespace,
        open_server(find_kind(name), ServerRequest(namespace=namespace)) as server,
    ):
        transport = make_transport(kind, resources, options)
        transport.check()
        with transport.open(server) as route:
            yield Lab(server, route)
        assert not Path(f"/proc/{route.processes[0].pid}").exists()
        assert len(resources.listed()) == 1, "the server's namespace is all that is left"


def test_clients_come_and_go_and_the_server_keeps_its_connections(lab: Lab, tmp_path: Path) -> None:
    server, route = lab
    assert route.carried is not None
    assert route.ends_tls
    assert route.pools_connections
    account, driver = server.account(), make_driver("sysbench", {"table_rows": 100})
    (proxy,) = route.processes
    with (
        open_recorder(server.pid, tmp_path / "capture") as recorder,
        server.open_status() as status,
    ):
        recorder.add_peer(proxy.pid, proxy.role, proxy.name)
        for run, arm in enumerate(ARMS, 1):
            before, carried = status.read(), route.carried()
            recorder.begin_run(run)
            wanted = DriveRequest(
                route.endpoint, account, arm, TlsChoice(), "connect", operation_count=CONNECTS
            )
            driven = driver.run(wanted, Tick(recorder.poll))
            totals = recorder.end_run()
            assert driven.connection_count == CONNECTS
            assert status.read().since(before, "Connections") <= FEW
            assert route.carried() > carried
            times = totals.start_ns, totals.end_ns
            counts = CONNECTS, CONNECTS, 1, 1, 1, 0
            recorder.add([Run(run, "storm", "connect", arm, 0, *times, 1, *counts, "{}")])
    with CaptureReader.open(tmp_path / "capture") as reader:
        lines = {line.name: line for line in explain.explain(tables.load(reader)).between}
    (tls,) = lines["storm/connect/tls"].processes
    (plain,) = lines["storm/connect/plaintext"].processes
    assert (tls.role, tls.label) == ("proxy", proxy.name)
    # It ends the clients' TLS: as many handshakes, and their CPU time.
    assert CONNECTS <= tls.handshake_count <= CONNECTS + FEW
    assert plain.handshake_count <= FEW
    assert tls.cpu.value_ns > plain.cpu.value_ns


def test_a_server_that_the_router_does_not_know() -> None:
    with Resources() as resources, new_namespace(resources, "server") as namespace:
        with PrivateServer(ServerRequest(namespace=namespace)) as server:
            router = make_transport("mysqlrouter", resources)
            with pytest.raises(TlstaxError) as caught, router.open(server):
                pass
        assert caught.value.exit_code == ExitCode.TARGET
        assert "MariaDB" in caught.value.what


def test_no_proxysql(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with Resources() as resources:
        wanted = make_transport("proxysql", resources, {"program": str(tmp_path / "proxysql")})
        with pytest.raises(TlstaxError) as caught:
            wanted.check()
    assert caught.value.exit_code == ExitCode.HOST
    assert "--proxysql" in caught.value.do
