# SPDX-License-Identifier: GPL-2.0-only
"""Flame graphs of the HTML report in a real browser: keyboard, mouse, search, address."""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tlstax.tests.e2e.browser.conftest import SETTLE_MS


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


def test_flame_graphs_arrive_as_they_were(page: Page, document: dict[str, Any]) -> None:
    assert page.evaluate("tlstax.document.flames") == document["flames"]


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


def top_of(page: Page, name: str) -> float:
    """Below the graph's own top, in CSS pixels: the page may still be scrolling to it."""
    frame = page.locator(f'#flame g.frame[name="{name}"]').first
    below = "one.getBoundingClientRect().top - one.closest('#flame').getBoundingClientRect().top"
    return float(frame.evaluate(f"one => {below}"))


def test_icicle(page: Page, browser: Browser) -> None:
    """Callees hang below their callers; zoom and search stay, and a link shows the same."""
    choose_storm(page)
    assert top_of(page, "all") > top_of(page, "handshake") > top_of(page, "EVP_MD_fetch")
    page.locator('#flame g.frame[name="handshake"]').click()
    page.locator("#flame-search").fill("EVP_MD")
    page.wait_for_timeout(SETTLE_MS)
    found = page.locator("#flame-details").inner_text()
    page.locator('[data-tabs="flame-view"] label', has_text="icicle").click()
    page.wait_for_timeout(SETTLE_MS)
    assert top_of(page, "all") < top_of(page, "handshake") < top_of(page, "EVP_MD_fetch")
    assert width_of(page, "handshake") == pytest.approx(width_of(page, "all"), rel=0.01)
    assert page.locator("#flame-search").input_value() == "EVP_MD"
    assert page.locator("#flame-details").inner_text() == found
    assert page.locator("#flame g.frame.dim").count() > 0
    link = str(page.evaluate("location.href"))
    assert "&view=icicle&frame=" in link
    context = browser.new_context(viewport={"width": 1000, "height": 900}, offline=True)
    other = context.new_page()
    other.goto(link)
    other.wait_for_timeout(SETTLE_MS)
    assert other.locator('[data-tabs="flame-view"] input[value="1"]').is_checked()
    assert top_of(other, "all") < top_of(other, "handshake")
    assert width_of(other, "handshake") == pytest.approx(width_of(other, "all"), rel=0.01)
    assert other.evaluate("location.href") == link
    other.set_viewport_size({"width": 700, "height": 900})
    other.wait_for_timeout(SETTLE_MS)
    assert top_of(other, "all") < top_of(other, "handshake")
    context.close()
    page.locator("#flame-reset").click()
    page.wait_for_timeout(SETTLE_MS)
    page.locator('#flame g.frame[name="all"]').focus()
    page.keyboard.press("ArrowDown")
    assert focused(page) == "sign"
    page.keyboard.press("ArrowUp")
    assert focused(page) == "all"
    page.locator('[data-tabs="flame-view"] label', has_text="callees above").click()
    page.wait_for_timeout(SETTLE_MS)
    assert top_of(page, "all") > top_of(page, "handshake")
    assert "view=" not in str(page.evaluate("location.href"))


def drawn(page: Page, side: str) -> list[str]:
    """Names of the frames on one side of the sandwich."""
    frames = page.locator(f"#sandwich-{side} g.frame").all()
    return [frame.get_attribute("name") or "" for frame in frames]


def test_callers_and_callees_of_a_function(page: Page, browser: Browser) -> None:
    """Who calls EVP_MD_fetch, from all stacks of the graph; a link shows the same."""
    choose_storm(page)
    button = page.locator("#flame-sandwich")
    expect(button).to_be_disabled()
    page.locator('#flame g.frame[name="handshake"]').click()
    expect(button).to_be_disabled()
    page.locator('#flame g.frame[name="EVP_MD_fetch"]').first.click()
    page.wait_for_timeout(SETTLE_MS)
    button.click()
    page.wait_for_timeout(SETTLE_MS)
    assert page.locator("#flame").is_hidden()
    expected = page.evaluate(
        """(() => {
          const wanted = "storm/connect_query/tls/on_cpu";
          const flame = tlstax.document.flames.find((one) => one.name === wanted);
          const callers = {};
          let total = 0;
          const walk = (node, parent) => {
            if (node.name === "EVP_MD_fetch") {
              total += node.value;
              callers[parent.name] = (callers[parent.name] ?? 0) + node.value;
              return;
            }
            node.children.forEach((child) => walk(child, node));
          };
          walk(flame.root, null);
          return { callers, total, time: tlstax.format.time(total) };
        })()"""
    )
    assert page.locator("#sandwich-time").inner_text() == expected["time"]
    direct = page.evaluate(
        """Object.fromEntries(d3.selectAll("#sandwich-callers g.frame").data()
          .filter((node) => node.depth === 1).map((node) => [node.data.name, node.value]))"""
    )
    assert direct == pytest.approx(expected["callers"])
    assert drawn(page, "callees")[0] == "EVP_MD_fetch"
    link = str(page.evaluate("location.href"))
    assert "&function=EVP_MD_fetch" in link
    caller = next(iter(expected["callers"]))
    page.locator(f'#sandwich-callers g.frame[name="{caller}"]').first.click()
    page.wait_for_timeout(SETTLE_MS)
    assert page.locator("#sandwich-name").inner_text() == caller
    assert "EVP_MD_fetch" in drawn(page, "callees")
    page.keyboard.press("Escape")
    page.wait_for_timeout(SETTLE_MS)
    assert page.locator("#sandwich").is_hidden()
    assert width_of(page, "handshake") < 0.9 * width_of(page, "all")
    assert "function=" not in str(page.evaluate("location.href"))
    context = browser.new_context(viewport={"width": 1000, "height": 900}, offline=True)
    other = context.new_page()
    other.goto(link)
    other.wait_for_timeout(SETTLE_MS)
    assert other.locator("#sandwich-name").inner_text() == "EVP_MD_fetch"
    other.evaluate("location.hash = location.hash.replace('EVP_MD_fetch', '%3Cimg%20src=x%3E')")
    expect(other.locator("#flame-details")).to_contain_text("has the name <img src=x>")
    assert other.locator("#sandwich").is_hidden()
    context.close()


def test_a_hostile_name_in_the_sandwich(page: Page) -> None:
    """Names come from binaries: the fixture fails if one of them runs as a script."""
    page.evaluate(
        """(() => {
          const hostile = "<img src=x onerror=alert(1)></script>";
          const [flame] = tlstax.document.flames;
          const phase = flame.root.children[1] ?? flame.root.children[0];
          phase.children[0].name = hostile;
          const link = new URLSearchParams({ graph: flame.name, function: hostile });
          location.hash = `#flames?${link}`;
        })()"""
    )
    page.wait_for_timeout(SETTLE_MS)
    assert page.locator("#sandwich-name").inner_text() == "<img src=x onerror=alert(1)></script>"
    assert page.locator("#sandwich img").count() == 0


@pytest.mark.parametrize("is_there", [True, False], ids=["empty", "missing"])
def test_address_of_a_graph_without_frames_is_not_that_of_the_one_before(
    page: Page, *, is_there: bool
) -> None:
    """Resizing restores what the address says: that showed the graph before again."""
    page.evaluate(
        """(isThere) => {
          const { flames } = tlstax.document;
          const of = flames.findIndex(({ name }) => name === "storm/connect_query/tls/off_cpu");
          if (isThere) Object.assign(flames[of].root, { value: 0, children: [] });
          else flames.splice(of, 1);
        }""",
        is_there,
    )
    choose_storm(page)
    page.locator('#flame g.frame[name="handshake"]').click()
    page.wait_for_timeout(SETTLE_MS)
    page.locator('[data-tabs="flame-kind"] label', has_text="off CPU").click()
    page.wait_for_timeout(SETTLE_MS)
    wanted = "#flames?graph=storm%2Fconnect_query%2Ftls%2Foff_cpu" if is_there else "#flames"
    assert page.evaluate("location.hash") == wanted
    page.set_viewport_size({"width": 700, "height": 900})
    page.wait_for_timeout(SETTLE_MS)
    assert page.locator("#flame").inner_text() == "Nothing was recorded for this graph."
    assert page.evaluate("location.hash") == wanted
    page.locator('[data-tabs="flame-kind"] label', has_text="on CPU").click()
    page.wait_for_timeout(SETTLE_MS)
    assert width_of(page, "handshake") > 0
