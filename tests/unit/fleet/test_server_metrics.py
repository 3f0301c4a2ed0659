# SPDX-License-Identifier: GPL-2.0-only
"""Metrics of several servers at one address: each sample says of which server it is."""

import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tlstax import TlstaxError
from tlstax.analysis.fleet.continuous.counters import Counters
from tlstax.analysis.fleet.continuous.server_counters import ServerCounters
from tlstax.analysis.report.commands.watch_sinks import Sinks
from tlstax.analysis.report.live import protobuf_exposition
from tlstax.analysis.report.live.otlp import OtlpPush, endpoint_of
from tlstax.analysis.report.live.prometheus import Exposition
from tlstax.analysis.rows.tables import Tables
from tlstax.tests.otlp_receiver import Collector
from tlstax.tests.watched_rows import Watching, by_window

HANDSHAKES = "tlstax_handshakes_total"


@pytest.fixture
def both(demo_tables: Tables, tmp_path: Path) -> dict[str, Counters]:
    """The demo whole, and its first half."""
    made: dict[str, Counters] = {}
    windows = by_window(demo_tables)
    for host in ("db1-3306", "db1-3307"):
        watching = Watching(tmp_path / host, demo_tables, host)
        watching.take(windows[: len(windows) // (2 if made else 1)])
        watching.end()
        made[host] = watching.counters
    made["db1-3307"].detached()
    return made


@pytest.fixture
def servers(both: dict[str, Counters]) -> ServerCounters:
    return ServerCounters(both, are_several=True)


@pytest.fixture
def exposition(servers: ServerCounters) -> Iterator[Exposition]:
    served = Exposition(servers, "127.0.0.1", 0)
    yield served
    served.close()


def scrape(exposition: Exposition, accept: str = "") -> bytes:
    address = f"http://127.0.0.1:{exposition.port}/metrics"
    asked = urllib.request.Request(address, headers={"Accept": accept})
    with urllib.request.urlopen(asked) as answer:
        return bytes(answer.read())


def samples(text: str) -> list[Any]:
    found = text_string_to_metric_families(text)
    return [one for family in found for one in family.samples if one.name.startswith("tlstax_")]


def totals(text: str, name: str) -> dict[str, float]:
    made: dict[str, float] = {}
    for one in samples(text):
        if one.name == name:
            made[one.labels["server"]] = made.get(one.labels["server"], 0) + one.value
    return made


def count(counters: Counters) -> int:
    return sum(numbers["handshake_count"] for numbers in counters.sums.handshake.values())


def test_each_sample_has_its_server_and_is_that_servers(
    exposition: Exposition, both: dict[str, Counters]
) -> None:
    text = scrape(exposition).decode()
    assert {one.labels.get("server") for one in samples(text)} == set(both)
    shown = totals(text, HANDSHAKES)
    assert shown == {host: count(counters) for host, counters in both.items()}
    assert shown["db1-3306"] > shown["db1-3307"] > 0
    of_buckets = totals(text, "tlstax_handshake_duration_seconds_count")
    assert of_buckets["db1-3306"] > of_buckets["db1-3307"] > 0
    names = [(one.name, tuple(sorted(one.labels.items()))) for one in samples(text)]
    assert len(set(names)) == len(names), "no sample twice"
    (family,) = [line for line in text.splitlines() if line.startswith(f"# TYPE {HANDSHAKES} ")]
    assert family.endswith("counter")
    promtool = shutil.which("promtool")
    assert promtool, "run `make packages-test`"
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_native_histograms_are_those_of_each_server(
    exposition: Exposition, both: dict[str, Counters]
) -> None:
    content = scrape(exposition, protobuf_exposition.CONTENT_TYPE)
    found = {}
    for message in messages(content):
        if message.name == "tlstax_handshake_duration_seconds":
            for metric in message.metric:
                assert metric.histogram.schema == 2
                ((name, server),) = [(label.name, label.value) for label in metric.label]
                assert name == "server"
                found[server] = metric.histogram.sample_count, len(metric.histogram.bucket)
    assert found.keys() == both.keys()
    assert found["db1-3306"][0] > found["db1-3307"][0] > 0
    assert {buckets for _, buckets in found.values()} == {22}


def messages(content: bytes) -> Iterator[Any]:
    """The families of a protobuf answer."""
    at = 0
    while at < len(content):
        size = shift = 0
        while content[at] > 127:
            size, shift, at = size | (content[at] & 127) << shift, shift + 7, at + 1
        size |= content[at] << shift
        yield protobuf_exposition._family().FromString(content[at + 1 : at + 1 + size])
        at += 1 + size


def test_all_of_a_server_is_read_at_one_instant(
    exposition: Exposition,
    servers: ServerCounters,
    both: dict[str, Counters],
    collector: Collector,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[Counters] = []
    held = Counters.held

    def noted(counters: Counters) -> AbstractContextManager[None]:
        read.append(counters)
        return held(counters)

    monkeypatch.setattr(Counters, "held", noted)
    scrape(exposition)
    assert read == list(both.values())
    OtlpPush(servers, endpoint_of(collector.address), "db1", 3600, print).close()
    assert read == 2 * list(both.values())


def test_a_server_whose_place_was_closed_has_no_series(demo_tables: Tables, tmp_path: Path) -> None:
    """As long as it is awaited it has, and says that it is down, as that of a single watch."""
    sinks = Sinks(tmp_path, "", 10, 86400.0, "", are_several=True)
    exposition = Exposition(sinks._servers, "127.0.0.1", 0)

    def up() -> dict[str, float]:
        return totals(scrape(exposition).decode(), "tlstax_server_up")

    try:
        assert up() == {}
        with sinks.of("db1-3306", print) as first:
            with sinks.of("db1-3307", print):
                assert up() == {"db1-3306": 0, "db1-3307": 0}
            with pytest.raises(TlstaxError, match="another `tlstax watch`"):
                sinks.of("db1-3306", print).__enter__()
            assert up() == {"db1-3306": 0}
            first.begin([*demo_tables.targets])
            assert up() == {"db1-3306": 1}
            first.detached()
            assert up() == {"db1-3306": 0}
        assert up() == {}
    finally:
        exposition.close()


def test_a_single_servers_metrics_have_no_label_for_it(both: dict[str, Counters]) -> None:
    (host, counters), *_ = both.items()
    exposition = Exposition(ServerCounters({host: counters}), "127.0.0.1", 0)
    try:
        assert [one for one in samples(scrape(exposition).decode()) if "server" in one.labels] == []
    finally:
        exposition.close()


def test_otlp_points_have_the_server_as_attribute(
    servers: ServerCounters, both: dict[str, Counters], collector: Collector
) -> None:
    push = OtlpPush(servers, endpoint_of(collector.address), "db1", 3600, print)
    push.close()
    assert len(collector.requests) == 1
    for name, metric in collector.metrics().items():
        data = getattr(metric, metric.WhichOneof("data"))
        found = [
            next((one.value.string_value for one in point.attributes if one.key == "server"), "")
            for point in data.data_points
        ]
        assert set(found) <= set(both), name
        begun_ns = [both[one].begun_ns for one in found]
        if not metric.HasField("gauge"):  # it has no start
            assert [point.start_time_unix_nano for point in data.data_points] == begun_ns, name
        if name == "tlstax.handshake_duration":
            assert sorted(found) == sorted(both)
            assert data.data_points[0].count > data.data_points[1].count > 0
