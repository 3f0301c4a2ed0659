# SPDX-License-Identifier: GPL-2.0-only
"""The page of `tlstax diff` in a real browser: no request, no overflow, zoom and keyboard."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tlstax.__main__ import main

DEMO = Path(__file__).resolve().parents[3] / "docs/demo/demo.tlstax"


@pytest.fixture(scope="module")
def page_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("diff") / "diff.html"
    arms = [f"{DEMO}:connect/{arm}" for arm in ("plaintext", "tls")]
    assert main(["diff", *arms, "--html", str(path)]) == 0
    return path


def listen(page: Page, said: list[str]) -> None:
    """Keep what the page complains about, and what it asks for."""
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: said.append(request.url))


def check(page: Page) -> None:
    """Zoom, widths, search and keyboard of the first flame graph."""
    graph = page.locator("[data-flame]").first
    frames = graph.locator("svg g")
    assert frames.count() > 20
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    by_name = graph.locator("svg g", has=page.locator("title", has_text="sign:")).first
    assert "; new" in by_name.locator("title").inner_html()
    graph.get_by_label("before").check()
    assert graph.locator("svg g", has=page.locator("title", has_text="sign:")).count() == 0
    graph.get_by_label("the larger").check()
    graph.get_by_role("searchbox").fill("evp")
    assert graph.locator("svg g.hit").count() > 0
    graph.get_by_role("searchbox").fill("")
    frames.nth(0).focus()
    page.keyboard.press("ArrowUp")
    assert graph.locator("svg g.caller").count() == 1
    page.keyboard.press("Escape")
    assert graph.locator("svg g.caller").count() == 0


def test_the_page_works_from_disk_at_both_widths(browser: Browser, page_path: Path) -> None:
    for width in (1280, 390):
        page = browser.new_page(viewport={"width": width, "height": 900})
        said: list[str] = []
        listen(page, said)
        page.goto(page_path.as_uri())
        check(page)
        assert said == [page_path.as_uri()]
        page.close()
