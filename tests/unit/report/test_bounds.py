# SPDX-License-Identifier: GPL-2.0-only
"""What is printed of bounds: "95 %" only of eight units or more, else the range and the count."""

import io
import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tlstax.__main__ import main
from tlstax.analysis.compare import difference, selections
from tlstax.analysis.compare.selections import RecordingSelection
from tlstax.analysis.report import texts
from tlstax.analysis.report.html import diff as diff_html
from tlstax.analysis.report.html import page as html
from tlstax.analysis.report.markdown import diff as diff_markdown
from tlstax.analysis.report.markdown import report as markdown
from tlstax.analysis.report.terminal import diff as diff_terminal
from tlstax.analysis.rows import tables, window_units
from tlstax.analysis.rows.tables import Group
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Run, Window
from tlstax.tests.unit.report.examples import ROOT, document, printed, synthetic

CLAIM = re.compile(r"(?<![\d.,])95[ \u00a0]%")


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven rounds."""
    return synthetic(tmp_path_factory.mktemp("bounds") / "few.tlstax", "--rounds", "7")


def texts_of(content: dict[str, Any]) -> dict[str, str]:
    """A report in every form."""
    return {
        "terminal": printed(content),
        "html": html.render(content),
        "markdown": markdown.render(content),
        "json": json.dumps(content, ensure_ascii=False),
    }


def compared(path: Path) -> dict[str, Any]:
    """The arms of an experiment, compared by `tlstax diff`."""
    with CaptureReader.open(path) as reader:
        rows = tables.load(reader)
    before, after = (
        RecordingSelection("a", rows, selections.matching(rows, f"connect_query/{arm}")[0])
        for arm in ("plaintext", "tls")
    )
    made: dict[str, Any] = json.loads(
        json.dumps(asdict(difference.compare_recordings([(before, after)])))
    )
    return made


def difference_texts(content: dict[str, Any]) -> dict[str, str]:
    stream = io.StringIO()
    diff_terminal.print_difference(content, stream=stream)
    return {
        "terminal": stream.getvalue(),
        "html": diff_html.render(content),
        "markdown": diff_markdown.render(content),
        "json": json.dumps(content, ensure_ascii=False),
    }


def claims(found: dict[str, str]) -> list[str]:
    return [name for name, text in found.items() if CLAIM.search(text)]


def bounded(value: Any) -> Iterator[dict[str, Any]]:
    """Every object of a document that has bounds by units."""
    if isinstance(value, dict):
        if (
            value.get("unit_count") is not None
            and value.get("low_ns", value.get("low")) is not None
        ):
            yield value
        for inner in value.values():
            yield from bounded(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from bounded(inner)


def test_seven_rounds_claim_nothing(few: Path) -> None:
    content = document(few)
    counts = {item["unit_count"] for item in bounded(content)}
    assert counts
    assert max(counts) < 8
    assert claims(texts_of(content)) == []
    assert "range of 7" in printed(content)
    assert {cell["verdict"] for cell in content["comparisons"][0]["cells"]} == {"no interval"}


def test_seven_rounds_compared_claim_nothing(few: Path) -> None:
    content = compared(few)
    assert claims(difference_texts(content)) == []
    assert "range of 7" in difference_texts(content)["terminal"]
    assert {step["verdict"] for step in content["pairs"][0]["steps"]} == {"no interval"}


def test_many_windows_of_few_rounds_claim_nothing() -> None:
    windows = [Window(n, n // 100 + 1, n * 10**9, (n + 1) * 10**9) for n in range(300)]
    ids = frozenset(range(300))
    recording = Group("all", "", "", "", (), ids)
    assert window_units.of_group(recording, windows).units.have_interval
    run = Run(1, "storm", "connect", "tls", 0, 0, 1, 1, 1, 1, 1, 1, 1, 0, "{}")
    runs = tuple(run._replace(run_id=number + 1, round=number) for number in range(3))
    experiment = Group("a", "storm", "connect", "tls", runs, ids)
    assert window_units.of_group(experiment, windows).units.count == 7


def test_eight_rounds_have_intervals(experiment: Path) -> None:
    for found in (texts_of(document(experiment)), difference_texts(compared(experiment))):
        assert claims(found) == ["terminal", "html", "markdown", "json"]


def test_a_short_recording_claims_nothing(attached: Path) -> None:
    content = document(attached)
    counts = {item["unit_count"] for item in bounded(content)}
    assert counts
    assert max(counts) < 8, "its windows are too few for eight blocks"
    assert claims(texts_of(content)) == []


def test_recorded_outputs_claim_nothing_of_few_units() -> None:
    """The outputs of the demo's eight rounds may; those of a short recording do not."""
    recorded = {
        path.name: path.read_text("utf-8") for path in (ROOT / "tests/golden/report").glob("*.out")
    }
    assert "attached.out" in recorded
    assert set(claims(recorded)) <= {"demo.out"}


def test_predictions_of_few_rounds_claim_nothing(
    few: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["whatif", f"{few}:connect_query/tls", "--pool", "10"]) == 0
    printed_text = capsys.readouterr().out
    assert not CLAIM.search(printed_text)
    assert "too few for an interval" in printed_text


def test_a_heading_says_what_the_bounds_are() -> None:
    def line(count: int | None) -> dict[str, Any]:
        return {"low_ns": 1.0, "unit_count": count}

    assert texts.bounds_title([line(8), line(None)]) == "95 % interval"
    assert texts.bounds_title([line(4), line(7)]) == "range of 4 to 7"
    assert texts.bounds_title([line(4), line(8)]) == texts.MIXED
    assert texts.bounds_title([{"low_ns": None, "unit_count": 1}]) == "interval"
