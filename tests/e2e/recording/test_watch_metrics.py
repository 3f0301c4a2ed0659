# SPDX-License-Identifier: GPL-2.0-only
"""Debian's Prometheus scrapes a watch of a real server; an alert fires when the server is gone."""

import json
import math
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tlstax.tests.e2e.recording import prometheus_server
from tlstax.tests.e2e.recording.prometheus_server import Ask, query
from tlstax.tests.e2e.recording.watch_runs import (
    THREADS,
    WatchRun,
    await_true,
    connect,
    copied_server,
    server_of,
)
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.server_directory import free_port

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

COUNT = 20
BUSY_S = 3


@pytest.fixture
def prometheus(tmp_path: Path, repository: Path, spawn: Callable[..., Any]) -> Callable[[int], Ask]:
    """Starts one that scrapes a port; asks it."""
    rules = (repository / "docs/monitoring/tlstax-alerts.yml").read_text()
    hurried = re.sub(r"for: \d+m", "for: 1s", rules)
    return lambda port: prometheus_server.start(tmp_path, hurried, port, spawn)


def require_panels(server: PrivateServer, ask: Ask, repository: Path) -> None:
    """Every query of the dashboard returns data."""
    dashboard = json.loads((repository / "docs/monitoring/tlstax-dashboard.json").read_text())
    queries = {
        target["expr"]
        .replace("$__rate_interval", "30s")
        .replace("$job", ".*")
        .replace("$instance", ".*")
        .replace("$server", ".*")
        for panel in dashboard["panels"]
        for target in panel["targets"]
    }
    driver = Sysbench.of_server(server, table_rows=10)
    driver.run(Load(SCENARIOS["point_select"], THREADS, BUSY_S), "tls", time.sleep)
    connect(server, COUNT)

    def without_data() -> list[str]:
        return [
            text
            for text in queries
            if not any(math.isfinite(float(row["value"][1])) for row in ask(query(text)))
        ]

    assert len(queries) > 15
    await_true(lambda: not without_data(), lambda: f"no data: {without_data()}")


def test_a_real_prometheus_sees_the_server_and_its_end(
    prometheus: Callable[[int], Ask], lab_directory: Path, tmp_path: Path, repository: Path
) -> None:
    port = free_port()
    program = copied_server(lab_directory, f"tlstax-{lab_directory.name[-6:]}")
    with server_of(program) as server:
        watch = WatchRun(
            tmp_path / "said",
            *(tmp_path / "data", "--name", program.name, "--listen", str(port)),
        )
        watch.await_said("recording process")
        ask = prometheus(port)
        await_true(lambda: ask(query("tlstax_server_up == 1")), lambda: watch.said)
        connect(server, COUNT)
        text = 'sum(tlstax_handshakes_total{outcome="success",tls_version="TLSv1.3"})'
        await_true(
            lambda: [row["value"][1] for row in ask(query(text))] == [str(COUNT)],
            lambda: str(ask(query("tlstax_handshakes_total"))),
        )
        p99 = "histogram_quantile(0.99, tlstax_handshake_duration_seconds_bucket)"
        ((_, seconds),) = [row["value"] for row in ask(query(p99))]
        assert 0 < float(seconds) < 40
        assert ask("alerts") == []
        (kept,) = ask(query("process_resident_memory_bytes"))
        assert float(kept["value"][1]) > 1 << 20
        require_panels(server, ask, repository)
    await_true(
        lambda: (
            {(row["labels"]["alertname"], row["state"]) for row in ask("alerts")}
            == {("TlstaxServerNotRecorded", "firing")}
        ),
        lambda: f"{ask('alerts')} {watch.said}",
    )
    assert watch.end() == 0
    program.unlink()
