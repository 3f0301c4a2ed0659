# SPDX-License-Identifier: GPL-2.0-only
"""Debian's Prometheus scrapes a watch of a real server; an alert fires when the server is gone."""

import json
import math
import re
import shutil
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
CONFIGURATION = """\
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: tlstax
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""
Ask = Callable[[str], list[dict[str, Any]]]


@pytest.fixture
def prometheus(tmp_path: Path, repository: Path, spawn: Callable[..., Any]) -> Callable[[int], Ask]:
    """Starts one that scrapes a port; asks it."""
    program = shutil.which("prometheus")
    assert program, "run `make packages-test`"

    def start(port: int) -> Ask:
        rules = (repository / "docs/monitoring/tlstax-alerts.yml").read_text()
        hurried = tmp_path / "rules.yml"
        hurried.write_text(re.sub(r"for: \d+m", "for: 1s", rules))
        file, own = tmp_path / "prometheus.yml", free_port()
        file.write_text(CONFIGURATION.format(rules=hurried, port=port))
        spawn(
            [
                program, f"--config.file={file}", f"--storage.tsdb.path={tmp_path / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{own}", "--log.level=error",
            ]
        )  # fmt: skip

        def ask(path: str) -> list[dict[str, Any]]:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{own}/api/v1/{path}") as answer:
                    data = json.load(answer)["data"]
            except OSError:
                return []
            return list(data.get("result", data.get("alerts")))

        return ask

    return start


def query(text: str) -> str:
    return "query?" + urllib.parse.urlencode({"query": text})


def require_panels(server: PrivateServer, ask: Ask, repository: Path) -> None:
    """Every query of the dashboard returns data."""
    dashboard = json.loads((repository / "docs/monitoring/tlstax-dashboard.json").read_text())
    queries = {
        target["expr"]
        .replace("$__rate_interval", "30s")
        .replace("$job", ".*")
        .replace("$instance", ".*")
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
