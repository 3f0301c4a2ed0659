# SPDX-License-Identifier: GPL-2.0-only
"""What tests in a real browser share: headless Chromium, a report with hostile names, a visit."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tlstax.analysis.document import explain
from tlstax.analysis.model.report import to_json
from tlstax.analysis.report.html import page as html
from tlstax.analysis.rows import tables
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import (
    Collector,
    Metric,
    Primitive,
    PrimitiveCalls,
    PrimitiveTime,
    Status,
    Window,
)
from tlstax.tests.e2e.screenshot import launch
from tlstax.tests.golden.capture import sources as golden

ROOT = Path(__file__).resolve().parents[3]
HOSTILE = "<script>alert(1)</script>"
SETTLE_MS = 500
"""Zooming is animated for 220 ms."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = launch(playwright)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The document of a synthetic experiment with hostile names wherever a stranger puts names."""
    path = tmp_path_factory.mktemp("browser") / "experiment.tlstax"
    script = ROOT / "tests/golden/capture/synthetic.py"
    subprocess.run([sys.executable, str(script), str(path), "--rounds", "3"], check=True)
    with CaptureReader.open(path) as reader:
        content = to_json(explain.explain(tables.load(reader)))
    attack = f"{HOSTILE}<img src=x onerror=alert(1)></script><svg onload=alert(1)>"
    content["health"]["observer"]["probes"][0]["function"] = attack
    content["capture"]["targets"][0]["exe"] = attack
    content["capture"]["meta"][attack] = attack
    content["compositions"][0]["label"] = attack
    content["ledgers"][0]["label"] = attack
    content["handshakes"][0]["ciphers"][attack] = 1
    content["comparisons"][0]["cells"][-1]["label"] = attack
    content["flames"][0]["root"]["children"][0]["name"] = attack
    content["primitives"] = [functions(attack)]
    content["sources"] = sources(attack)
    return content


def sources(name: str) -> dict[str, Any]:
    """What `attach --collect procfs,iostat,status` adds, on a host with a device of that name."""
    rows = golden.rows(0, device=name)
    made = explain.explain(
        tables.Tables(
            windows=[Window(1, None, 0, 12 * 10**9)],
            metrics=[row for row in rows if isinstance(row, Metric)],
            status=[row for row in rows if isinstance(row, Status)],
            collectors=[row for row in rows if isinstance(row, Collector)],
        )
    )
    table: dict[str, Any] = to_json(made)["sources"]
    return table


def functions(name: str) -> dict[str, Any]:
    """A table of functions, as `attach --functions` leads to."""
    line = Primitive(1, name, "cipher", "record", name, name, "", "argument 3", 300.0, 800.0, "")
    calls = [
        PrimitiveCalls(
            1, 1, "record_write", low, 2 * low - 1, 9, 9 * low, 9, 9 * low, 90 * low, 0, 0, 0
        )
        for low in (1024, 4096, 16384)
    ]
    times = [
        PrimitiveTime(1, 1, row.low_bytes, row.high_bytes, row.time_ns // 9, row.time_ns, 9)
        for row in calls
    ]
    made = explain.explain(
        tables.Tables(
            windows=[Window(1, None, 0, 10**9)],
            primitives=[line],
            primitive_calls=calls,
            primitive_times=times,
        )
    )
    table: dict[str, Any] = to_json(made)["primitives"][0]
    return table


@pytest.fixture(scope="session")
def report(document: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("browser") / "report.html"
    path.write_text(html.render(document), encoding="utf-8")
    return path


class Visit:
    """An open report, and everything that a quiet page does not do."""

    def __init__(self, context: BrowserContext, report: Path) -> None:
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page = context.new_page()
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))
        self.page.goto(report.as_uri())
        self.page.wait_for_selector("#flame g.frame")
        self.page.wait_for_timeout(SETTLE_MS)

    def check_quiet(self, report: Path) -> None:
        assert self.complaints == []
        outside = [url for url in self.requests if not url.startswith(("data:", "blob:"))]
        assert outside == [report.as_uri()]


@pytest.fixture
def page(browser: Browser, report: Path) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    opened = Visit(context, report)
    yield opened.page
    opened.check_quiet(report)
    context.close()
