# SPDX-License-Identifier: GPL-2.0-only
"""What tlstax took in all, with startup and end, as a share of the server's CPU time."""

from pathlib import Path

import pytest

from tlstax.analysis.document import health
from tlstax.analysis.report.html import page as html
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.schema import Effect, System, Window
from tlstax.tests.golden.report import shown
from tlstax.tests.unit.report.examples import document, printed

MS = 1_000_000
OUTSIDE = {"start_cpu_ns": str(300 * MS), "end_cpu_ns": str(200 * MS)}
FLOOR = {"effect_floor_cpus": "0.1"}
SERVER_NS = 4_000 * MS
EFFECT = Effect(1, SERVER_NS, 40 * MS, 20 * MS, 10 * MS, 5 * MS)
ENGINE_NS = 25 * MS
IN_WINDOWS_NS = (40 + 20 + 10 + 5) * MS + ENGINE_NS
LINE = "the overhead together with startup and the end: 15.0 % of the server's CPU time"


def recorded(meta: dict[str, str], effect: Effect | None = EFFECT) -> Tables:
    """A window of 10 s."""
    return Tables(
        windows=[Window(1, None, 0, 10_000 * MS)],
        system=[System(1, 0, 0, 0, 0, 0, ENGINE_NS, 0)],
        effects=[effect] if effect else [],
        meta=meta,
    )


def test_it_is_the_sum_of_all_that_was_used() -> None:
    share = health.observe(recorded(OUTSIDE)).whole_share
    assert share == pytest.approx((IN_WINDOWS_NS + 500 * MS) / SERVER_NS)


def test_it_is_of_the_base_of_the_other_shares() -> None:
    """A server that computes little counts as using a tenth of a CPU, as in `effects`."""
    idle = EFFECT._replace(target_cpu_ns=10 * MS)
    observer = health.observe(recorded(OUTSIDE | FLOOR, idle))
    assert observer.effects[-1].observed_share == pytest.approx(0.1)
    assert observer.whole_share == pytest.approx(0.6)


@pytest.mark.parametrize("key", OUTSIDE)
def test_a_part_that_is_not_recorded_is_left_out(key: str) -> None:
    share = health.observe(recorded({key: OUTSIDE[key]})).whole_share
    assert share == pytest.approx((IN_WINDOWS_NS + int(OUTSIDE[key])) / SERVER_NS)


def test_without_the_cpu_time_of_the_server_there_is_none() -> None:
    for effect in (None, EFFECT._replace(target_cpu_ns=None), EFFECT._replace(target_cpu_ns=0)):
        assert health.observe(recorded(OUTSIDE, effect)).whole_share is None
    unknown = EFFECT._replace(target_cpu_ns=None)
    assert health.observe(recorded(OUTSIDE | FLOOR, unknown)).whole_share is None


@pytest.mark.parametrize("meta", [{}, dict.fromkeys(OUTSIDE, "much")])
def test_without_startup_and_end_there_is_none(meta: dict[str, str]) -> None:
    assert health.observe(recorded(meta)).whole_share is None


def read(attached: Path, **values: float | None) -> tuple[str, str]:
    """What the terminal and the page say."""
    content = document(attached)
    content["health"]["observer"] |= values
    texts = printed(content), shown.visible_text(html.render(content))
    assert [shown.missing(text, content) for text in texts] == [[], []]
    terminal, page = (" ".join(text.replace("\u00a0", " ").split()) for text in texts)
    return terminal, page


def test_it_is_one_line_beneath_startup_and_end(attached: Path) -> None:
    values = {"start_cpu_ns": 300e6, "end_cpu_ns": 200e6, "whole_share": 0.15}
    terminal, page = read(attached, **values)
    assert f"the end used 200 ms of CPU time (not included above) {LINE}" in terminal
    assert "together with startup and the end, of the server's CPU time 15.0 %" in page


def test_it_names_what_it_is_of(attached: Path) -> None:
    terminal, page = read(attached, start_cpu_ns=300e6, whole_share=3.2)
    assert "together with startup: 320.00 % of" in terminal
    assert "together with startup, of the server's CPU time 320.00 %" in page
    terminal, page = read(attached, end_cpu_ns=200e6, whole_share=0.15)
    assert "together with the end: 15.0 % of" in terminal
    assert "together with the end, of the server's CPU time 15.0 %" in page


def test_what_is_unknown_has_no_line(attached: Path) -> None:
    for text in read(attached, start_cpu_ns=300e6, end_cpu_ns=200e6):
        assert "together with" not in text
