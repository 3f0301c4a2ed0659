# SPDX-License-Identifier: GPL-2.0-only
"""A server that asks another one while it executes: FEDERATED and CONNECT, at `flow` and `record`.

The command lasts as long as the other server takes. Its connection is no client's.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tlstax.collectors.host.features import HOST
from tlstax.tests.e2e.recording.both_levels import Both, watched
from tlstax.tests.e2e.recording.test_flow import Observe, agree
from tlstax.tests.e2e.recording.test_statements import POOL, connected
from tlstax.workloads.servers.configuration import DATABASE, USER_LOAD
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.request import ServerRequest

# Of Debian's packages mariadb-server and mariadb-plugin-connect.
PLUGINS: Final = Path(os.environ.get("TLSTAX_MARIADB_PLUGINS", "/usr/lib/mysql/plugin"))
ENGINES: Final = ("ha_federatedx", "ha_connect")

pytestmark = [
    pytest.mark.root,
    pytest.mark.needs("btf", "uprobes"),
    pytest.mark.skipif(not HOST.socket_events, reason="no events of sockets"),
    pytest.mark.skipif(
        not all((PLUGINS / f"{name}.so").exists() for name in ENGINES),
        reason=f"no {' and '.join(ENGINES)} in {PLUGINS}: install mariadb-plugin-connect",
    ),
]

TIMES: Final = 20
SLEEP_S: Final = 0.02
LONG_S: Final = 1.2
OPTIONS: Final = (
    f"plugin_dir = {PLUGINS}",
    *(f"plugin_load_add = {name}" for name in ENGINES),
    *POOL[:0],
)


class Servers(NamedTuple):
    """The recorded server and the one that it asks."""

    near: PrivateServer
    far: PrivateServer


@pytest.fixture(scope="module", params=[(), POOL], ids=["thread", "pool"])
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with PrivateServer() as far:
        secure = ("[client-mariadb]", f"ssl_ca = {far.directory.server}/ca.pem")
        options = (*OPTIONS, *request.param, *secure)
        with PrivateServer(ServerRequest(options=options, environment=tuple({"LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH","")}.items()))) as near:
            account = far.account()
            with far.open_administrator() as session:
                session.query(f"CREATE VIEW {DATABASE}.late AS SELECT SLEEP({SLEEP_S}) AS id")
                session.query(f"CREATE VIEW {DATABASE}.later AS SELECT SLEEP({LONG_S}) AS id")
            url = f"mysql://{account.user}:{account.password}@127.0.0.1:{far.port}/{DATABASE}"
            with near.open_administrator() as session:
                session.query("GRANT FILE ON *.* TO tlstax_tls@'127.0.0.1'")
                for name in ("late", "later"):
                    session.query(
                        f"CREATE TABLE {DATABASE}.federated_{name} (id INT) ENGINE=FEDERATED"
                        f" CONNECTION='{url}/{name}'"
                    )
                    session.query(
                        f"CREATE TABLE {DATABASE}.connect_{name} (id INT) ENGINE=CONNECT"
                        f" TABLE_TYPE=MYSQL CONNECTION='{url}/{name}'"
                    )
                print(session.query(f"SELECT * FROM {DATABASE}.federated_late"))
                print(session.query(f"SELECT * FROM {DATABASE}.connect_late"))
            yield Servers(near, far)


@pytest.fixture(scope="module")
def observe(servers: Servers) -> Iterator[Observe]:
    """Both engines on the server that is a client, too."""
    with watched(servers.near.pid) as observing:
        yield observing


@pytest.mark.parametrize("engine", ["federated", "connect"])
@pytest.mark.parametrize("text", ["SELECT * FROM {}_late", "SELECT 1; SELECT * FROM {}_late"], ids=["one", "second"])
def test_x(servers: Servers, observe: Observe, engine: str, text: str) -> None:
    with connected(servers.near) as client:
        client.query("SELECT 1")
        both = observe(lambda: [client.query(text.format(engine)) for _ in range(TIMES)])
    for seen in (both.record, both.flow):
        print({k: round(v / 1e6, 2) for k, v in seen.cells.items()}, +seen.counts, seen.losses, seen.handshakes_count)
    with servers.far.open_status() as session:
        print(session.query("SHOW GLOBAL STATUS LIKE 'Ssl_%accepts'"))
    with servers.near.open_status() as session:
        print(session.query("SHOW GLOBAL STATUS LIKE 'Ssl_%accepts'"), session.query("SHOW GLOBAL STATUS LIKE 'Ssl_%connects'"))
    print(both.differences())


@pytest.mark.parametrize("engine", ["federated", "connect"])
def test_y(servers: Servers, observe: Observe, engine: str) -> None:
    def work():
        time.sleep(0.5)
    for text in ("SELECT * FROM {}_later", "SELECT 1; SELECT * FROM {}_later"):
      with connected(servers.near) as client:
        client.query("SELECT 1")
        thread = threading.Thread(target=lambda: client.query(text.format(engine)))
        thread.start()
        time.sleep(0.3)
        both = observe(work)
        thread.join()
      for seen in (both.record, both.flow):
        print({k: round(v / 1e6, 2) for k, v in seen.cells.items()}, +seen.counts, seen.losses, seen.handshakes_count)
      print(both.differences())
