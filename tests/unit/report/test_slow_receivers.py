# SPDX-License-Identifier: GPL-2.0-only
"""Receivers of OTLP that never come to an end: a push has a time limit, whatever it waits for."""

import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
import requests

from tlstax.analysis.fleet.continuous.counters import Counters
from tlstax.analysis.fleet.continuous.server_counters import ServerCounters
from tlstax.analysis.report.live import otlp
from tlstax.analysis.report.live.otlp import OtlpPush, endpoint_of
from tlstax.analysis.report.live.short_answers import short_session
from tlstax.tests.otlp_receiver import PATIENCE_S, until

LIMIT_S, BYTE_S = 1.0, 0.1
"""The limit of a request, and the time between two bytes: no single wait is long."""
GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
HEADER = b"HTTP/1.1 200 OK\r\nX-Endless: "
CONTENT = b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"
CLOSING = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
TLS_RECORD = b"\x16\x03\x03\x40\x00"


class Dripping:
    """Answers whole first, if it is told to; then with a beginning and a byte now and then."""

    def __init__(self) -> None:
        self.begin = HEADER
        self.good_count = 0
        """Answers that are whole."""
        self.connections_count = self.requests_count = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.connections_count += 1
            threading.Thread(target=self._answer, args=[connection], daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):  # it is cut off
            while is_request(connection):
                self.requests_count += 1
                if self.good_count:
                    self.good_count -= 1
                    connection.sendall(GOOD)
                    continue
                connection.sendall(self.begin)
                end_s = time.monotonic() + PATIENCE_S
                while time.monotonic() < end_s:
                    connection.sendall(b"x")
                    time.sleep(BYTE_S)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


def is_request(connection: socket.socket) -> bool:
    """Take a whole request, or the beginning of a TLS handshake; False: the connection is over."""
    taken = b""
    while more := connection.recv(1 << 16):
        taken += more
        head, is_whole, content = taken.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        if taken[:1] == TLS_RECORD[:1] or (is_whole and length and len(content) >= int(length[1])):
            return True
    return False


@pytest.fixture
def dripping() -> Iterator[Dripping]:
    made = Dripping()
    yield made
    made.close()


def elapsed_s(begun_s: float) -> float:
    return time.monotonic() - begun_s


@pytest.mark.parametrize("begin", [HEADER, CONTENT, CLOSING], ids=["header", "content", "closing"])
@pytest.mark.parametrize("good_count", [0, 1], ids=["first", "reused"])
def test_a_request_ends_with_its_time(dripping: Dripping, begin: bytes, good_count: int) -> None:
    """Also on a connection that served an earlier request."""
    dripping.begin, dripping.good_count = begin, good_count
    with short_session(requests, LIMIT_S) as session:
        for _ in range(good_count):
            assert session.post(dripping.address, data=b"x").status_code == 200
        begun_s = time.monotonic()
        with pytest.raises(requests.exceptions.ConnectionError):
            session.post(dripping.address, data=b"x")
    assert LIMIT_S <= elapsed_s(begun_s) < PATIENCE_S / 2
    assert (dripping.connections_count, dripping.requests_count) == (1, 1 + good_count)


def test_a_tls_handshake_ends_with_it(dripping: Dripping) -> None:
    """And is told as a receiver that does not answer, not as one without TLS."""
    dripping.begin = TLS_RECORD
    begun_s = time.monotonic()
    with (
        short_session(requests, LIMIT_S) as session,
        pytest.raises(requests.exceptions.ConnectionError) as refused,
    ):
        session.post(dripping.address.replace("http:", "https:"), data=b"x")
    assert not isinstance(refused.value, requests.exceptions.SSLError)
    assert LIMIT_S <= elapsed_s(begun_s) < PATIENCE_S / 2


def test_connecting_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """All addresses of a name share the time: each had all of it."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        address = full.getsockname()
        with socket.create_connection(address):  # its queue has no room for another one
            name = (socket.AF_INET, socket.SOCK_STREAM, 0, "", address)
            monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [name] * 40)
            begun_s = time.monotonic()
            with (
                short_session(requests, LIMIT_S) as session,
                pytest.raises(requests.exceptions.ConnectionError),
            ):
                session.post("http://receiver:4318", data=b"x")
            assert LIMIT_S <= elapsed_s(begun_s) < 20 * LIMIT_S


def test_a_shorter_timeout_is_the_limit(dripping: Dripping) -> None:
    """The SDK gives what is left of its own time to a second attempt."""
    begun_s = time.monotonic()
    with (
        short_session(requests, PATIENCE_S) as session,
        pytest.raises(requests.exceptions.ConnectionError),
    ):
        session.post(dripping.address, data=b"x", timeout=LIMIT_S)
    assert elapsed_s(begun_s) < PATIENCE_S / 2


def test_metrics_are_pushed_again_after_a_header_without_an_end(
    dripping: Dripping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "TIMEOUT_S", LIMIT_S)
    said: list[str] = []
    servers = ServerCounters({"db1": Counters()})
    push = OtlpPush(servers, endpoint_of(dripping.address), "db1", 0.1, said.append)
    until(lambda: dripping.requests_count >= 3)
    dripping.good_count = 1 << 30
    until(lambda: len(said) == 2)
    push.close()
    assert "cannot be sent" in said[0]
    assert "again" in said[1]
