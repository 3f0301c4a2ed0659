# SPDX-License-Identifier: GPL-2.0-only
"""The counters of a watch as OTLP metrics, pushed by the OpenTelemetry SDK's exporter.

Names and units are those that a translation to Prometheus makes the metrics of `--listen` of, but
histograms: these are exponential, as the data set has them, and so in ns. Headers, certificates and
timeouts are the exporter's own environment variables (OTEL_EXPORTER_OTLP_...), so that no secret is
an argument.
"""

import importlib
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from tlstax import ExitCode, TlstaxError, __version__
from tlstax.analysis.fleet.continuous.server_counters import ServerCounters
from tlstax.analysis.fleet.histograms import SCALE, dense
from tlstax.analysis.report.live.server_measures import Buckets, Histograms, Points, read_all
from tlstax.analysis.report.live.short_answers import short_session

PATH: Final = "/v1/metrics"
_UNITS: Final = {"_seconds": "s", "_bytes": "By"}
TIMEOUT_S: Final = 10
_OWN_SESSION: Final = "_CREDENTIAL_PROVIDER"
"""End of the exporter's variables that name a package which makes its session."""


class OtlpPush:
    """Sends the counters again and again until it is closed, and then once more."""

    def __init__(
        self,
        servers: ServerCounters,
        endpoint: str,
        host: str,
        every_s: float,
        tell: Callable[[str], None],
    ) -> None:
        """Raises TlstaxError (HOST) if the packages are missing."""
        self._servers = servers
        self._endpoint = endpoint
        self._every_s = every_s
        self._tell = tell
        self._sdk = package("opentelemetry.sdk.metrics.export")
        self._is_failing = False
        exporter = package("opentelemetry.exporter.otlp.proto.http.metric_exporter")
        # What fails is told here, once.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        has_own = any(name.endswith(_OWN_SESSION) for name in os.environ)
        session = None if has_own else short_session(package("requests"), TIMEOUT_S)
        self._exporter = exporter.OTLPMetricExporter(
            endpoint=endpoint, timeout=TIMEOUT_S, session=session
        )
        self._resource = resource(host)
        scopes = package("opentelemetry.sdk.util.instrumentation")
        self._scope = scopes.InstrumentationScope("tlstax", __version__)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Send the last values; waits for some seconds at most."""
        self._is_over.set()
        self._thread.join(2 * TIMEOUT_S)
        self._exporter.shutdown(timeout_millis=0)

    def _run(self) -> None:
        while not self._is_over.wait(self._every_s):
            self._send()
        self._send()

    def _send(self) -> None:
        why = self._export()
        if self._is_failing and not why:
            self._tell(f"metrics are sent to {self._endpoint} again")
        if why and not self._is_failing:
            self._tell(
                f"metrics cannot be sent to {self._endpoint}: {why}. "
                "That is tried again; totals lose nothing"
            )
        self._is_failing = bool(why)

    def _export(self) -> str:
        """Why the present values were not sent; '': they were."""
        try:
            outcome = self._exporter.export(self._data(), timeout_millis=TIMEOUT_S * 1000)
        except Exception as error:  # noqa: BLE001 - the exporter's own; the thread goes on
            # Its text may repeat a header, which is a password.
            return f"the exporter failed ({type(error).__name__})"
        if outcome is self._sdk.MetricExportResult.SUCCESS:
            return ""
        return "it does not answer, or refuses them"

    def _data(self) -> Any:
        sdk = self._sdk
        found, histograms = read_all(self._servers)
        now_ns = time.time_ns()
        metrics = [
            *(self._metric(one, now_ns) for one in found),
            *(self._histogram(one, now_ns) for one in histograms),
        ]
        scope = sdk.ScopeMetrics(scope=self._scope, metrics=metrics, schema_url="")
        whole = sdk.ResourceMetrics(resource=self._resource, scope_metrics=[scope], schema_url="")
        return sdk.MetricsData(resource_metrics=[whole])

    def _metric(self, one: Points, now_ns: int) -> Any:
        sdk = self._sdk
        points = [
            sdk.NumberDataPoint(
                attributes=dict(zip(one.labels, labels, strict=True)),
                start_time_unix_nano=begun_ns,
                time_unix_nano=now_ns,
                value=float(value),
            )
            for labels, value, begun_ns in one.points
        ]
        data = sdk.Gauge(data_points=points)
        if one.kind == "counter":
            data = sdk.Sum(
                data_points=points,
                aggregation_temporality=sdk.AggregationTemporality.CUMULATIVE,
                is_monotonic=True,
            )
        name, unit = _named(f"{one.name}_info" if one.kind == "info" else one.name)
        return sdk.Metric(name=name, description=one.text, unit=unit, data=data)

    def _histogram(self, one: Histograms, now_ns: int) -> Any:
        sdk = self._sdk
        data = sdk.ExponentialHistogram(
            data_points=[self._point(one.labels, each, now_ns) for each in one.points],
            aggregation_temporality=sdk.AggregationTemporality.CUMULATIVE,
        )
        name, _ = _named(one.name)
        return sdk.Metric(name=name, description=one.text, unit="ns", data=data)

    def _point(self, labels: Sequence[str], one: Buckets, now_ns: int) -> Any:
        buckets = importlib.import_module("opentelemetry.sdk.metrics._internal.point").Buckets
        first, counts = dense(one.counts)
        return self._sdk.ExponentialHistogramDataPoint(
            attributes=dict(zip(labels, one.labels, strict=True)),
            start_time_unix_nano=one.begun_ns,
            time_unix_nano=now_ns,
            count=sum(counts),
            sum=one.sum_ns,
            scale=SCALE,
            zero_count=0,
            positive=buckets(offset=first, bucket_counts=counts),
            negative=buckets(offset=0, bucket_counts=[]),
            flags=0,
            min=None,
            max=None,
        )


def endpoint_of(address: str, path: str = PATH) -> str:
    """The address of metrics: http://HOST:4318 gets the usual path."""
    rest = address.partition("://")[2]
    return address if "/" in rest.rstrip("/") else f"{address.rstrip('/')}{path}"


def resource(host: str, what: str = "metrics", option: str = "--otlp") -> Any:
    """What sends, as the SDK's Resource. Raises TlstaxError (HOST) as `package`."""
    facts = {
        "service.name": "tlstax",
        "service.version": __version__,
        "service.instance.id": host,
        "host.name": host,
    }
    return package("opentelemetry.sdk.resources", what, option).Resource.create(facts)


def _named(name: str) -> tuple[str, str]:
    """Name and unit: the unit is no part of a name in OTLP."""
    for suffix, unit in _UNITS.items():
        if name.endswith(suffix):
            return f"tlstax.{name.removesuffix(suffix)}", unit
    # Not "1": a translation to Prometheus would append _ratio to a gauge.
    return f"tlstax.{name}", ""


def package(name: str, what: str = "metrics", option: str = "--otlp") -> Any:
    """A module that sends `what`. Raises TlstaxError (HOST) where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise TlstaxError(
            f"cannot send {what}",
            f"the Python package {(error.name or name).split('.')[0]} is not installed whole",
            f"pip install 'tlstax[otlp]', or leave out {option}",
            ExitCode.HOST,
        ) from error
