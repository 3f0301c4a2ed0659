# SPDX-License-Identifier: GPL-2.0-only
"""The HTML report in a real browser: headless Chromium, from disk, without a network."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tlstax.analysis import explain, tables
from tlstax.analysis.document import to_json
from tlstax.analysis.report import html, quantities
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

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
# --no-sandbox: Chromium refuses to run as root with one. The others keep it off the network.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
HOSTILE = "<script>alert(1)</script>"
SETTLE_MS = 500
"""Zooming is animated for 220 ms."""


def load(path: Path) -> ModuleType:
    """A module of tests/golden, which is no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
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
    rows = load(ROOT / "tests/golden/capture/sources.py").rows(0, device=name)
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


@pytest.fixture(scope="module")
def report(document: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("browser") / "report.html"
    path.write_text(html.render(document), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


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


@pytest.fixture(params=[(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")], ids=str)
def visit(request: pytest.FixtureRequest, browser: Browser, report: Path) -> Iterator[Visit]:
    width, scheme = request.param
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True
    )
    opened = Visit(context, report)
    yield opened
    opened.check_quiet(report)
    context.close()


@pytest.fixture
def page(browser: Browser, report: Path) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    opened = Visit(context, report)
    yield opened.page
    opened.check_quiet(report)
    context.close()


def test_opens_at_every_width_without_overflow(visit: Visit) -> None:
    page = visit.page
    sizes = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert sizes[0] <= sizes[1]
    assert page.locator(".chart svg").count() >= 6
    for chart in page.locator(".chart").all():
        if chart.is_visible():
            box = chart.locator("svg").bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= sizes[1] + 1


def test_text_of_charts_stays_in_the_page(visit: Visit) -> None:
    beyond = visit.page.evaluate(
        """() => [...document.querySelectorAll(".chart svg text")]
        .filter((text) => text.getClientRects().length)
        .filter((text) => {
          const box = text.getBoundingClientRect();
          return box.left < -0.5 || box.right > innerWidth + 0.5;
        }).map((text) => text.textContent)"""
    )
    assert [text for text in beyond if HOSTILE not in text] == []


CONTRASTS = """() => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const paint = canvas.getContext("2d", { willReadFrequently: true });
  const luminance = (colour) => {
    paint.clearRect(0, 0, 1, 1);
    paint.fillStyle = colour;
    paint.fillRect(0, 0, 1, 1);
    const channels = [...paint.getImageData(0, 0, 1, 1).data].slice(0, 3).map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * channels[0] + 0.7152 * channels[1] + 0.0722 * channels[2];
  };
  const contrast = (a, b) => {
    const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  const style = (selector) => getComputedStyle(document.querySelector(selector));
  const value = (name) => style(":root").getPropertyValue(name).trim();
  const paper = style("body").backgroundColor;
  const marks = [...document.querySelectorAll(".swatch")];
  return {
    scheme: style(":root").colorScheme,
    paper: luminance(paper),
    body: contrast(style("body").color, paper),
    soft: contrast(style(".lede").color, paper),
    link: contrast(style("summary").color, paper),
    warning: contrast(value("--warn"), value("--warn-sheet")),
    edges: marks.map((mark) => contrast(getComputedStyle(mark).borderTopColor, paper)),
    labels: marks.map((mark) =>
      contrast(value("--on-mark"), getComputedStyle(mark).backgroundColor)),
  };
}"""


def test_contrast_in_both_schemes(visit: Visit) -> None:
    found = visit.page.evaluate(CONTRASTS)
    assert (found["paper"] < 0.1) == (found["scheme"] == "dark")
    assert found["body"] >= 10
    assert found["soft"] >= 4.5
    assert found["link"] >= 4.5
    assert found["warning"] >= 4.5
    assert min(found["edges"]) >= 3
    assert min(found["labels"]) >= 4.5


def test_theme_button_switches_and_says_so(page: Page) -> None:
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    button = page.locator("#theme")
    expect(button).to_have_accessible_name("Switch to dark colours")
    button.press("Enter")
    expect(button).to_have_accessible_name("Switch to light colours")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before


def test_hostile_names_are_text(page: Page) -> None:
    assert HOSTILE in page.locator("#method").inner_text()
    assert HOSTILE in page.locator(".chart svg text", has_text=HOSTILE).first.inner_html().replace(
        "&lt;", "<"
    ).replace("&gt;", ">")
    page.locator('[data-tabs="flame-arm"] input').first.check(force=True)
    page.wait_for_timeout(SETTLE_MS)
    frame = page.locator(f'#flame g.frame[name^="{HOSTILE}"]').first
    assert HOSTILE in frame.locator(".d3-flame-graph-label").inner_text()
    assert HOSTILE in (frame.get_attribute("aria-label") or "")
    frame.hover()
    assert HOSTILE in page.locator("#flame-details").inner_text()
    # Nothing of it became an element: no image, and no script but the page's own.
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 1 + len(html.VENDORED) + 1
    assert page.locator("svg svg").count() == 0


def test_numbers_in_charts_are_the_documents(page: Page, document: dict[str, Any]) -> None:
    shown = load(ROOT / "tests/golden/report/shown.py")
    labels = page.evaluate(
        """() => [...document.querySelectorAll(".chart svg text")]
        .filter((text) => !text.closest("[aria-label*='tick label']"))
        .map((text) => text.textContent)"""
    )
    assert len(labels) > 100
    assert shown.missing("\n".join(labels), document) == []


def test_charts_write_numbers_as_tables_do(page: Page) -> None:
    values = [
        0,
        0.001,
        0.7,
        9.994,
        9.996,
        99.96,
        381,
        999.6,
        2.125e6,
        2.135e6,
        0.125,
        12.25e3,
        38_100,
        2.8123e6,
        61e9,
        4321e9,
    ]
    values += [-value for value in values]
    for name, write in (
        ("time", quantities.time),
        ("timeChange", quantities.time_change),
        ("count", quantities.count),
    ):
        found = page.evaluate(f"(values) => values.map(tlstax.format.{name})", values)
        assert found == [write(value) for value in values]
    shares = [0, 1, 0.0042, 0.0095, 0.0096, 0.5, 0.9899, 0.99, 0.9951, -0.172, 1e-6]
    found = page.evaluate("(values) => values.map(tlstax.format.share)", shares)
    assert found == [quantities.share(value) for value in shares]
    assert page.evaluate("tlstax.format.time(null)") == quantities.ABSENT
    pairs: list[list[float]] = [
        [2.43e6, 2.4e6, 2.461e6],
        [934, 560, 1310],
        [0, 0, 0],
        [-4450, -4570, -4400],
    ]
    found = page.evaluate("(rows) => rows.map((row) => tlstax.format.timeInterval(...row))", pairs)
    assert found == [quantities.time_interval(*row) for row in pairs]


def test_every_chart_has_a_label_and_a_table(page: Page) -> None:
    for box in page.locator(".chart").all():
        assert box.get_attribute("role") == "img"
        assert box.get_attribute("aria-label")
    for section in (
        "waterfall",
        "ledger",
        "handshake",
        "heatmap",
        "composition",
        "functions",
        "flames",
        "sources",
    ):
        tables_found = page.locator(f"#{section} details table")
        assert tables_found.count() >= 1
        shown = page.locator(f"#{section} details table:visible").count()
        page.locator(f"#{section} details.table:not([open]) > summary:visible").first.click()
        expect(page.locator(f"#{section} details table:visible")).to_have_count(shown + 1)


def focused(page: Page) -> str:
    return str(page.evaluate("document.activeElement.getAttribute('name')"))


def width_of(page: Page, name: str) -> float:
    box = page.locator(f'#flame g.frame[name="{name}"] rect').first.bounding_box()
    return box["width"] if box else 0.0


def choose_storm(page: Page) -> None:
    """The flame graph of the connect storm over TLS, whose names are the synthetic ones."""
    page.locator('[data-tabs="flame-arm"] label', has_text="storm connect_query, TLS").click()
    page.wait_for_timeout(SETTLE_MS)


def test_flame_graph_by_keyboard(page: Page) -> None:
    choose_storm(page)
    page.locator('#flame g.frame[tabindex="0"]').focus()
    assert focused(page) == "all"
    page.keyboard.press("ArrowUp")
    first = focused(page)
    assert first == "sign"
    page.keyboard.press("ArrowRight")
    assert focused(page) == "handshake"
    page.keyboard.press("ArrowLeft")
    assert focused(page) == first
    whole = width_of(page, "all")
    assert width_of(page, first) < 0.9 * whole
    page.keyboard.press("Enter")
    page.wait_for_timeout(SETTLE_MS)
    assert width_of(page, first) == pytest.approx(whole, rel=0.01)
    assert first in page.locator("#flame-details").inner_text()
    expect(page.locator("#flame-reset")).to_be_enabled()
    page.keyboard.press("Escape")
    page.wait_for_timeout(SETTLE_MS)
    assert width_of(page, first) < 0.9 * whole
    assert focused(page) == "all"
    expect(page.locator("#flame-reset")).to_be_disabled()
    assert page.locator('#flame g.frame[tabindex="0"]').count() == 1


def test_flame_graph_by_mouse(page: Page) -> None:
    choose_storm(page)
    whole = width_of(page, "all")
    page.locator('#flame g.frame[name="handshake"]').click()
    page.wait_for_timeout(SETTLE_MS)
    assert width_of(page, "handshake") == pytest.approx(whole, rel=0.01)
    page.locator("#flame-reset").click()
    page.wait_for_timeout(SETTLE_MS)
    assert width_of(page, "handshake") < 0.9 * whole


def test_flame_graph_search(page: Page) -> None:
    choose_storm(page)
    page.locator("#flame-search").fill("evp_md")
    details = page.locator("#flame-details")
    assert re.match(r"“evp_md”: .* of the graph\), in \d+ frame", details.inner_text())
    lit = page.locator("#flame g.frame:not(.dim)")
    assert {frame.get_attribute("name") for frame in lit.all()} == {"EVP_MD_fetch"}
    page.locator("#flame-search").fill("(no such [function")
    assert "no frame matches" in details.inner_text()
    page.locator("#flame-search").press("Escape")
    assert page.locator("#flame g.frame.dim").count() == 0
    page.locator('#flame-key button[data-category="provider_fetch"]').click()
    assert "provider fetch" in details.inner_text()
    assert page.locator("#flame g.frame.dim").count() > 0


def test_flame_graph_kinds_and_resizing(page: Page) -> None:
    choose_storm(page)
    page.locator('[data-tabs="flame-kind"] label', has_text="off CPU").click()
    page.wait_for_timeout(SETTLE_MS)
    assert page.locator('#flame g.frame[name="blocked_network"]').count() >= 1
    page.set_viewport_size({"width": 700, "height": 900})
    page.wait_for_timeout(SETTLE_MS)
    box = page.locator("#flame svg").bounding_box()
    assert box is not None
    assert box["width"] <= 700
    assert page.evaluate("document.documentElement.scrollWidth") <= 700


def test_tabs_by_keyboard(page: Page) -> None:
    tabs = page.locator('[data-tabs="composition"]')
    tabs.locator("input:checked").focus()
    before = page.locator('[data-panel="composition"]:visible').get_attribute("data-index")
    page.keyboard.press("ArrowRight")
    panel = page.locator('[data-panel="composition"]:visible')
    expect(panel).to_have_count(1)
    assert panel.get_attribute("data-index") != before
    assert panel.locator(".chart svg").count() >= 1


def test_prints_what_is_shown(page: Page) -> None:
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    assert page.locator(".chart svg").first.is_visible()
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_readable_without_scripts(browser: Browser, report: Path) -> None:
    context = browser.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto(report.as_uri())
    assert "every number is in the tables" in page.locator("noscript").inner_text().lower()
    assert page.locator('[data-panel="composition"]:visible').count() > 1
    context.close()


def test_size_and_data(report: Path, document: dict[str, Any]) -> None:
    text = report.read_text(encoding="utf-8")
    assert len(text.encode()) < 3_000_000
    data = re.search(r'(?s)<script type="application/json" id="document">(.*?)</script>', text)
    assert data is not None
    embedded = json.loads(data[1])
    for part in ("comparisons", "ledgers", "compositions", "handshakes", "method", "sources"):
        assert embedded[part] == document[part]


def test_flame_graphs_arrive_as_they_were(page: Page, document: dict[str, Any]) -> None:
    assert page.evaluate("tlstax.document.flames") == document["flames"]


def test_heatmap_has_a_cell_for_each_count(page: Page, document: dict[str, Any]) -> None:
    panel = page.locator('[data-panel="heatmap"]:visible')
    expect(panel).to_have_count(1)
    shown = document["heatmaps"][int(panel.get_attribute("data-index") or -1)]
    assert shown["phase"] == "handshake"
    filled = sum(count > 0 for column in shown["columns"] for count in column["counts"])
    assert panel.locator("svg rect").count() == filled + len(shown["columns"])


def test_address_keeps_what_the_flame_graph_shows(
    page: Page, browser: Browser, report: Path
) -> None:
    assert page.evaluate("location.hash") == ""
    choose_storm(page)
    page.locator('#flame g.frame[name="handshake"]').click()
    page.locator("#flame-search").fill("EVP_md & co")
    page.wait_for_timeout(SETTLE_MS)
    link = str(page.evaluate("location.href"))
    assert "graph=storm%2Fconnect_query%2Ftls%2Fon_cpu&" in link
    assert link.endswith("&search=EVP_md+%26+co")
    context = browser.new_context(viewport={"width": 1000, "height": 900}, offline=True)
    other = context.new_page()
    other.goto(link)
    other.wait_for_timeout(SETTLE_MS)
    assert other.locator("#flame-search").input_value() == "EVP_md & co"
    assert width_of(other, "handshake") == pytest.approx(width_of(other, "all"), rel=0.01)
    assert "no frame matches" in other.locator("#flame-details").inner_text()
    assert other.evaluate("location.href") == link
    other.set_viewport_size({"width": 700, "height": 900})
    other.wait_for_timeout(SETTLE_MS)
    assert width_of(other, "handshake") == pytest.approx(width_of(other, "all"), rel=0.01)
    other.evaluate("location.hash = '#flames?graph=%3Cimg%3E&frame=x.99.-1'")
    expect(other.locator("#flame-details")).to_contain_text("not in this report")
    other.evaluate("location.hash = '#flames?graph=storm/connect_query/tls/on_cpu&frame=0.x.99'")
    other.wait_for_timeout(SETTLE_MS)
    assert other.locator("#flame-search").input_value() == ""
    assert other.locator("#flame g.frame").count() > 1
    context.close()


@pytest.mark.parametrize("is_allowed", [True, False])
def test_a_table_is_copied_as_text(browser: Browser, report: Path, *, is_allowed: bool) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 900}, offline=True)
    if not is_allowed:
        context.add_init_script("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    visit = Visit(context, report)
    tables_shown = visit.page.locator("#handshake details.table:visible")
    table = tables_shown.filter(has_text="Numbers of the parts")
    table.locator("summary").click()
    table.locator("summary").press("Tab")
    button = table.locator(".copy button")
    expect(button).to_be_focused()
    expect(button).to_have_accessible_name("Copy as text: Numbers of the parts")
    visit.page.keyboard.press("Enter")
    expect(table.locator('[role="status"]')).to_have_text("Copied")
    expect(button).to_be_focused()
    visit.check_quiet(report)
    pasted = visit.page.locator("#flame-search")
    pasted.evaluate(
        "box => box.replaceWith(Object.assign(document.createElement('textarea'), {id: 'paste'}))"
    )
    visit.page.locator("#paste").press("Control+v")
    lines = visit.page.locator("#paste").input_value().splitlines()
    assert lines[0].split("\t") == ["Part", "Per handshake", "95 % interval", "Share"]
    assert len(lines) == 1 + table.locator("tbody tr").count()
    assert {line.count("\t") for line in lines} == {3}
    context.close()


def test_lanes_of_handshakes_hold_every_part(page: Page, document: dict[str, Any]) -> None:
    panel = page.locator('[data-panel="handshake"]:visible')
    shown = document["handshakes"][int(panel.get_attribute("data-index") or -1)]
    chart = panel.locator('[data-chart="lanes"]')
    assert chart.locator("svg rect").count() == sum(len(lane["parts"]) for lane in shown["lanes"])
    assert "Server, slowest" in chart.inner_text()
    assert "not their order" in panel.inner_text()
