# SPDX-License-Identifier: GPL-2.0-only
"""A time limit for a whole request: connecting, TLS, headers and content.

The timeouts of requests are for each address and for each wait for bytes: a receiver that sends one
byte now and then, of TLS or of a header, is waited for without an end. Here a timer shuts the
connections of a request down, so that whatever waits for them fails. The look-up of a name has
the limits of the host's resolver.
"""

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

_LEAST_S: Final = 0.001
"""A timeout of 0 would mean: do not wait."""


class RequestLimit:
    """Of the requests of one session, one after the other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: list[socket.socket] = []
        self._end_s = 0.0
        self._is_over = False

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """A request that may take so long."""
        self._end_s, self._is_over = time.monotonic() + seconds, False
        timer = threading.Timer(seconds, self._cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            with self._lock:
                for one in self._held:
                    one.close()
                self._held = []

    @property
    def is_over(self) -> bool:
        """Whether the time of the present request, or of the last one, was up."""
        return self._is_over

    def hold(self, connection: Any) -> None:
        """The request uses this socket: it is shut down when the time is up."""
        # A descriptor of its own: TLS takes that of `connection`, and urllib3 may close it early.
        own = socket.socket(fileno=os.dup(connection.fileno()))
        with self._lock:
            self._held.append(own)
            if self._is_over:
                _shut_down(own)

    def connect(self, host: str, port: int) -> socket.socket:
        """Connect, to whichever address answers first in the time. Raises OSError."""
        why = OSError("it has no address")
        for family, kind, protocol, _, address in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        ):
            try:
                made = socket.socket(family, kind, protocol)
            except OSError as error:
                why = error
                continue
            try:
                made.settimeout(max(_LEAST_S, self._end_s - time.monotonic()))
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                made.connect(address)
            except OSError as error:
                made.close()
                why = error
            else:
                return made
        raise why

    def _cut(self) -> None:
        with self._lock:
            self._is_over = True
            for one in self._held:
                _shut_down(one)


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):  # it is no longer connected
        connection.shutdown(socket.SHUT_RDWR)


def limited_pools(urllib3: Any, limit: RequestLimit) -> dict[str, Any]:
    """The pools of connections by scheme, whose connections keep to `limit`."""
    return {
        scheme: type("Pool", (pool,), {"ConnectionCls": _limited(urllib3, pool, limit)})
        for scheme, pool in (
            ("http", urllib3.HTTPConnectionPool),
            ("https", urllib3.HTTPSConnectionPool),
        )
    }


def _limited(urllib3: Any, pool: Any, limit: RequestLimit) -> Any:
    class Limited(pool.ConnectionCls):  # type: ignore[misc]  # a class of urllib3
        def _new_conn(self) -> socket.socket:
            try:
                made = limit.connect(self._dns_host, self.port)
            except OSError as error:
                raise urllib3.exceptions.NewConnectionError(self, str(error)) from error
            made.settimeout(self.timeout)
            limit.hold(made)
            return made

        def request(self, *asked: Any, **how: Any) -> None:
            if self.sock is not None:  # one of an earlier request
                limit.hold(self.sock)
            super().request(*asked, **how)

    return Limited
