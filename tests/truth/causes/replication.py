# SPDX-License-Identifier: GPL-2.0-only
"""A replica that fetches a long binary log from its source, or acknowledges each transaction."""

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from tlstax.certs.generate import KeyKind
from tlstax.tests.truth.causes.programs import ahead
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.request import ServerRequest

EVENT_BYTES = 8 << 20
"""Of the value in each event of the binary log; statements log variables that they use."""
EVENTS = 160
PATIENCE_S = 20.0
LOOK_S = 0.25
Query = Callable[[str], list[list[str]]]
ACKNOWLEDGED = (
    *("log_bin = binlog", "server_id = 1", "sync_binlog = 0"),
    *("rpl_semi_sync_master_enabled = ON", "rpl_semi_sync_master_timeout = 60000"),
    "rpl_semi_sync_master_wait_no_slave = OFF",
    "innodb_flush_log_at_trx_commit = 0",
)
"""Options of a source whose commits wait for acknowledging(), and not for a disk."""
_SOURCE = ("log_bin = binlog", "server_id = 1", "max_allowed_packet = 64M", "sync_binlog = 0")
_REPLICA = (
    *("relay_log = relay", "server_id = 2", "slave_max_allowed_packet = 64M"),
    "innodb_flush_log_at_trx_commit = 0",  # else the statements that begin anew wait for the disk
)


@contextmanager
def fetching(cipher: str) -> Iterator[PrivateServer]:
    """A replica that fetches a gigabyte, again and again; it applies nothing.

    `cipher`: of TLS 1.2; "" for plaintext.
    """
    tls = bool(cipher)
    options = ("tls_version = TLSv1.2", f"ssl_cipher = {cipher}") if tls else ()
    with ExitStack() as stack:
        key = KeyKind.parse("ec:p256")
        source = stack.enter_context(
            PrivateServer(ServerRequest(key, options=(*_SOURCE, *options)))
        )
        replica = stack.enter_context(PrivateServer(ServerRequest(key, options=_REPLICA)))
        for server in (source, replica):  # else the other one is what each waits for
            ahead(server.pid)
        with source.open_administrator() as session:
            password = _make_account(session.query, "REQUIRE SSL" if tls else "")
            ((file, position, *_),) = session.query("SHOW MASTER STATUS")
            session.query("SET binlog_format = STATEMENT")
            session.query("CREATE TABLE tlstax_bench.lengths (length INT) ENGINE = MEMORY")
            session.query(f"SET @long = REPEAT('x', {EVENT_BYTES})")
            for _ in range(EVENTS):
                session.query("INSERT INTO tlstax_bench.lengths VALUES (LENGTH(@long))")
            ((*last, _, _),) = session.query("SHOW MASTER STATUS")
        session = stack.enter_context(replica.open_administrator())
        session.query(
            f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {source.port},"
            f" MASTER_USER = 'replicator', MASTER_PASSWORD = '{password}',"
            f" MASTER_SSL = {int(tls)}, MASTER_SSL_CIPHER = '{cipher}',"
            f" MASTER_LOG_FILE = '{file}', MASTER_LOG_POS = {position}"
        )
        session.query("START SLAVE IO_THREAD")
        _await_fetching(session.query)
        stop = threading.Event()
        again = threading.Thread(
            target=_fetch_again, args=(session.query, (file, position), last, stop)
        )
        again.start()
        try:
            yield replica
        finally:
            stop.set()
            again.join()


@contextmanager
def acknowledging(source: PrivateServer) -> Iterator[None]:
    """A replica that acknowledges what it has received from a source with ACKNOWLEDGED.

    It writes it to its disk before, and applies nothing.
    """
    options = (*_REPLICA, "sync_relay_log = 1", "rpl_semi_sync_slave_enabled = ON")
    with PrivateServer(ServerRequest(KeyKind.parse("ec:p256"), options=options)) as replica:
        ahead(replica.pid)
        with source.open_administrator() as session:
            password = _make_account(session.query, "")
            ((file, position, *_),) = session.query("SHOW MASTER STATUS")
        with replica.open_administrator() as session:
            session.query(
                f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {source.port},"
                f" MASTER_USER = 'replicator', MASTER_PASSWORD = '{password}',"
                f" MASTER_LOG_FILE = '{file}', MASTER_LOG_POS = {position}"
            )
            session.query("START SLAVE IO_THREAD")
            _await_fetching(session.query)
        with source.open_administrator() as session:
            ((_, clients),) = session.query("SHOW STATUS LIKE 'Rpl_semi_sync_master_clients'")
            assert clients == "1", "commits wait for nobody"
        yield


def _make_account(query: Query, demand: str) -> str:
    """An account for a replica; its password."""
    password = secrets.token_hex(16)
    query(f"CREATE USER replicator@'127.0.0.1' IDENTIFIED BY '{password}' {demand}")
    query("GRANT REPLICATION SLAVE ON *.* TO replicator@'127.0.0.1'")
    return password


def _await_fetching(query: Query) -> None:
    end = time.monotonic() + PATIENCE_S
    while not any("event" in state for state in _states(query)):
        assert time.monotonic() < end, "the replica does not fetch"
        time.sleep(0.02)


def _fetch_again(
    query: Query, first: Sequence[str], last: Sequence[str], stop: threading.Event
) -> None:
    """Let it begin anew whenever it has caught up; its relay logs are deleted with that.

    `first`, `last`: file and position.
    """
    while not stop.wait(LOOK_S):
        ((*_, file, position),) = [row[:7] for row in query("SHOW SLAVE STATUS")]
        if [file, position] == list(last):
            query("STOP SLAVE IO_THREAD")
            query(f"CHANGE MASTER TO MASTER_LOG_FILE = '{first[0]}', MASTER_LOG_POS = {first[1]}")
            query("START SLAVE IO_THREAD")


def _states(query: Query) -> list[str]:
    """What the replica's threads that fetch say that they do."""
    rows = query("SELECT state FROM information_schema.processlist WHERE command = 'Slave_IO'")
    return [row[0] for row in rows]
