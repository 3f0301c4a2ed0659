# SPDX-License-Identifier: GPL-2.0-only
"""Debian's Prometheus takes native histograms, and the same sums as without them."""

import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tlstax.analysis.report.live.prometheus import Exposition
from tlstax.analysis.rows import tables as capture_tables
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.tests.e2e.recording import prometheus_server
from tlstax.tests.e2e.recording.prometheus_server import query
from tlstax.tests.e2e.recording.watch_runs import await_true
from tlstax.tests.watched_rows import Watching, by_window

FEATURE = ("--enable-feature=native-histograms",)
NAME = "tlstax_handshake_duration_seconds"


@pytest.fixture
def tables(repository: Path) -> Tables:
    with CaptureReader.open(repository / "docs/demo/demo.tlstax") as reader:
        return capture_tables.load(reader)


@pytest.fixture
def watching(tables: Tables, tmp_path: Path) -> Watching:
    return Watching(tmp_path, tables)


@pytest.fixture
def exposition(watching: Watching) -> Iterator[Exposition]:
    served = Exposition(watching.servers, "127.0.0.1", 0)
    yield served
    served.close()


def values(rows: list[dict[str, Any]]) -> dict[str, float]:
    return {
        json.dumps(row["metric"], sort_keys=True): float(row["value"][1])
        for row in rows
        if row["metric"].get("__name__", "").startswith("tlstax_")
    }


def test_prometheus_reads_native_histograms(
    exposition: Exposition,
    watching: Watching,
    tables: Tables,
    tmp_path: Path,
    repository: Path,
    spawn: Callable[..., Any],
) -> None:
    (tmp_path / "native").mkdir()
    (tmp_path / "classic").mkdir()
    native = prometheus_server.start(tmp_path / "native", "", exposition.port, spawn, FEATURE)
    classic = prometheus_server.start(tmp_path / "classic", "", exposition.port, spawn)
    windows = by_window(tables)
    watching.take(windows[: len(windows) // 2])
    up = query("tlstax_server_up == 1")
    await_true(lambda: native(up) and classic(up), lambda: "the first half was not scraped")
    watching.take(windows[len(windows) // 2 :])
    walls_s = sorted(
        (row.end_ns - row.start_ns) / 1e9 for row in tables.handshakes if row.outcome == "success"
    )
    count = f"histogram_count({NAME})"
    await_true(
        lambda: [row["value"][1] for row in native(query(count))] == [str(len(walls_s))],
        lambda: str(native(query(count))),
    )
    whole = f"{NAME}_count == {len(walls_s)}"
    await_true(lambda: classic(query(whole)), lambda: str(classic(query(f"{NAME}_count"))))
    assert native(query(f"{NAME}_bucket")) == []
    assert classic(query(count)) == []
    ((_, total_s),) = [row["value"] for row in native(query(f"histogram_sum({NAME})"))]
    assert float(total_s) == pytest.approx(sum(walls_s))
    # Nothing looked like a restart: buckets grow.
    ((_, resets),) = [row["value"] for row in native(query(f"resets({NAME}[1m])"))]
    assert float(resets) == 0
    for share in (0.25, 0.5, 0.9, 0.99):
        true_s = walls_s[math.ceil(share * len(walls_s)) - 1]
        text = query(f"histogram_quantile({share}, {NAME})")
        ((_, found_s),) = [row["value"] for row in native(text)]
        # A bucket is 19 % wide, and a time may stand in the one beside its own.
        assert true_s / 2**0.5 <= float(found_s) <= true_s * 2**0.5
    series = 'query?query={__name__=~"tlstax_.%2B",__name__!~".*_duration_.*"}'
    assert len(values(classic(series))) > 20
    assert values(native(series)) == values(classic(series))
    dashboard = (repository / "docs/monitoring/tlstax-dashboard.json").read_text()
    panels = [
        target["expr"]
        for panel in json.loads(dashboard)["panels"]
        for target in panel["targets"]
        if "histogram_quantile" in target["expr"]
    ]
    assert len(panels) == 4
    rules = yaml.safe_load((repository / "docs/monitoring/tlstax-alerts.yml").read_text())
    (slow,) = [
        rule["expr"]
        for group in rules["groups"]
        for rule in group["rules"]
        if rule.get("alert") == "TlstaxHandshakesSlow"
    ]
    hurried = slow.replace("[10m]", "[2m]").replace("> 1", "> 0").replace(">= 100", "> 0")
    for expression in (*panels, hurried):
        text = re.sub(r"\$(job|instance|server)", ".*", expression)
        text = text.replace("$__rate_interval", "2m")
        for ask in (native, classic):
            (row,) = ask(query(text))
            assert math.isfinite(float(row["value"][1]))
