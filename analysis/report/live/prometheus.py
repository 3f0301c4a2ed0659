# SPDX-License-Identifier: GPL-2.0-only
"""The counters of a watch as Prometheus metrics, by prometheus_client.

Each connection has a thread, and seconds in all: a client that sends its request byte by byte has
no more. Of more connections than a few the oldest is cut off, so clients that never end their
request neither cost memory nor delay a scrape.
"""

import importlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.fleet.columns import SECOND_NS
from tlstax.analysis.fleet.continuous.server_counters import ServerCounters
from tlstax.analysis.report.live import protobuf_exposition
from tlstax.analysis.report.live.measures import PREFIX, below
from tlstax.analysis.report.live.server_measures import Histograms, Points, read_all

_PATIENCE_S: Final = 5.0
"""That a connection lasts at most."""
_AT_ONCE: Final = 4
"""Connections; the unit of systemd bounds threads."""
_BUCKETS: Final = range(15, 36)
"""Upper bounds of histograms as powers of two, in ns: 33 us to 34 s, where exact sums end."""


class _Handler(WSGIRequestHandler):
    """Answers without a log."""

    timeout = _PATIENCE_S

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as its base says
        """Nothing: a scrape every 15 s is no news."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, *asked: Any) -> None:
        self._begun_s: dict[Any, float] = {}  # by connection, the oldest first
        self._lock = threading.Lock()
        super().__init__(*asked)

    def server_bind(self) -> None:
        """As the base does, but nobody is asked for the name of the address."""
        TCPServer.server_bind(self)
        host, port = self.server_address[:2]
        self.server_name, self.server_port = str(host), int(port)
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread."""
        with self._lock:
            self._begun_s[request] = time.monotonic()
            self._cut_off(list(self._begun_s)[:-_AT_ONCE])
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Every half a second: cut off who takes too long."""
        before_s = time.monotonic() - _PATIENCE_S
        with self._lock:
            self._cut_off([one for one, begun_s in self._begun_s.items() if begun_s < before_s])

    def _cut_off(self, requests: list[Any]) -> None:
        for one in requests:
            del self._begun_s[one]
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # its thread wakes and ends

    def shutdown_request(self, request: Any) -> None:
        """A connection is over."""
        with self._lock:
            self._begun_s.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is none of ours."""


class _Server6(_Server):
    address_family = socket.AF_INET6


class Exposition:
    """Serves the counters until it is closed."""

    def __init__(self, servers: ServerCounters, host: str, port: int) -> None:
        """Raises TlstaxError: HOST if prometheus_client is missing, USAGE for a bad address."""
        client = _client()
        registry = client.CollectorRegistry()
        client.ProcessCollector(registry=registry)
        registry.register(_Collected(servers))
        kind = _Server6 if ":" in host else _Server
        try:
            self._server = make_server(host, port, _application(client, registry), kind, _Handler)
        except (OSError, TypeError, ValueError) as error:  # the latter of names that are none
            raise TlstaxError(
                f"cannot serve metrics at {host}:{port}",
                getattr(error, "strerror", "") or str(error),
                "Give another address with --listen",
                ExitCode.USAGE,
            ) from error
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _application(client: Any, registry: Any) -> Callable[..., Any]:
    """Texts, or protobuf with native histograms for a scraper that likes that best.

    A scraper that names the metrics it wants gets texts: prometheus_client chooses those.
    """
    texts = client.make_wsgi_app(registry)

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        is_whole = not environ.get("QUERY_STRING")
        if not is_whole or not protobuf_exposition.is_wanted(environ.get("HTTP_ACCEPT", "")):
            return texts(environ, start_response)
        start_response("200 OK", [("Content-Type", protobuf_exposition.CONTENT_TYPE)])
        return [protobuf_exposition.render(registry.collect())]

    return answer


def _client() -> Any:
    try:
        return importlib.import_module("prometheus_client")
    except ImportError as error:
        raise TlstaxError(
            "cannot serve metrics",
            "the Python package prometheus_client is not installed",
            "pip install 'tlstax[metrics]', or leave out --listen",
            ExitCode.HOST,
        ) from error


class _Collected:
    """What a registry asks at each scrape."""

    def __init__(self, servers: ServerCounters) -> None:
        self._servers = servers
        self._core = importlib.import_module("prometheus_client.core")

    def collect(self) -> Iterator[Any]:
        """All metric families."""
        found, histograms = read_all(self._servers)
        yield from [self._family(one) for one in found]
        yield from [self._histogram(one) for one in histograms]

    def _family(self, one: Points) -> Any:
        name = f"{PREFIX}{one.name}"
        if one.kind == "info":
            family = self._core.InfoMetricFamily(name, one.text)
            for labels, *_ in one.points:
                family.add_metric([], dict(zip(one.labels, labels, strict=True)))
            return family
        made = {"counter": "CounterMetricFamily", "gauge": "GaugeMetricFamily"}[one.kind]
        family = getattr(self._core, made)(name, one.text, labels=one.labels)
        for labels, value, _ in one.points:
            family.add_metric(labels, value)
        return family

    def _histogram(self, one: Histograms) -> Any:
        family = self._core.HistogramMetricFamily(
            f"{PREFIX}{one.name}", one.text, labels=one.labels
        )
        for labels, counts, sum_ns, _ in one.points:
            buckets = [
                *((repr(2**power / SECOND_NS), below(counts, power)) for power in _BUCKETS),
                ("+Inf", sum(counts.values())),
            ]
            family.add_metric(labels, buckets, sum_ns / SECOND_NS)
        family.native_counts = {labels: dict(counts) for labels, counts, *_ in one.points}
        return family
