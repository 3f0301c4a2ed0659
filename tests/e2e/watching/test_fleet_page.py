# SPDX-License-Identifier: GPL-2.0-only
"""What Prometheus has of a watch, the fleet's page shows in a real browser.

There is no Grafana here: its dashboard is checked by its model, and its queries by a Prometheus.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, sync_playwright

from tlstax.__main__ import main
from tlstax.analysis.fleet import figures, metrics
from tlstax.tests.e2e.recording import prometheus_server
from tlstax.tests.e2e.recording.prometheus_server import Ask, query
from tlstax.tests.e2e.recording.watch_runs import (
    THREADS,
    WatchRun,
    await_true,
    copied_server,
    server_of,
)
from tlstax.tests.e2e.screenshot import launch
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.server_directory import free_port

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

BUSY_S = 3
"""A host that was seen for less than a second has no rates."""
FIGURES = {
    "handshake_rate": "sum(tlstax_handshakes_total) / sum(tlstax_recorded_seconds_total)",
    "handshake_cpus": 'sum(tlstax_ledger_seconds_total{state="on_cpu",'
    'phase=~"handshake|sign|keygen|derive|verify|certificate"})'
    " / sum(tlstax_recorded_seconds_total)",
    "failed_share": 'sum(tlstax_handshakes_total{outcome!="success"} or vector(0))'
    " / sum(tlstax_handshakes_total)",
    "commands_per_connection": "sum(tlstax_commands_total) / sum(tlstax_connections_total)",
}
"""Metrics of hosts, and the same by the names of the dashboard."""


def shown(page: Page, path: Path) -> tuple[str, str]:
    """The one host of a page and its value, as they are drawn; the page is quiet and not cut."""
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: said.append(request.url))
    page.goto(path.as_uri())
    assert said == [path.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    (row,) = page.get_by_role("region", name="The first hosts").locator("tbody tr").all()
    assert row.is_visible()
    return row.locator("th").inner_text(), row.locator("td").first.inner_text()


def test_the_fleets_page_shows_what_prometheus_has(
    lab_directory: Path, tmp_path: Path, spawn: Callable[..., Any]
) -> None:
    port, data = free_port(), tmp_path / "data"
    program = copied_server(lab_directory, f"tlstax-{lab_directory.name[-6:]}")
    with server_of(program) as server:
        watch = WatchRun(
            tmp_path / "said", data, "--name", program.name, "--listen", str(port), "--raw", "0"
        )
        watch.await_said("recording process")
        ask = prometheus_server.start(tmp_path, "groups: []\n", port, spawn)
        driver = Sysbench.of_server(server, table_rows=10)
        driver.run(Load(SCENARIOS["connect"], THREADS, BUSY_S), "tls", time.sleep)
    watch.await_said("is no longer recorded")
    await_true(lambda: ask(query("tlstax_server_up == 0")), lambda: watch.said)
    wanted = {name: scraped(ask, expression) for name, expression in FIGURES.items()}
    assert watch.end() == 0, watch.said
    assert wanted["handshake_rate"] > 0 < wanted["handshake_cpus"]
    assert wanted["commands_per_connection"] > 0
    with sync_playwright() as playwright:
        browser = launch(playwright)
        for width in (1280, 390):
            for name, value in wanted.items():
                path = tmp_path / f"{name}.html"
                asked = ["fleet", "top", "--data", str(data), "--by", name, "--html", str(path)]
                assert main(asked) == 0
                page = browser.new_page(viewport={"width": width, "height": 900})
                text = figures.value_text(metrics.of_name(name).unit, value)
                assert shown(page, path) == ("db1", text), name
                page.close()
        browser.close()
    program.unlink()


def scraped(ask: Ask, expression: str) -> float:
    """The value of an expression."""
    ((_, value),) = [row["value"] for row in ask(query(expression))]
    return float(value)
