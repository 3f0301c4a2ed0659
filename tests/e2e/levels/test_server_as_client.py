# SPDX-License-Identifier: GPL-2.0-only
"""A server that asks another one while it executes: FEDERATED, CONNECT, SPIDER at both levels.

The command lasts as long as the other server takes. That server's connection is no client's: what
goes over it begins and ends no command and answers none. SPIDER uses TLS, with a handshake for each
statement here: it is part of the command, and a record of its own.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from tlstax.collectors.host.features import HOST
from tlstax.tests.e2e.levels.both_levels import Both, watched
from tlstax.tests.e2e.levels.test_flow import agree
from tlstax.tests.e2e.recording.test_statements import POOL, Connection, connected
from tlstax.workloads.servers.configuration import DATABASE, USER_TLS
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.request import ServerRequest

# Of Debian's packages mariadb-server, mariadb-plugin-connect and mariadb-plugin-spider.
PLUGINS: Final = Path(os.environ.get("TLSTAX_MARIADB_PLUGINS", "/usr/lib/mysql/plugin"))
NEEDED: Final = ("ha_federatedx", "ha_connect", "ha_spider")

pytestmark = [
    pytest.mark.root,
    pytest.mark.needs("btf", "uprobes"),
    pytest.mark.skipif(not HOST.socket_events, reason="this kernel lacks events of sockets"),
    pytest.mark.skipif(
        not all((PLUGINS / f"{name}.so").exists() for name in NEEDED),
        reason=f"{PLUGINS} lacks {', '.join(NEEDED)}: install mariadb-plugin-connect and -spider",
    ),
]

Observe = Callable[[Callable[[], object]], Both]
ENGINES: Final = {
    "federated": "ENGINE=FEDERATED CONNECTION='{url}'",
    "connect": "ENGINE=CONNECT TABLE_TYPE=MYSQL CONNECTION='{url}'",
    "spider": """ENGINE=SPIDER COMMENT='wrapper "mysql", host "127.0.0.1", port "{port}",
user "{user}", password "{password}", database "{database}", table "{view}", ssl_ca "{ca}"'""",
}
SHAKES: Final = ("spider",)
TIMES: Final = 10
LATE_S, LATER_S = 0.02, 1.0
VIEWS: Final = {"late": LATE_S, "later": LATER_S}
SEEN_FOR_S, PATIENCE_S = 0.2, 20.0
CROWD: Final = 16
BUSY: Final = "SELECT SLEEP(0.2)"
SLEEPS: Final = "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User sleep'"


def plugin_options() -> tuple[str, ...]:
    """Lines of an option file that load the engines. Nothing of theirs connects by itself."""
    quiet = ("spider_sts_bg_mode = 0", "spider_crd_bg_mode = 0")
    loaded = (f"plugin_load_add = {name}" for name in NEEDED)
    return (f"plugin_dir = {PLUGINS}", *loaded, *(f"loose_{line}" for line in quiet))


@pytest.fixture(scope="module")
def remote() -> Iterator[PrivateServer]:
    """The server that is asked; views of it take their time."""
    with PrivateServer() as running, running.open_administrator() as session:
        for name, sleep_s in VIEWS.items():
            session.query(f"CREATE VIEW {DATABASE}.{name} AS SELECT SLEEP({sleep_s}) AS id")
        yield running


@pytest.fixture(scope="module", params=[(), POOL], ids=["thread", "pool"])
def server(request: pytest.FixtureRequest, remote: PrivateServer) -> Iterator[PrivateServer]:
    """The server that asks, with a table of each engine for each view."""
    asked = ServerRequest(options=(*plugin_options(), *request.param))
    with PrivateServer(asked) as running:
        make_tables(running, remote)
        yield running


def make_tables(server: PrivateServer, remote: PrivateServer) -> None:
    """Tables that are the other server's views."""
    account = remote.account()
    place = {"user": account.user, "password": account.password, "port": remote.port}
    place |= {"database": DATABASE, "ca": f"{remote.directory.server}/ca.pem"}
    to = f"mysql://{account.user}:{account.password}@127.0.0.1:{remote.port}/{DATABASE}"
    with server.open_administrator() as session:
        session.query(f"GRANT FILE ON *.* TO {USER_TLS}@'127.0.0.1'")  # which CONNECT asks for
        for engine, definition in ENGINES.items():
            for view in VIEWS:
                how = definition.format(view=view, url=f"{to}/{view}", **place)
                session.query(f"CREATE TABLE {DATABASE}.{engine}_{view} (id INT) {how}")


@contextmanager
def connected_often(server: PrivateServer) -> Iterator[list[Connection]]:
    """More connections than the pool has threads."""
    with ExitStack() as stack:
        yield [stack.enter_context(connected(server)) for _ in range(CROWD)]


@pytest.fixture(scope="module")
def observe(server: PrivateServer) -> Iterator[Observe]:
    """Both levels on the server that asks, each thread of a pool known to them."""
    with watched(server.pid) as observing, connected_often(server) as clients:
        # A worker that sleeps when it is first seen is `unknown` until it has served a command.
        asking = [threading.Thread(target=client.query, args=(BUSY,)) for client in clients]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
        yield observing


ASKS: Final = [
    pytest.param("SELECT * FROM {}_late", 1, id="first"),
    pytest.param("SELECT 1; SELECT * FROM {}_late", 2, id="after-an-answer"),
]


def asked_often(server: PrivateServer, observe: Observe, statement: str) -> Both:
    """What both levels saw of a connection that sends the statement TIMES times."""
    with connected(server) as client:
        client.query("SELECT 1")
        return observe(lambda: [client.query(statement) for _ in range(TIMES)])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("text", "answers_count"), ASKS)
def test_asking_another_server_is_no_command_and_no_answer(
    server: PrivateServer, observe: Observe, engine: str, text: str, answers_count: int
) -> None:
    both = asked_often(server, observe, text.format(engine))
    assert both.flow.counts["command"] == both.record.counts["record_read"] == TIMES
    assert both.record.counts["record_write"] == answers_count * TIMES, "requests are no answers"
    shaken = {0: TIMES} if engine in SHAKES else {}
    assert both.flow.handshakes == both.record.handshakes == shaken, "as a client"
    assert both.flow.counts["handshake"] == 0
    for seen in both.flow, both.record:
        assert not {phase for phase, _ in seen.cells} - {"idle", "command"}


@pytest.mark.timing
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("text", "_answers_count"), ASKS)
def test_a_command_that_asks_another_server_lasts_until_it_answers(
    server: PrivateServer, observe: Observe, engine: str, text: str, _answers_count: int
) -> None:
    both = asked_often(server, observe, text.format(engine))
    agree(both)
    assert both.flow.cells["command", "blocked_network"] > TIMES * LATE_S * 1e9


def await_sleep(server: PrivateServer) -> None:
    """Return once the server is asked for what takes its time."""
    deadline = time.monotonic() + PATIENCE_S
    with server.open_administrator() as session:
        while session.query(SLEEPS) == [["0"]]:
            assert time.monotonic() < deadline, "nobody asks"


@pytest.mark.timing
@pytest.mark.parametrize("engine", ENGINES)
def test_waiting_for_another_server_is_no_idling_meanwhile(
    server: PrivateServer, remote: PrivateServer, observe: Observe, engine: str
) -> None:
    text = f"SELECT 1; SELECT * FROM {engine}_later"
    with connected(server) as client:
        client.query("SELECT 1")
        asking = threading.Thread(target=client.query, args=(text,))
        asking.start()
        await_sleep(remote)
        both = observe(lambda: time.sleep(SEEN_FOR_S))
        is_asking = asking.is_alive()
        asking.join()
    assert is_asking, "seen too late"
    assert both.differences() == {}
    for seen in both.flow, both.record:
        assert seen.cells["command", "blocked_network"] > SEEN_FOR_S * 1e9
        assert seen.counts["command"] == 0
