# SPDX-License-Identifier: GPL-2.0-only
"""The counters of real TCP connections, and the sums that are made of them."""

import os
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.host.clock import monotonic_ns
from tlstax.collectors.process import connections
from tlstax.collectors.process.connections import Connection, Connections
from tlstax.collectors.sources import sockets
from tlstax.collectors.sources.sockets import Sockets, growth, quiet_of

TICK_S = 0.01
DELAY_S = 0.03
"""Less than the least delay of an acknowledgement."""
ROUNDS_MOST = 10


@contextmanager
def connected(family: int, address: str) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A client and its server's end, both of this process."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket(family))
        server.bind((address, 0))
        server.listen()
        client = stack.enter_context(socket.socket(family))
        client.connect(server.getsockname()[:2])
        accepted = stack.enter_context(server.accept()[0])
        yield client, accepted


def asked(client: socket.socket, served: socket.socket, parts: tuple[bytes, ...]) -> None:
    """One command, which comes in parts, and its answer."""
    for part in parts:
        client.send(part)
    left = sum(map(len, parts))
    while left:
        left -= len(served.recv(left))
    served.send(b"answer")
    client.recv(6)


def sums_of(source: Sockets) -> dict[str, float]:
    rows = source.poll(monotonic_ns())
    return {row.name: row.value for row in rows if isinstance(row, schema.Metric)}


@pytest.mark.parametrize(
    ("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_commands_in_two_parts_wait_for_acknowledgements_and_whole_ones_do_not(
    family: int, address: str
) -> None:
    seen = {"quiet_short_count", "quiet_timer_count"}
    with connected(family, address) as (client, served):
        source = Sockets(os.getpid())
        assert source.start() == "inet_diag"
        try:
            for _ in range(20):  # the kernel acknowledges the first ones at once
                asked(client, served, (b"whole",))
            sums_of(source)
            for _ in range(20):
                asked(client, served, (b"whole",))
            whole = sums_of(source)
            halves: Counter[str] = Counter()
            rounds, begun = 0, time.monotonic()
            # A look is a matter of chance, and looks are few where they are dear.
            while rounds < ROUNDS_MOST and not (rounds and seen <= halves.keys()):
                for _ in range(20):
                    asked(client, served, (b"ha", b"lf"))
                rounds += 1
                halves.update(sums_of(source))
            took = time.monotonic() - begun
        finally:
            source.stop()
    assert whole["sent_count"] >= 20
    assert "round_trip_count" not in whole, "it is of clients that connect"
    assert "lone_ack_count" not in whole
    assert took > rounds * 20 * DELAY_S, "the kernel does not delay acknowledgements here"
    assert halves["waiting_sent_count"] == rounds * 20
    assert halves["waiting_received_count"] == rounds * 40
    assert halves["lone_ack_count"] >= rounds * 20
    assert seen <= halves.keys()
    short, timer = halves["quiet_short_count"], halves["quiet_timer_count"]
    assert halves.get("quiet_longer_count", 0) <= (short + timer) / 10


def test_the_round_trip_is_of_connections_that_are_new_and_of_the_network_alone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        source = Sockets(os.getpid())
        source.start()
        try:
            with (
                socket.create_connection(server.getsockname()) as client,
                server.accept()[0] as one,
            ):
                for _ in range(3):
                    asked(client, one, (b"whole",))
                    time.sleep(DELAY_S)
                first, second = sums_of(source), sums_of(source)
        finally:
            source.stop()
    assert first["round_trip_count"] == 1
    assert 0 < first["round_trip_us"] < DELAY_S * 1e6
    assert "round_trip_count" not in second


def test_a_client_that_holds_back_its_bytes_is_seen() -> None:
    with connected(socket.AF_INET, "127.0.0.1") as (client, served):
        for _ in range(20):
            asked(client, served, (b"whole",))
        found = Connections(os.getpid())
        try:
            client.send(b"ha")
            client.send(b"lf")
            port = client.getsockname()[1]
            assert [one.unsent_bytes for one in found.clients()] == [2]
            assert port not in found.ports
            assert served.getsockname()[1] in found.ports
        finally:
            found.close()


def test_a_connection_that_was_not_there_before_adds_nothing() -> None:
    now = Connection(1, 0, 0, 5, 100, 0, 50, 40)
    assert growth({}, [now], {1: {"short": 3}}) == {"open_count": 1}  # type: ignore[dict-item]


def test_what_connections_do_that_answer_at_once_is_kept_apart() -> None:
    before = {cookie: Connection(cookie, 0, 0, 0, 0, 0, 0, 0) for cookie in (1, 2)}
    now = [Connection(1, 0, 0, 1, 10, 0, 10, 10), Connection(2, 0, 0, 0, 20, 0, 20, 10)]
    quiet = {1: {"longer": 9}, 2: {"timer": 4}}
    assert growth(before, now, quiet) == {  # type: ignore[arg-type]
        "open_count": 2,
        "received_count": 30,
        "sent_count": 20,
        "retransmit_count": 1,
        "lone_ack_count": 10,
        "waiting_received_count": 20,
        "waiting_sent_count": 10,
        "quiet_timer_count": 4,
    }


@pytest.mark.parametrize(
    ("sent_ms", "received_ms", "place"),
    [(0, 900, "short"), (900, 19, "short"), (20, 20, "timer"), (52, 60, "timer"),
     (53, 53, "longer")],
)  # fmt: skip
def test_quiet_is_since_the_last_data_of_either_side(
    sent_ms: int, received_ms: int, place: str
) -> None:
    assert quiet_of(Connection(1, sent_ms, received_ms, 0, 0, 0, 0, 0)) == place


def test_a_server_without_a_tcp_port_is_refused() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            with pytest.raises(TlstaxError, match="no TCP port") as caught:
                Sockets(child.pid).start()
            assert caught.value.exit_code == ExitCode.TARGET
        finally:
            child.kill()


def test_a_process_that_is_gone_is_refused() -> None:
    with pytest.raises(TlstaxError, match="cannot read the TCP connections") as caught:
        Sockets(2**22 + 1).start()
    assert caught.value.exit_code == ExitCode.HOST


def test_a_kernel_that_no_longer_answers_ends_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    with connected(socket.AF_INET, "127.0.0.1"):
        source = Sockets(os.getpid())
        source.start()

        def refuse(self: Connections) -> list[Connection]:
            raise OSError(5, "no answer")

        monkeypatch.setattr(Connections, "served", refuse)
        try:
            with pytest.raises(TlstaxError, match="no longer be read"):
                source.poll(monotonic_ns())
            time.sleep(sockets._LEAST_REST_S + TICK_S)
            with pytest.raises(TlstaxError, match="no longer be read"):
                source.poll(monotonic_ns())
        finally:
            source.stop()


def test_an_answer_without_counters_is_no_connection() -> None:
    """Kernels before 4.6 have a shorter struct tcp_info."""
    head = bytes(connections._MESSAGE_BYTES)
    attribute = connections._ATTRIBUTE.pack(4 + 104, connections._INFO) + bytes(104)
    assert connections.connection_of(head) is None
    assert connections.connection_of(head + attribute) is None
    assert connections.connection_of(head + b"\0\0\0\0") is None


def test_where_a_budget_pays_it_reads_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that takes a hundredth of a CPU leaves nothing of 5 % of a tenth of one."""
    readings = []

    def served(found: Connections) -> list[Connection]:
        readings.append(found)
        end_ns = time.thread_time_ns() + 1_000_000
        while time.thread_time_ns() < end_ns:
            pass
        return []

    counts = []
    with connected(socket.AF_INET, "127.0.0.1"):
        for is_budgeted in (False, True):
            source = Sockets(os.getpid(), is_budgeted=is_budgeted)
            with monkeypatch.context() as patched:
                patched.setattr(Connections, "served", served)
                source.start()
                assert source.poll(monotonic_ns()), "the first sums, which tell what they take"
                time.sleep(1)
                assert bool(source.poll(monotonic_ns())) is not is_budgeted
                assert bool(source.stop()) is is_budgeted, "the last sums"
                assert not source.stop()
            counts.append(len(readings))
            readings.clear()
    often, seldom = counts
    assert seldom <= 5 < often
