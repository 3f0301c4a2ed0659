# SPDX-License-Identifier: GPL-2.0-only
"""The report passes axe-core in headless Chromium: both schemes, wide and narrow, from disk.

axe-core is fetched by `make test-install`, checked against tests/e2e/vendor.list, and put into the
page by the browser's debugging interface: the page's own policy allows no foreign script.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tlstax.analysis.document import explain
from tlstax.analysis.model.report import to_json
from tlstax.analysis.report.html import page as html
from tlstax.analysis.rows import tables
from tlstax.collectors.capture.reader import CaptureReader

ROOT = Path(__file__).resolve().parents[3]
AXE = ROOT / "tests/e2e/vendor/axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
SETTLE_MS = 500


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An attached recording with findings, and an experiment."""
    folder = tmp_path_factory.mktemp("accessible")
    script = ROOT / "tests/golden/capture/synthetic.py"
    pages = {}
    for name, options in (("attached", ["--attach"]), ("experiment", ["--rounds", "2"])):
        path = folder / f"{name}.tlstax"
        subprocess.run([sys.executable, str(script), str(path), *options], check=True)
        with CaptureReader.open(path) as reader:
            content = to_json(explain.explain(tables.load(reader)))
        pages[name] = folder / f"{name}.html"
        pages[name].write_text(html.render(content), encoding="utf-8")
    return pages


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [("attached", 1280, "light"), ("attached", 390, "dark"), ("experiment", 1280, "dark")],
)
def test_axe_finds_nothing_to_object_to(
    name: str, width: int, scheme: Any, reports: dict[str, Path], browser: Browser
) -> None:
    size: Any = {"width": width, "height": 900}
    context = browser.new_context(viewport=size, color_scheme=scheme, offline=True)
    page = context.new_page()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(reports[name].as_uri())
    page.wait_for_timeout(SETTLE_MS)
    page.evaluate(f"{AXE.read_text(encoding='utf-8')}; undefined")
    found = page.evaluate("tags => axe.run({runOnly: tags, resultTypes: ['violations']})", RULES)
    told = [
        f"{one['id']} ({one['impact']}): {one['help']}: {one['nodes'][0]['html'][:200]}"
        for one in found["violations"]
    ]
    context.close()
    assert told == []
    assert len(found["passes"]) >= 15, "nothing was checked"
    assert all(not url.startswith("http") for url in requests)
