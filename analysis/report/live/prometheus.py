# SPDX-License-Identifier: GPL-2.0-only
"""The counters of a watch as Prometheus metrics, by prometheus_client.

One thread answers one scrape after another. A client that is slow is cut off, so that it costs
no memory and delays the next scrape by seconds at most.
"""

import importlib
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.fleet.columns import SECOND_NS
from tlstax.analysis.fleet.continuous.counters import Counters
from tlstax.analysis.fleet.rollup.intervals import WALL, coarse_role
from tlstax.analysis.quantities import library
from tlstax.collectors.capture.vocabulary import STATES

_PATIENCE_S: Final = 5
_BUCKETS: Final = range(15, 36)
"""Upper bounds of histograms as powers of two, in ns: 33 us to 34 s, where exact sums end."""
_SCALE: Final = 4
"""Buckets of the data set in one power of two."""


class _Handler(WSGIRequestHandler):
    """Answers without a log."""

    timeout = _PATIENCE_S

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as its base says
        """Nothing: a scrape every 15 s is no news."""


class _Server(WSGIServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is none of ours."""


class _Server6(_Server):
    address_family = socket.AF_INET6


class Exposition:
    """Serves the counters until it is closed."""

    def __init__(self, counters: Counters, host: str, port: int) -> None:
        """Raises TlstaxError: HOST if prometheus_client is missing, USAGE for a bad address."""
        client = _client()
        registry = client.CollectorRegistry()
        client.ProcessCollector(registry=registry)
        registry.register(_Collected(counters))
        kind = _Server6 if ":" in host else _Server
        try:
            self._server = make_server(host, port, client.make_wsgi_app(registry), kind, _Handler)
        except OSError as error:
            raise TlstaxError(
                f"cannot serve metrics at {host}:{port}",
                error.strerror or str(error),
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

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._core = importlib.import_module("prometheus_client.core")

    def collect(self) -> Iterator[Any]:
        """All metric families."""
        with self._counters.held():
            return iter([*self._state(), *self._totals(), *self._histograms()])

    def _counter(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Any:
        return self._core.CounterMetricFamily(f"tlstax_{name}", text, labels=labels)

    def _gauge(self, name: str, text: str, value: float) -> Any:
        return self._core.GaugeMetricFamily(f"tlstax_{name}", text, value=value)

    def _state(self) -> Iterator[Any]:
        now = self._counters
        yield self._gauge("server_up", "1: the server is recorded now.", now.is_attached)
        labels = ("server", "version", "tls_library", "build_id", "level")
        info = self._core.InfoMetricFamily("tlstax_server", "The server recorded last.")
        for server in now.facts.targets:
            tls = library(server.tls_library, server.tls_version)
            values = (server.server, server.server_version, tls, server.build_id, now.level)
            info.add_metric([], dict(zip(labels, values, strict=True)))
        yield info
        yield self._gauge("last_window_timestamp_seconds", "End of the last window.",
                          now.window_wall_s)  # fmt: skip
        yield self._gauge("last_rollup_timestamp_seconds", "When a rollup was last written.",
                          now.rollup_wall_s)  # fmt: skip
        yield self._gauge("resident_memory_bytes", "Memory of tlstax with its recorder.",
                          now.resident_bytes)  # fmt: skip
        for name, text, count in (
            ("server_attachments", "Servers attached to: 1, and 1 for each restart followed.",
             now.attached_count),
            ("rollup_failures", "Rollups that could not be written at the first attempt.",
             now.failed_count),
            ("rollups_lost", "Rollups of an hour that were given up.", now.lost_count),
        ):  # fmt: skip
            family = self._counter(name, text)
            family.add_metric([], count)
            yield family

    def _totals(self) -> Iterator[Any]:
        sums = self._counters.sums
        whole: Mapping[str, int] = next(iter(sums.interval.values()), {})
        for name, text, column in (
            ("recorded_seconds", "Time recorded.", "recorded_ns"),
            ("ledger_observed_seconds", "Part of it in which the ledger was kept.",
             "ledger_observed_ns"),
            ("handshake_observed_seconds", "Part of it in which handshakes were recorded.",
             "handshake_observed_ns"),
            ("server_cpu_seconds", "CPU time of the server by its own clock.", "process_cpu_ns"),
            ("own_cpu_seconds", "CPU time of tlstax.", "engine_cpu_ns"),
            ("probe_overhead_seconds", "CPU time of the probes in the server, as calibrated.",
             "overhead_ns"),
        ):  # fmt: skip
            family = self._counter(name, text)
            family.add_metric([], whole.get(column, 0) / SECOND_NS)
            yield family
        for name, text, column in (
            ("connections", "Connections that were set up.", "connection_count"),
            ("commands", "Commands that ended.", "command_count"),
        ):
            family = self._counter(name, text)
            family.add_metric([], whole.get(column, 0))
            yield family
        yield self._ledger()
        yield self._handshakes()
        lost = self._counter("losses", "Data lost or repaired.", ("kind",))
        for (_, kind), numbers in sorted(sums.loss.items()):
            lost.add_metric([str(kind)], numbers["lost_count"])
        yield lost
        fired = self._counter("triggers", "Changes that a watch noticed by itself.", ("kind",))
        for kind, count in sorted(self._counters.triggers.items()):
            fired.add_metric([kind.removeprefix("trigger-")], count)
        yield fired

    def _ledger(self) -> Any:
        times: dict[tuple[str, str, str], int] = {}
        for (_, role, phase), numbers in self._counters.sums.ledger.items():
            for state in STATES:
                key = coarse_role(str(role)), str(phase), state
                times[key] = times.get(key, 0) + numbers.get(f"{state}_ns", 0)
        text = "Time of the server's threads by role, phase and state."
        family = self._counter("ledger_seconds", text, ("role", "phase", "state"))
        for key, spent_ns in sorted(times.items()):
            family.add_metric(list(key), spent_ns / SECOND_NS)
        return family

    def _handshakes(self) -> Any:
        labels = ("outcome", "tls_version", "cipher", "group", "resumption")
        family = self._counter("handshakes", "Handshakes that ended.", labels)
        for (_, *kind), numbers in sorted(self._counters.sums.handshake.items()):
            family.add_metric([str(one) for one in kind], numbers["handshake_count"])
        return family

    def _histograms(self) -> Iterator[Any]:
        sums = self._counters.sums
        wall_ns = sum(numbers["wall_ns"] for numbers in sums.handshake.values())
        commands = sums.phase_latency.get((0, "command"), {})
        command_ns = sum(
            count * 2 ** ((index + 0.5) / _SCALE) for index, count in _counts(commands)
        )
        for name, phase, total_ns, text in (
            ("handshake_duration_seconds", WALL, wall_ns, "Wall time of successful handshakes."),
            (
                "command_duration_seconds",
                "command",
                command_ns,
                "Wall time of commands; the sum is that of the middles of finer buckets.",
            ),
        ):
            numbers = sums.phase_latency.get((0, phase), {})
            yield self._core.HistogramMetricFamily(
                f"tlstax_{name}", text, buckets=_buckets(numbers), sum_value=total_ns / SECOND_NS
            )


def _counts(numbers: Mapping[str, int]) -> list[tuple[int, int]]:
    """Buckets of the data set: index and count."""
    return [(int(name), count) for name, count in numbers.items() if name != "ended_count"]


def _buckets(numbers: Mapping[str, int]) -> list[tuple[str, float]]:
    """Cumulative counts: a bucket of the data set ends at 2^((index + 1) / 4) ns."""
    counts = _counts(numbers)
    made: list[tuple[str, float]] = []
    for power in _BUCKETS:
        below = sum(count for index, count in counts if index < power * _SCALE)
        made.append((repr(2**power / SECOND_NS), below))
    return [*made, ("+Inf", sum(count for _, count in counts))]
