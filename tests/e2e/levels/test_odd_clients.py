# SPDX-License-Identifier: GPL-2.0-only
"""What few clients send, at levels `flow` and `record` on the same run of a real server.

Times agree everywhere. How many commands level `flow` counts is exact, or it is the number that
docs/how-it-measures.md names. MariaDB by default, with a thread for each connection and in a pool;
TLSTAX_SERVERS names others (`make test-servers`).
"""

import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Final, NamedTuple

import pytest

from tlstax.collectors.host.features import HOST
from tlstax.tests.e2e.levels.both_levels import Both, watched
from tlstax.tests.e2e.levels.raw_client import (
    CLOSE,
    EXECUTE,
    LONG_DATA,
    PACKET_MOST_BYTES,
    RawClient,
    packet,
    query,
    tls_context,
)
from tlstax.tests.e2e.recording.test_statements import POOL
from tlstax.workloads.servers.catalogue import find_kind
from tlstax.workloads.servers.configuration import DATABASE
from tlstax.workloads.servers.lab_server import open_server
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.request import ServerRequest

pytestmark = [
    pytest.mark.root,
    pytest.mark.needs("btf", "uprobes"),
    pytest.mark.skipif(not HOST.socket_events, reason="this kernel lacks events of sockets"),
]

SERVERS: Final = os.environ.get("TLSTAX_SERVERS", "mariadb").split()
YASSL: Final = ("mysql56", "mysql57", "mariadb102")
TLS_1_0: Final = ("tls_version = TLSv1.0", "ssl_cipher = AES256-SHA:@SECLEVEL=0")
WORK: Final = "DO SLEEP(0.002)"
TIMES, AT_ONCE, LONG_TIMES = 10, 5, 2
PAUSE_S, IDLE_S = 0.003, 0.3
SMALL, LARGE = 100, 5000
OPTIONS: Final = ("local_infile = ON", "max_allowed_packet = 64M", "thread_cache_size = 1")
POOL_GROUPS: Final = 2
FILE: Final = f"{DATABASE}.rows_of_a_file"


class Watched(NamedTuple):
    """A server with both levels on it."""

    server: PrivateServer
    observe: Callable[[Callable[[], object]], Both]
    is_yassl: bool
    is_pool: bool

    def connect(self, arm: str) -> RawClient:
        """A connection that has served a command."""
        context = tls_context(yassl=self.is_yassl)
        if arm == "plaintext":
            RawClient(self.server, context).close()  # the server knows the password from now on
        client = RawClient(self.server, context if arm == "tls" else None)
        client.ask(WORK)
        return client


@pytest.fixture(scope="module", params=[*SERVERS, "pool"])
def watching(request: pytest.FixtureRequest) -> Iterator[Watched]:
    """Each server, and MariaDB's pool of threads."""
    is_pool = request.param == "pool"
    name = "mariadb" if is_pool else request.param
    asked = ServerRequest(options=(*OPTIONS, *(POOL if is_pool else ())))
    with open_server(find_kind(name), asked) as server, watched(server.pid) as observe:
        yield Watched(server, observe, name in YASSL, is_pool)


def together(client: RawClient) -> None:
    """Commands that arrive in one record, or one segment."""
    client.send(query(WORK) * AT_ONCE)
    client.await_answers(AT_ONCE)


def ahead(client: RawClient) -> None:
    """Commands in a record each, without waiting for answers."""
    for _ in range(AT_ONCE):
        client.send(query(WORK))
    client.await_answers(AT_ONCE)


def in_pieces(client: RawClient) -> None:
    """The head of a packet in one record, its body in another, some time later."""
    command = query(WORK)
    client.send(command[:4])
    time.sleep(PAUSE_S)
    client.send(command[4:])
    client.await_answers(1)


def long_data(client: RawClient, part_bytes: int) -> None:
    """A parameter in two parts, which are not answered, as is the statement's end."""
    statement = client.prepare("DO LENGTH(?)")
    for _ in range(2):
        head = bytes((LONG_DATA,)) + struct.pack("<IH", statement, 0)
        client.send(packet(head + b"x" * part_bytes))
        time.sleep(PAUSE_S)
    client.send(packet(bytes((EXECUTE,)) + struct.pack("<IBI", statement, 0, 1) + b"\0\1\xfc\0"))
    client.await_answers(1)
    client.send(packet(bytes((CLOSE,)) + struct.pack("<I", statement)))
    time.sleep(PAUSE_S)


def small_data(client: RawClient) -> None:
    """Parts of less than 1 KB."""
    long_data(client, SMALL)


def large_data(client: RawClient) -> None:
    """Parts of more."""
    long_data(client, LARGE)


Work = Callable[[RawClient], None]


class Way(NamedTuple):
    """Commands that there are, and those that level `flow` counts over TLS, each time."""

    work: Work
    commands_count: int
    flow_count: int
    yassl_count: int  # at least; it does not read heads first


WAYS: Final = (
    Way(together, AT_ONCE, 1, 1),
    Way(ahead, AT_ONCE, AT_ONCE, 1),
    Way(in_pieces, 1, 2, 1),
    Way(small_data, 5, 5, 2),
    Way(large_data, 5, 3, 2),
)


def done(watching: Watched, way: Way, arm: str) -> Both:
    """What both levels saw of a way, TIMES times."""
    with closing(watching.connect(arm)) as client:

        def work() -> None:
            for _ in range(TIMES):
                way.work(client)
                time.sleep(PAUSE_S)

        return watching.observe(work)


WAY_NAMES: Final = [way.work.__name__ for way in WAYS]


@pytest.mark.parametrize("arm", ["tls", "plaintext"])
@pytest.mark.parametrize("way", WAYS, ids=WAY_NAMES)
def test_commands_are_counted_or_named_what_they_become(
    watching: Watched, way: Way, arm: str
) -> None:
    both = done(watching, way, arm)
    assert both.record.counts["command"] == TIMES * way.commands_count
    found_count = both.flow.counts["command"]
    if arm == "plaintext":
        assert found_count == TIMES * way.commands_count
    elif watching.is_yassl:
        assert TIMES * way.yassl_count <= found_count <= TIMES * way.commands_count
    elif watching.is_pool and way.work is large_data:  # it is woken for each part
        assert found_count == TIMES * way.commands_count
    else:
        assert found_count == TIMES * way.flow_count
    assert both.flow.latencies["command"].total() == found_count
    assert not {"healed", "unmatched_exit", "phase_stack_overflow"} & both.flow.losses.keys()


@pytest.mark.timing
@pytest.mark.parametrize("arm", ["tls", "plaintext"])
@pytest.mark.parametrize("way", WAYS, ids=WAY_NAMES)
def test_times_agree_however_commands_are_counted(watching: Watched, way: Way, arm: str) -> None:
    assert done(watching, way, arm).differences() == {}


def breaks_off(watching: Watched, client: RawClient) -> None:
    """The client is gone."""
    time.sleep(IDLE_S)
    client.break_off()


def times_out(watching: Watched, client: RawClient) -> None:
    """The server waits no longer. It knows whole seconds."""
    time.sleep(1 + IDLE_S)


def is_killed(watching: Watched, client: RawClient) -> None:
    """By its administrator."""
    time.sleep(IDLE_S)
    with watching.server.open_administrator() as session:
        session.query(f"KILL {client.connection_id}")


@pytest.mark.parametrize("arm", ["tls", "plaintext"])
@pytest.mark.parametrize("end", [breaks_off, times_out, is_killed])
def test_waiting_for_a_client_that_says_no_goodbye_is_idling(
    watching: Watched, end: Callable[[Watched, RawClient], None], arm: str
) -> None:
    client = watching.connect(arm)
    client.ask("SET wait_timeout = 1" if end is times_out else WORK)
    both = watching.observe(lambda: end(watching, client))
    client.break_off()
    for seen in both.flow, both.record:
        assert seen.counts["disconnect"] >= 1
        assert sum(seen.cells["idle", f"blocked_{of}"] for of in ("network", "futex")) > 0.25e9
        assert seen.cells["command", "blocked_network"] == 0


@pytest.mark.parametrize("arm", ["tls", "plaintext"])
def test_a_client_that_breaks_off_in_its_file_leaves_nothing_to_the_next_one(
    watching: Watched, arm: str
) -> None:
    """Which is served by the same thread: the server keeps one, and the pool one of each group."""
    with closing(watching.connect(arm)) as client:
        client.ask(f"CREATE TABLE IF NOT EXISTS {FILE} (id INT)")

    def work() -> None:
        for _ in range(POOL_GROUPS):
            client = watching.connect(arm)
            client.begin_file(FILE)
            client.send(packet(b"1\n", 2))
            time.sleep(PAUSE_S)
            client.break_off()
            time.sleep(IDLE_S)
        for _ in range(POOL_GROUPS):
            with closing(watching.connect(arm)) as client:
                for _ in range(TIMES):
                    time.sleep(PAUSE_S)
                    client.ask(WORK)
            time.sleep(IDLE_S)

    both = watching.observe(work)
    assert both.record.counts["command"] > POOL_GROUPS * TIMES
    assert both.flow.counts["command"] == both.record.counts["command"]


@pytest.mark.parametrize("arm", ["tls", "plaintext"])
@pytest.mark.parametrize("length", [PACKET_MOST_BYTES, 17 << 20], ids=["empty-end", "long-end"])
def test_a_query_in_two_packets_is_one_command(watching: Watched, length: int, arm: str) -> None:
    """The second one is empty if all of it fits into the first."""
    before, behind = "DO LENGTH('", "')"
    text = before + "x" * (length - len(query(before + behind)) + 4) + behind
    assert len(query(text)) == length + 8
    with closing(watching.connect(arm)) as client:

        def work() -> None:
            for _ in range(LONG_TIMES):
                client.ask(text)

        both = watching.observe(work)
    assert both.record.counts["command"] == both.flow.counts["command"] == LONG_TIMES


@pytest.mark.parametrize("arm", ["tls", "plaintext"])
def test_a_close_notify_is_a_command_at_level_flow(watching: Watched, arm: str) -> None:
    def work() -> None:
        for _ in range(TIMES):
            watching.connect(arm).hang_up()

    both = watching.observe(work)
    helpers_count = TIMES * (arm == "plaintext")  # of connect(): their goodbyes
    assert both.record.counts["command"] == TIMES + helpers_count
    assert both.flow.counts["command"] == TIMES * (1 + (arm == "tls")) + helpers_count
    assert both.flow.handshakes_count == both.record.handshakes_count == TIMES


def test_a_key_update_is_a_command_at_level_flow(watching: Watched) -> None:
    with closing(watching.connect("tls")) as client:
        has_updates = client.tls_version == "TLSv1.3"

        def work() -> None:
            for _ in range(TIMES):
                if has_updates:
                    client.update_key()
                client.ask(WORK)

        both = watching.observe(work)
    assert both.record.counts["command"] == TIMES
    assert both.flow.counts["command"] == TIMES * (1 + has_updates)


@pytest.mark.skipif("mariadb" not in SERVERS, reason="of Debian's MariaDB")
def test_commands_over_tls_1_0_may_count_twice() -> None:
    with (
        PrivateServer(ServerRequest(options=TLS_1_0)) as server,
        watched(server.pid) as observe,
        closing(RawClient(server, tls_context(yassl=True))) as client,
    ):
        assert client.tls_version == "TLSv1"
        client.ask(WORK)

        def work() -> None:
            for _ in range(TIMES):
                client.ask(WORK)

        both = observe(work)
    assert both.record.counts["command"] == TIMES
    assert TIMES <= both.flow.counts["command"] <= 2 * TIMES
