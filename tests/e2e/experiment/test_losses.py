# SPDX-License-Identifier: GPL-2.0-only
"""Refused connections: counted where a driver is told to, and where their queue is full."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tlstax import TlstaxError
from tlstax.workloads import listen_drops
from tlstax.workloads.drivers import make_driver
from tlstax.workloads.drivers.model import DriveRequest, Tick
from tlstax.workloads.endpoint import Endpoint
from tlstax.workloads.results import ARMS, Arm
from tlstax.workloads.servers.configuration import USER_LOAD
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.tls import TlsChoice

ASKED, ALLOWED = 30, 10
# One connection fits a queue of length 0; the others are refused, and their clients try again.
OVERFLOW = """
import socket, sys
listener = socket.create_server(("127.0.0.1", 0), backlog=0)
clients = [socket.socket() for _ in range(8)]
print("ready", flush=True)
sys.stdin.readline()
for client in clients:
    client.setblocking(False)
    client.connect_ex(listener.getsockname())
print("done", flush=True)
sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateServer]:
    with PrivateServer() as running:
        yield running


@pytest.mark.parametrize("arm", ARMS)
def test_refused_connections_are_counted_or_fail_the_run(server: PrivateServer, arm: Arm) -> None:
    endpoint = Endpoint(host="127.0.0.1", port=server.port)
    request = DriveRequest(
        endpoint, server.account(), arm, TlsChoice(), "connect", 2, operation_count=ASKED
    )
    with server.open_administrator() as session:
        session.query(f"ALTER USER {USER_LOAD}@'%' WITH MAX_CONNECTIONS_PER_HOUR {ALLOWED}")
        session.query("FLUSH USER_RESOURCES")
        # The hour of an account begins with its first connection, and 10.11 takes one that was
        # accepted before that, by another thread, for one of the next hour: it counts anew.
        make_driver("sysbench").run(replace(request, operation_count=1, threads_count=1), Tick())
        session.query("FLUSH USER_RESOURCES")
    driven = make_driver("sysbench", {"counts_losses": True}).run(request, Tick())
    assert driven.connection_count == driven.operation_count == ALLOWED
    assert driven.lost_count == ASKED - ALLOWED
    ((error, count),) = driven.lost_with.items()
    assert error.startswith("1226 ")  # ER_USER_LIMIT_REACHED
    assert count == ASKED - ALLOWED
    with pytest.raises(TlstaxError, match="max_connections_per_hour"):
        make_driver("sysbench").run(request, Tick())


@pytest.mark.root
def test_a_full_queue_is_seen_in_its_namespace_only() -> None:
    script = 'ip link set lo up && exec "$0" -c "$1"'
    with subprocess.Popen(
        ["unshare", "--net", "sh", "-c", script, sys.executable, OVERFLOW],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert listen_drops.overflows(process.pid) == 0
        process.stdin.write("go\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"
        assert listen_drops.overflows(process.pid) > 0
        process.stdin.close()
