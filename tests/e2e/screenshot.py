# SPDX-License-Identifier: GPL-2.0-only
"""Take a picture of an HTML report, for the documentation and for looking at it.

.venv/bin/python tests/e2e/screenshot.py REPORT.html PICTURE.png [--section waterfall]
    [--width 1280] [--height 900] [--dark] [--full]
"""

import argparse
import shutil
from pathlib import Path

from playwright.sync_api import Browser, Playwright, sync_playwright

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
SETTLE_MS = 800


def launch(playwright: Playwright) -> Browser:
    """Chromium of this host, without a screen and off the network."""
    program = shutil.which("chromium") or "/usr/bin/chromium"
    return playwright.chromium.launch(executable_path=program, args=FLAGS)


def main() -> None:
    """Open the report from disk, without a network, and save what it looks like."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("report", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--section", help="id of one section instead of the top of the page")
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=900)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--full", action="store_true", help="the whole page")
    options = parser.parse_args()
    with sync_playwright() as playwright:
        browser = launch(playwright)
        page = browser.new_page(
            viewport={"width": options.width, "height": options.height},
            color_scheme="dark" if options.dark else "light",
        )
        page.goto(options.report.resolve().as_uri())
        page.wait_for_timeout(SETTLE_MS)
        if options.section:
            # The bar that stays at the top would cover a part of a tall section.
            page.evaluate("document.querySelector('.top').style.position = 'static'")
            page.locator(f"#{options.section}").screenshot(path=options.picture)
        else:
            page.screenshot(path=options.picture, full_page=options.full)
        browser.close()


if __name__ == "__main__":
    main()
