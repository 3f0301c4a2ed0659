# SPDX-License-Identifier: GPL-2.0-only
"""A replica of a TLS source: whose threads are whose, on both, and what they wait for."""

import secrets
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tlstax.analysis.document.closing import close
from tlstax.analysis.rows import ledger
from tlstax.analysis.rows.tables import load
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Handshake, Ledger, Loss, PhaseCount, Thread, Window
from tlstax.collectors.host.features import HOST
from tlstax.collectors.recording.by_recorder.recorder import Recorder
from tlstax.collectors.recording.request import Request
from tlstax.probes.model import Level
from tlstax.tests.e2e.levels.both_levels import Both, watched
from tlstax.workloads.servers.configuration import DATABASE
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.programs import Binaries
from tlstax.workloads.servers.request import ServerRequest
from tlstax.workloads.servers.status import StatusSession

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

ROWS_COUNT = 60
PAUSE_S = 1.0
PATIENCE_S = 90.0
# Without a replica nothing waits for one: the account that it needs is made before it comes.
SEMI_SYNC = (
    "rpl_semi_sync_master_enabled = ON",
    "rpl_semi_sync_master_wait_no_slave = OFF",
    "rpl_semi_sync_slave_enabled = ON",
)
TABLE = f"{DATABASE}.replicated"
MADE = "SELECT COUNT(*) FROM information_schema.tables WHERE table_name = 'replicated'"
# The replica is there, and where commits wait for it, they do.
FED = """\
SELECT (SELECT COUNT(*) FROM information_schema.processlist WHERE command = 'Binlog Dump')
AND (@@rpl_semi_sync_master_enabled = (SELECT variable_value
FROM information_schema.global_status WHERE variable_name = 'Rpl_semi_sync_master_clients'))"""


class Seen(NamedTuple):
    """What one recording holds."""

    roles: dict[str, ledger.Totals]
    handshakes: list[Handshake]
    ended: Counter[str]
    losses: Counter[str]
    closed: bool

    def wait_ns(self, role: str, phase: str, state: str) -> int:
        """Time of a role's threads in a phase and state."""
        return self.roles[role].get((phase, state), 0)


def read(path: Path) -> Seen:
    """Everything of a capture that the tests ask for."""
    with CaptureReader.open(path) as reader:
        windows = {window.window_id for window in reader.rows(Window)}
        ended: Counter[str] = Counter()
        for row in reader.rows(PhaseCount):
            ended[row.phase] += row.ended_count
        return Seen(
            ledger.by_role(reader.rows(Ledger), reader.rows(Thread), windows),
            list(reader.rows(Handshake)),
            ended,
            Counter({loss.kind: loss.lost_count for loss in reader.rows(Loss)}),
            bool(close(load(reader)).ok),
        )


@contextmanager
def pair(semi_sync: tuple[str, ...]) -> Iterator[tuple[PrivateServer, PrivateServer]]:
    """A source and its replica to be."""
    source = ServerRequest(options=("log_bin = binlog", "server_id = 1", *semi_sync))
    replica = ServerRequest(options=("relay_log = relay", "server_id = 2", *semi_sync))
    with PrivateServer(source) as first, PrivateServer(replica) as second:
        yield first, second


def administrator(server: PrivateServer) -> StatusSession:
    """A connection that may do everything, in plaintext through the socket."""
    return StatusSession(Binaries.find().client, server.directory.client / "administrator.cnf")


def replicate(
    source: PrivateServer, replica: PrivateServer, captures: tuple[Path, Path], level: Level
) -> None:
    """Record both while the replica connects over TLS, is fed some rows, and waits for more."""
    with (
        follow(source, replica) as (asked, follower),
        Recorder(Request(source.pid, captures[0], level=level)) as first,
        Recorder(Request(replica.pid, captures[1], level=level)) as second,
    ):
        feed(asked, follower)
        first.poll(PAUSE_S)
        second.poll(PAUSE_S)


@contextmanager
def follow(
    source: PrivateServer, replica: PrivateServer
) -> Iterator[tuple[StatusSession, StatusSession]]:
    """Sessions of both; the replica knows its source, and has not begun."""
    password = secrets.token_hex(16)
    with administrator(source) as asked, administrator(replica) as follower:
        user = f"replicator@'127.0.0.1' IDENTIFIED BY '{password}' REQUIRE SSL"
        asked.query(f"CREATE USER {user}")
        asked.query("GRANT REPLICATION SLAVE ON *.* TO replicator@'127.0.0.1'")
        ((file, position, *_),) = asked.query("SHOW MASTER STATUS")
        follower.query(
            f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {source.port},"
            f" MASTER_USER = 'replicator', MASTER_PASSWORD = '{password}', MASTER_SSL = 1,"
            f" MASTER_LOG_FILE = '{file}', MASTER_LOG_POS = {position},"
            f" MASTER_SSL_CA = '{source.directory.server}/ca.pem'"
        )
        yield asked, follower


def feed(asked: StatusSession, follower: StatusSession) -> None:
    """Begin, feed the replica some rows, and await that it has them."""
    follower.query("START SLAVE")
    await_answer(asked, FED)
    asked.query(f"CREATE TABLE {TABLE} (id INT PRIMARY KEY, text VARCHAR(50)) ENGINE=InnoDB")
    for number in range(ROWS_COUNT):
        asked.query(f"INSERT INTO {TABLE} VALUES ({number}, 'row')")
    await_answer(follower, MADE)
    await_answer(follower, f"SELECT COUNT(*) = {ROWS_COUNT} FROM {TABLE}")


def await_answer(session: StatusSession, query: str) -> None:
    """Return once the query's answer is 1."""
    deadline = time.monotonic() + PATIENCE_S
    while session.query(query) != [["1"]]:
        assert time.monotonic() < deadline, query
        time.sleep(0.05)


@pytest.fixture(scope="module", params=[(), SEMI_SYNC], ids=["asynchronous", "semisync"])
def semi_sync(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Options of both servers."""
    return tuple(request.param)


@pytest.fixture(scope="module", params=[Level.RECORD, Level.FLOW], ids=["record", "flow"])
def level(request: pytest.FixtureRequest) -> Level:
    """What is probed."""
    if request.param == Level.FLOW and not HOST.socket_events:
        pytest.skip("this kernel lacks events of sockets")
    return Level(request.param)


@pytest.fixture(scope="module")
def recorded(
    semi_sync: tuple[str, ...], level: Level, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Seen, Seen]:
    """The source and the replica."""
    folder = tmp_path_factory.mktemp("replication")
    captures = (folder / "source.tlstax", folder / "replica.tlstax")
    with pair(semi_sync) as servers:
        replicate(*servers, captures, level)
    return read(captures[0]), read(captures[1])


def test_a_source_feeds_its_replica_outside_of_commands(
    recorded: tuple[Seen, Seen], semi_sync: tuple[str, ...], level: Level
) -> None:
    source, _ = recorded
    dump = source.roles["binlog_dump"]
    waited_ns = source.wait_ns("binlog_dump", "idle", "blocked_futex")
    assert waited_ns > PAUSE_S * 1e9, "waiting for events is idle"
    blocked = {cell: ns for cell, ns in dump.items() if cell[1] != "runnable"}
    assert ledger.phase_time(blocked, ("command",)) < 0.02 * waited_ns
    assert ledger.phase_time(dump, ("background",)) > 0, "reading the binary log is its own work"
    if level == Level.FLOW:
        assert not {phase for phase, _ in dump} & {"record_read", "record_write"}
    else:
        assert dump["record_write", "on_cpu"] > 0, "sending it is not"
    assert [(entry.side, entry.outcome) for entry in source.handshakes] == [("server", "success")]
    assert {"acceptor", "binlog", "connection"} <= source.roles.keys()
    assert source.closed
    assert not source.losses.keys() & {"healed", "unmatched_exit"}
    # At level flow nothing tells what a commit waits for; it sleeps on a condition variable.
    state = "blocked_futex" if level == Level.FLOW else "blocked_network"
    acknowledged_ns = source.wait_ns("connection", "command", state)
    if semi_sync:
        assert "semisync_ack" in source.roles
        assert acknowledged_ns > ROWS_COUNT * 10_000, "commits wait for the replica"
    elif level != Level.FLOW:
        assert acknowledged_ns == 0


def test_a_replica_is_a_client_of_its_source(recorded: tuple[Seen, Seen]) -> None:
    _, replica = recorded
    (handshake,) = replica.handshakes
    assert (handshake.side, handshake.outcome) == ("client", "success")
    assert handshake.tls_version == "TLSv1.3"
    assert handshake.verify_ns > 0, "a client checks the server's signature"
    fetching, applying = replica.roles["replica_io"], replica.roles["replica_sql"]
    assert ledger.phase_time(fetching, ("handshake",)) > 0
    assert fetching["background", "blocked_network"] > PAUSE_S * 1e9
    assert applying["idle", "blocked_futex"] > PAUSE_S * 1e9
    assert applying["background", "on_cpu"] > 0
    for role in (fetching, applying):
        assert ledger.phase_time(role, ("command", "connect", "unknown")) == 0
    assert replica.closed
    assert not replica.losses.keys() & {"healed", "unmatched_exit"}


# Stacks, which are not read here, tell a replica's threads from other background threads.
ROLES_OF_BOTH = ("binlog_dump", "semisync_ack", "background")
# What the source sends has no phase of its own at level flow: it is the dump's own work.
SENT_BY_DUMP = {"record_read": "command", "record_write": "background"}


@pytest.mark.timing
@pytest.mark.skipif(not HOST.socket_events, reason="this kernel lacks events of sockets")
def test_replication_is_the_same_at_both_levels(semi_sync: tuple[str, ...]) -> None:
    replicas: list[Both] = []
    with (
        pair(semi_sync) as servers,
        follow(*servers) as sessions,
        watched(servers[0].pid, ROLES_OF_BOTH, SENT_BY_DUMP) as observe_source,
        watched(servers[1].pid, ROLES_OF_BOTH, SENT_BY_DUMP) as observe_replica,
    ):

        def work() -> None:
            feed(*sessions)
            time.sleep(PAUSE_S)

        of_source = observe_source(lambda: replicas.append(observe_replica(work)))
    for both in of_source, *replicas:
        assert both.flow.told == both.record.told
        assert both.flow.handshakes == both.record.handshakes
        assert both.record.cells["handshake", "on_cpu"] > 0, "the threads of replication are seen"
        assert both.differences() == {}
