# SPDX-License-Identifier: GPL-2.0-only
"""OTLP metrics of a watch, as a server receives them that speaks the protocol."""

import time
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.fleet.continuous.counters import Counters
from tlstax.analysis.fleet.continuous.server_counters import ServerCounters
from tlstax.analysis.fleet.histograms import Histogram, sparse
from tlstax.analysis.report.live import otlp
from tlstax.analysis.report.live.measures import distributions, measures
from tlstax.analysis.report.live.otlp import OtlpPush, endpoint_of
from tlstax.analysis.rows.tables import Tables
from tlstax.tests.otlp_receiver import ENDLESS_MOST, Collector, until
from tlstax.tests.watched_rows import Watching


@pytest.fixture
def watching(demo_tables: Tables, tmp_path: Path) -> Watching:
    """Of a watch of the demo."""
    watching = Watching(tmp_path / "data", demo_tables)
    watching.all()
    return watching


@pytest.fixture
def counters(watching: Watching) -> Counters:
    return watching.counters


@pytest.fixture
def servers(watching: Watching) -> ServerCounters:
    return watching.servers


def sent(counters: Counters, collector: Collector) -> dict[str, Any]:
    return sent_of(ServerCounters({"db1": counters}), collector)


def sent_of(servers: ServerCounters, collector: Collector) -> dict[str, Any]:
    push = OtlpPush(servers, endpoint_of(collector.address), "db1", 3600, print)
    push.close()
    return collector.metrics()


def test_totals_are_cumulative_sums_with_labels(counters: Counters, collector: Collector) -> None:
    found = sent(counters, collector)
    assert {headers["path"] for headers in collector.headers} == {"/v1/metrics"}
    resource = {
        one.key: one.value.string_value
        for one in collector.requests[0].resource_metrics[0].resource.attributes
    }
    assert (resource["service.name"], resource["host.name"]) == ("tlstax", "db1")
    ledger = found["tlstax.ledger"]
    assert ledger.unit == "s"
    assert ledger.sum.is_monotonic
    assert ledger.sum.aggregation_temporality == (
        AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    )
    expected = {one.name: one for one in measures(counters)}
    points = {
        tuple(one.value.string_value for one in point.attributes): point.as_double
        for point in ledger.sum.data_points
    }
    assert points == dict(expected["ledger_seconds"].points)
    assert len(points) > 20
    names = {name.removeprefix("tlstax.") for name in found}
    for name in expected:
        plain = name.removesuffix("_seconds").removesuffix("_bytes")
        assert plain in names or f"{plain}_info" in names


def prometheus_name(metric: Any) -> str:
    """As the translation of OpenTelemetry to Prometheus makes it."""
    name = metric.name.replace(".", "_")
    if unit := {"s": "seconds", "By": "bytes", "ns": "nanoseconds"}.get(metric.unit):
        name += f"_{unit}"
    if metric.unit == "1" and metric.HasField("gauge"):
        name += "_ratio"
    return f"{name}_total" if metric.HasField("sum") else name


def test_names_in_prometheus_are_those_of_listen(counters: Counters, collector: Collector) -> None:
    """Alerts and the dashboard ask for these."""
    found = {prometheus_name(one) for one in sent(counters, collector).values()}
    ends = {"counter": "_total", "info": "_info"}
    expected = {f"tlstax_{one.name}{ends.get(one.kind, '')}" for one in measures(counters)}
    assert expected <= found
    assert "tlstax_server_up" in found


def test_histograms_are_those_of_the_data_set(counters: Counters, collector: Collector) -> None:
    found = sent(counters, collector)
    for one in distributions(counters):
        metric = found[f"tlstax.{one.name.removesuffix('_seconds')}"]
        (point,) = metric.exponential_histogram.data_points
        assert (metric.unit, point.scale, point.zero_count) == ("ns", 2, 0)
        assert not point.HasField("min")
        received = sparse(Histogram(point.positive.offset, list(point.positive.bucket_counts)))
        assert received == {index: count for index, count in one.counts.items() if count}
        assert (point.count, point.sum) == (sum(received.values()), one.sum_ns)
    assert point.count > 0


def test_a_server_that_refuses_is_told_once_and_tried_again(
    servers: ServerCounters, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "TIMEOUT_S", 1)
    said: list[str] = []
    collector.answers = [(400, b"")] * 1000
    push = OtlpPush(servers, endpoint_of(collector.address), "db1", 0.1, said.append)
    until(lambda: said)
    time.sleep(0.5)
    collector.answers.clear()
    until(lambda: collector.requests)
    push.close()
    assert ["cannot be sent" in said[0], "again" in said[1], len(said)] == [True, True, 2]


def test_an_exporter_that_raises_is_told_once_and_tried_again(
    servers: ServerCounters, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some versions of it do, where their second attempt fails."""
    said: list[str] = []
    tried: list[int] = []
    export = OTLPMetricExporter.export

    def failing(*given: Any, **named: Any) -> Any:
        tried.append(1)
        if len(tried) < 4:
            raise ConnectionError("Authorization: a password")
        return export(*given, **named)

    monkeypatch.setattr(OTLPMetricExporter, "export", failing)
    push = OtlpPush(servers, endpoint_of(collector.address), "db1", 0.1, said.append)
    until(lambda: len(tried) >= 4 and collector.requests)
    push.close()
    assert ["ConnectionError" in said[0], "again" in said[1], len(said)] == [True, True, 2]
    assert "password" not in said[0]


def test_an_answer_without_an_end_fills_no_memory(
    servers: ServerCounters, collector: Collector
) -> None:
    collector.is_endless = True
    push = OtlpPush(servers, endpoint_of(collector.address), "db1", 0.1, print)
    until(lambda: collector.requests)
    collector.is_endless = False
    push.close()
    assert 0 < collector.sent_bytes < ENDLESS_MOST / 2


def test_a_missing_package_is_named(
    servers: ServerCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name=name)

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(TlstaxError, match=r"tlstax\[otlp\]") as refused:
        OtlpPush(servers, "http://127.0.0.1:1/v1/metrics", "db1", 1, print)
    assert refused.value.exit_code == ExitCode.HOST


@pytest.mark.parametrize(
    ("address", "endpoint"),
    [
        ("http://h:4318", "http://h:4318/v1/metrics"),
        ("http://h:4318/", "http://h:4318/v1/metrics"),
        ("https://h/otlp/v1/metrics", "https://h/otlp/v1/metrics"),
    ],
)
def test_the_usual_path_is_added(address: str, endpoint: str) -> None:
    assert endpoint_of(address) == endpoint
