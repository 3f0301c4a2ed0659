# SPDX-License-Identifier: GPL-2.0-only
"""What TCP counts for the open connections of clients; needs no probe.

Stores sums over connections once a second: no address and no port of a client. How long each has
been quiet is read more often, in a thread that rests a hundred times the CPU time of a reading.
Where a budget pays for it, both rest two thousand times that, sums at most half a minute.

A *lone acknowledgement* is a segment without data. A server that answers at once sends none: its
answer acknowledges the command. It sends one where data came and no answer followed for 40 ms at
least (TCP_DELACK_MIN of include/net/tcp.h), or where data came in segments of full size.
"""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.series import Panel, levels, rates
from tlstax.collectors.host.clock import monotonic_ns
from tlstax.collectors.process.connections import Connection, Connections
from tlstax.collectors.recording.source_set import Source
from tlstax.collectors.sources.declaration import Asked, Declaration

OBJECT: Final = "connections"
QUIET_MS: Final = (20, 53)
"""A connection was quiet for less than the first, less than the second, or longer. A delayed
acknowledgement takes 40 ms, a tick of up to 4 ms, and what follows it some milliseconds."""
_LEAST_REST_S, _REST_FACTOR = 0.05, 100
_BUDGETED_FACTOR, _REST_MOST_NS = 2000, 30_000_000_000
"""Half a thousandth of a CPU each, a tenth of what the default budget allows for an idle server."""
_PATIENCE_S = 5.0

Quiet = Mapping[int, Counter[str]]
"""By the cookie of a connection: readings at which it was quiet for so long."""


class Sockets:
    """The counters of a server's client connections."""

    name = "sockets"
    warning = ""

    def __init__(self, pid: int, *, is_budgeted: bool = False) -> None:
        self._pid = pid
        self._rest_factor = _BUDGETED_FACTOR if is_budgeted else _REST_FACTOR
        self._sum_factor = _BUDGETED_FACTOR if is_budgeted else 0
        self._interval_ns = 0
        self._connections: Connections | None = None
        self._last: dict[int, Connection] = {}
        self._last_ns = 0
        self._lock = threading.Lock()
        self._quiet: defaultdict[int, Counter[str]] = defaultdict(Counter)
        self._over = threading.Event()
        self._failed: OSError | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> str:
        """Find the server's ports and take the first reading. Raises TlstaxError."""
        try:
            self._connections = Connections(self._pid)
            self._last = {one.cookie: one for one in self._connections.served()}
        except OSError as error:
            raise TlstaxError(
                "cannot read the TCP connections of the server",
                f"process {self._pid}: {error}",
                "Run as root on a kernel with inet_diag (CONFIG_INET_DIAG), or leave sockets out "
                "of --collect",
                ExitCode.HOST,
            ) from error
        if not self._connections.ports:
            self.stop()
            raise TlstaxError(
                "the server has no TCP connections to read",
                "it listens on no TCP port",
                "Leave sockets out of --collect: Unix sockets have no such counters",
                ExitCode.TARGET,
            )
        self._last_ns = monotonic_ns()
        self._thread = threading.Thread(target=self._watch, args=(self._connections,), daemon=True)
        self._thread.start()
        return "inet_diag"

    def _watch(self, connections: Connections) -> None:
        """How long connections have been quiet, again and again."""
        rest_s = _LEAST_REST_S
        while not self._over.wait(rest_s):
            begun_ns = time.thread_time_ns()
            with self._lock:
                try:
                    for one in connections.served():
                        self._quiet[one.cookie][quiet_of(one)] += 1
                except OSError as error:
                    self._failed = error
                    return
            taken_s = (time.thread_time_ns() - begun_ns) / 1e9
            rest_s = max(_LEAST_REST_S, self._rest_factor * taken_s)

    def poll(self, now_ns: int) -> Iterable[schema.Row]:
        """Sums over the connections that were open at the last reading, too."""
        if now_ns - self._last_ns < self._interval_ns:
            return []
        return self._sums(now_ns)

    def _sums(self, now_ns: int) -> list[schema.Row]:
        assert self._connections is not None
        begun_ns = time.thread_time_ns()
        with self._lock:
            try:
                if self._failed is not None:
                    raise self._failed
                served = self._connections.served()
                clients = self._connections.clients()
            except OSError as error:
                raise TlstaxError(
                    "the TCP connections of the server can no longer be read",
                    str(error),
                    "Look in the kernel's log",
                    ExitCode.HOST,
                ) from error
            sums = growth(self._last, served, self._quiet)
            self._quiet.clear()
        # Of new connections: long-lived ones, of a pool near by, say nothing of who connects.
        fresh = (one for one in served if one.cookie not in self._last)
        round_trips_us = [one.least_rtt_us for one in fresh if one.least_rtt_us]
        sums.update(round_trip_count=len(round_trips_us), round_trip_us=sum(round_trips_us))
        sums["client_count"] = len(clients)
        sums["client_holding_count"] = sum(one.unsent_bytes > 0 for one in clients)
        interval_ns = now_ns - self._last_ns
        self._last, self._last_ns = {one.cookie: one for one in served}, now_ns
        taken_ns = time.thread_time_ns() - begun_ns
        self._interval_ns = min(_REST_MOST_NS, self._sum_factor * taken_ns)
        return [
            schema.Metric(now_ns, interval_ns, self.name, OBJECT, name, float(value))
            for name, value in sums.items()
            if value or name == "open_count"
        ]

    def stop(self) -> Iterable[schema.Row]:
        """End the thread and close the socket; the last sums, where they are stored seldom."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(_PATIENCE_S)
        if self._connections is None:
            return ()
        connections = self._connections
        try:
            is_due = self._thread is not None and self._failed is None and self._interval_ns
            return self._sums(monotonic_ns()) if is_due else ()
        except TlstaxError:
            return ()  # the server has ended
        finally:
            self._connections = None
            connections.close()


def quiet_of(one: Connection) -> str:
    """How long nothing but acknowledgements has come or gone."""
    quiet_ms = min(one.sent_ms, one.received_ms)
    short, long = QUIET_MS
    return "short" if quiet_ms < short else "timer" if quiet_ms < long else "longer"


def growth(
    before: Mapping[int, Connection], now: Sequence[Connection], quiet: Quiet
) -> Counter[str]:
    """Sums of what grew since the last reading, apart for connections with lone acknowledgements.

    `waiting_...` and `quiet_...` are of those connections only: what others do says nothing of
    them.
    """
    sums: Counter[str] = Counter(open_count=len(now))
    for one in now:
        last = before.get(one.cookie)
        if last is None:
            continue
        received = one.data_in_count - last.data_in_count
        sent = one.data_out_count - last.data_out_count
        again = one.retransmit_count - last.retransmit_count
        lone = max(0, one.out_count - last.out_count - sent)
        sums.update(received_count=received, sent_count=sent, retransmit_count=again,
                    lone_ack_count=lone)  # fmt: skip
        if lone:
            sums.update(waiting_received_count=received, waiting_sent_count=sent)
            for place, count in quiet.get(one.cookie, {}).items():
                sums[f"quiet_{place}_count"] += count
    return sums


def _open(asked: Asked) -> Sequence[Source]:
    return (Sockets(asked.pid, is_budgeted=asked.is_budgeted),)


SOURCE: Final = Declaration(
    name="sockets",
    summary="TCP segments and acknowledgements of the server's client connections",
    needs="kernel 4.6 with inet_diag; root if the server has a network namespace of its own",
    open=_open,
    panels=(
        Panel("segments", "TCP segments of client connections", "per_second",
              rates(received="received_count", sent="sent_count",
                    acknowledgements_alone="lone_ack_count", retransmitted="retransmit_count"),
              OBJECT),
        Panel("open", "client connections", "number", levels(open="open_count"), OBJECT),
    ),
)  # fmt: skip
