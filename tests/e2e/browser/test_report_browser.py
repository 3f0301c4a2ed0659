# SPDX-License-Identifier: GPL-2.0-only
"""The HTML report in a real browser: headless Chromium, from disk, without a network."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tlstax.analysis import quantities
from tlstax.analysis.report.html import page as html
from tlstax.tests.e2e.browser.conftest import HOSTILE, SETTLE_MS, Visit
from tlstax.tests.golden.report import shown


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
        ("count", quantities.count),
    ):
        found = page.evaluate(f"(values) => values.map(tlstax.format.{name})", values)
        assert found == [write(value) for value in values]
    shares = [0, 1, 0.0042, 0.0095, 0.0096, 0.5, 0.9899, 0.99, 0.9951, -0.172, 1e-6]
    found = page.evaluate("(values) => values.map(tlstax.format.share)", shares)
    assert found == [quantities.share(value) for value in shares]
    assert page.evaluate("tlstax.format.time(null)") == quantities.ABSENT


def test_every_chart_has_a_label_and_a_table(page: Page) -> None:
    charts = page.locator(".chart").all()
    assert charts
    for box in charts:
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
    for part in ("handshakes", "heatmaps", "primitives", "method", "sources"):
        assert embedded[part] == document[part]


def test_heatmap_has_a_cell_for_each_count(page: Page, document: dict[str, Any]) -> None:
    panel = page.locator('[data-panel="heatmap"]:visible')
    expect(panel).to_have_count(1)
    shown = document["heatmaps"][int(panel.get_attribute("data-index") or -1)]
    assert shown["phase"] == "handshake"
    filled = sum(count > 0 for column in shown["columns"] for count in column["counts"])
    assert panel.locator("svg rect").count() == filled + len(shown["columns"])


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
    assert lines[0].split("\t") == ["Part", "Per handshake", "range of 7", "Share"]
    assert len(lines) == 1 + table.locator("tbody tr").count()
    assert {line.count("\t") for line in lines} == {3}
    context.close()


def test_lanes_of_handshakes_hold_every_part(page: Page, document: dict[str, Any]) -> None:
    panel = page.locator('[data-panel="handshake"]:visible')
    shown = document["handshakes"][int(panel.get_attribute("data-index") or -1)]
    chart = panel.locator("svg.lanes")
    assert chart.locator("rect").count() == sum(len(lane["parts"]) for lane in shown["lanes"])
    assert "Server, slowest" in (chart.text_content() or "")
    assert "not their order" in panel.inner_text()
