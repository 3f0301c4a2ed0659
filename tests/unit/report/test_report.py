# SPDX-License-Identifier: GPL-2.0-only
"""Every renderer on captures with and without arms, empty ones, and hostile ones."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tlstax.analysis.document import explain
from tlstax.analysis.model.report import to_json
from tlstax.analysis.report.export import jsondoc
from tlstax.analysis.report.html import page as html
from tlstax.analysis.report.markdown import report as markdown
from tlstax.analysis.report.terminal import console
from tlstax.analysis.rows import tables
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Frame, Gap, Probe, Target, Window
from tlstax.collectors.capture.writer import CaptureWriter
from tlstax.tests.golden.report import shown
from tlstax.tests.unit.report.examples import HOSTILE, document, printed, synthetic


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture in which every text that a stranger chooses is an attack."""
    path = synthetic(tmp_path_factory.mktemp("report") / "source.tlstax", "--rounds", "2")
    with CaptureReader.open(path) as reader:
        rows = tables.load(reader)
    target = path.with_name("hostile.tlstax")
    with CaptureWriter.create(target) as writer:
        for table in vars(rows).values():
            if isinstance(table, list):
                writer.add(spoil(row) for row in table)
        writer.add(spoil(Gap(1, "", "")))
        writer.commit()
    return target


def spoil(row: Any) -> Any:
    if isinstance(row, Frame):
        return row._replace(symbol=HOSTILE, object=HOSTILE)
    if isinstance(row, Probe):
        return row._replace(function=HOSTILE, instruction=HOSTILE, boundary=HOSTILE)
    if isinstance(row, Gap):
        return row._replace(subject=HOSTILE, consequence=HOSTILE)
    if isinstance(row, Target):
        return row._replace(exe=HOSTILE, server=HOSTILE, tls_version=HOSTILE)
    return row


def test_terminal_shows_numbers_of_the_document_only(content: dict[str, Any]) -> None:
    assert shown.missing(printed(content), content) == []


def test_page_shows_numbers_of_the_document_only(content: dict[str, Any]) -> None:
    assert shown.missing(shown.visible_text(html.render(content)), content) == []


def test_markdown_shows_numbers_of_the_document_only(content: dict[str, Any]) -> None:
    text = markdown.render(content).replace("\\", "")
    assert content["answer"]["sentence"].replace(" ", "") in text.replace(" ", "").replace(
        "\u00a0", ""
    )
    prose = "\n".join(line for line in text.splitlines() if not line.startswith("### "))
    assert shown.missing(prose, content) == []


def test_the_check_itself_finds_a_foreign_number(content: dict[str, Any]) -> None:
    assert shown.missing("took 123.456 ms, [1.23, 4567.89] µs", content) != []


def test_what_limits_trust_stands_above_the_answer(content: dict[str, Any]) -> None:
    page, text = html.render(content), printed(content)
    for output in (re.sub(r"(?s)<style>.*?</style>", "", page), text):
        answer = re.split(r"\W+", content["answer"]["sentence"])[:4]
        answer_at = re.search(r"\W+".join(answer), output)
        assert answer_at is not None
        for mark in ("nattributed", "named", "amples", "lost|Lost"):
            found = re.search(mark, output)
            assert found is not None, mark
            assert found.start() < answer_at.start(), mark


def test_that_closure_was_not_checked_is_said_once(experiment: Path) -> None:
    """The tile began with "not checked not checked in this capture"."""
    content = document(experiment)
    summary = "not checked in this capture: it holds no clocks but the ledger's"
    content["health"]["closure"] |= {"ok": None, "summary": summary}
    text = " ".join(shown.visible_text(html.render(content)).split())
    assert f"Closure {summary}" in text


def test_what_is_unavailable_is_named_with_its_consequence(attached: Path) -> None:
    content = document(attached)
    assert "unavailable" not in printed(content)
    consequence = "5 of 7 functions have names: the others show as addresses."
    content["health"]["gaps"] = [{"subject": "names in mariadbd", "consequence": consequence}]
    for output in (printed(content), shown.visible_text(html.render(content))):
        assert consequence in " ".join(output.replace("\u00a0", " ").split())
    assert printed(content).count("unavailable") == 2, "above the answer, and with its consequence"
    assert printed(content).index("names in mariadbd") < printed(content).index("mariadb 10")


def test_the_pid_in_its_own_namespace_is_named(attached: Path) -> None:
    content = document(attached)
    content["capture"]["targets"][0] |= {"pid": 4242, "own_pid": 1}
    for output in (printed(content), shown.visible_text(html.render(content))):
        assert "4242 (1 in its own namespace)" in " ".join(output.replace("\u00a0", " ").split())


def test_what_tlstax_used_after_the_last_window_and_each_start_are_told(attached: Path) -> None:
    content = document(attached)
    content["capture"]["targets"][0] |= {"pid": 71, "later_pids": [72, 73]}
    content["health"]["observer"]["end_cpu_ns"] = 250e6
    page, terminal = shown.visible_text(html.render(content)), printed(content)
    for output in (page, terminal):
        plain = " ".join(output.replace("\u00a0", " ").split())
        assert "pid 71, then 72, 73" in plain
        assert "250 ms" in plain
    assert "the end used" in terminal
    assert "at the end (not included above)" in " ".join(page.split())


def test_terminal_fits_100_columns_and_ends_with_the_page(content: dict[str, Any]) -> None:
    lines = printed(content, "out/report.html").splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 100
    assert lines[-1] == "Report: out/report.html"


def test_page_is_one_small_file_that_asks_for_nothing(content: dict[str, Any]) -> None:
    page = html.render(content)
    assert len(page.encode()) < 3_000_000
    own = re.sub(r"(?s)<script>.*?</script>", "", page)
    assert not re.search(r"(?:src|href)=[\"'](?!#|data:,)", own)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert "default-src &#39;none&#39;" in policy[1]
    assert "unsafe" not in policy[1]


def test_page_carries_the_licences_of_its_libraries(content: dict[str, Any]) -> None:
    page = html.render(content)
    assert "Permission to use, copy, modify, and/or distribute" in page
    assert "Apache License" in page


def test_same_document_gives_the_same_page(content: dict[str, Any]) -> None:
    assert html.render(content) == html.render(content)


def test_json_is_the_document(content: dict[str, Any]) -> None:
    assert json.loads(jsondoc.render(content)) == content


def test_hostile_names_stay_text(hostile: Path) -> None:
    content = document(hostile)
    page = html.render(content)
    assert "alert(1)" in page
    assert "<script>alert" not in page
    assert "{{ 7*7 }}" in shown.visible_text(page), "the template took a name for its own"
    data = re.search(r'(?s)<script type="application/json" id="document">(.*?)</script>', page)
    assert data is not None
    assert not set(data[1]) & set("<>&\u2028\u2029")
    assert json.loads(data[1])["handshakes"] == content["handshakes"]
    assert "\x1b" not in printed(content)


def test_empty_capture(tmp_path: Path) -> None:
    path = tmp_path / "empty.tlstax"
    with CaptureWriter.create(path) as writer:
        writer.commit()
    content = document(path)
    page = html.render(content)
    assert "holds no TLS handshake" in page
    assert shown.missing(shown.visible_text(page), content) == []
    assert shown.missing(printed(content), content) == []


def test_window_without_anything_in_it(tmp_path: Path) -> None:
    path = tmp_path / "idle.tlstax"
    with CaptureWriter.create(path) as writer:
        writer.add(Window(1, None, 1_000, 2_000_000_000))
        writer.commit()
    content = document(path)
    assert "no stacks" in html.render(content)
    assert printed(content)


@pytest.mark.parametrize("part", ["comparisons", "ledgers", "compositions", "handshakes", "flames"])
def test_a_missing_part_is_left_out(content: dict[str, Any], part: str) -> None:
    content[part] = []
    assert html.render(content)
    assert printed(content)


def test_steps_on_few_samples_have_no_share(experiment: Path) -> None:
    content = document(experiment)
    storm = content["comparisons"][-1]
    cell = next(cell for cell in storm["cells"] if cell["name"] == "handshake_fetch")
    line_of = re.compile(r"^ +handshake: method fetch.*$", re.MULTILINE)
    enough = line_of.search(printed({**content, "comparisons": [storm]}))
    assert enough is not None
    assert "%" in enough[0]
    cell["sample_count"] = 3
    few = line_of.search(printed({**content, "comparisons": [storm]}))
    assert few is not None
    assert "%" not in few[0]
    assert "fetch °" in few[0]
    assert "3&nbsp;samples" in html.render(content)


def test_refused_comparison_says_why(experiment: Path) -> None:
    content = document(experiment)
    line = content["comparisons"][0]
    line.update(refusal="the arms ran on different servers", cells=[], beside=[], latency={})
    line.update(difference=None, ratio=None)
    assert "the arms ran on different servers" in html.render(content)
    assert "the arms ran on different servers" in printed(content)


def test_answer_is_short(experiment: Path, attached: Path) -> None:
    answer = document(experiment)["answer"]
    assert len(answer["sentence"]) < 300, "with the cause"
    assert answer["sentence"].startswith("With TLS, a new connection takes 7 times the server CPU")
    assert "and 7.8 times as long" in answer["sentence"]
    assert "95 %" not in answer["sentence"]
    assert "95 %" in answer["details"][0]
    answer = document(attached)["answer"]
    assert answer["sentence"].startswith("Connections are not reused")
    assert "TLS and cryptography took" in answer["details"][0]


def test_answer_needs_samples_for_a_share(attached: Path) -> None:
    with CaptureReader.open(attached) as reader:
        rows = tables.load(reader)
    rows.samples = rows.samples[:3]
    sentence = explain.explain(rows).answer.details[0]
    assert "handshakes took" in sentence
    assert "cryptography" not in sentence


def test_stacks_end_where_the_walk_leaves_the_code(attached: Path) -> None:
    with CaptureReader.open(attached) as reader:
        rows = tables.load(reader)
    rows.frames = [
        frame._replace(object="", symbol="[unknown]") if frame.symbol == "sslaccept" else frame
        for frame in rows.frames
    ]
    names = {node["name"] for node in nodes(to_json(explain.explain(rows))["flames"])}
    assert "SSL_do_handshake" in names
    assert "[unknown]" not in names


def nodes(flames: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    waiting = [flame["root"] for flame in flames]
    while waiting:
        node = waiting.pop()
        waiting += node["children"]
        yield node


@pytest.mark.parametrize("width", [80, 100])
def test_terminal_of_any_width(
    content: dict[str, Any], width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "WIDTH", width)
    lines = printed(content).splitlines()
    assert max(len(line.rstrip()) for line in lines) <= width
    assert not [line for line in lines if "\N{HORIZONTAL ELLIPSIS}" in line]


def test_bar_is_as_wide_as_its_share() -> None:
    assert console.bar(0, 1, 1) == "█" * console.BAR_COLUMNS
    assert console.bar(0, 0.5, 1) == "█" * (console.BAR_COLUMNS // 2)
    assert console.bar(0.5, 1, 1) == " " * 9 + "█" * 9
    assert console.bar(1, 1, 1).strip() == "▐"
    assert console.bar(0, 0, 1) == "▌"
    assert console.bar(0, 1, 0) == ""


def test_callers_are_on_the_terminal_and_in_the_page(tmp_path: Path) -> None:
    """ "Memory 25 %" is followed by whose it is, and other computing by what it was for."""
    content = document(synthetic(tmp_path / "a.tlstax", "--rounds", "4"))
    phase = next(
        phase
        for one in content["compositions"]
        for phase in one["phases"]
        if phase["phase"] == "handshake" and phase["shares"]
    )
    known = {"share": 0.5, "low": 0.4, "high": 0.6, "sample_count": 9, "unit_count": 9}
    asker = {"category": "memory", "caller": "provider_fetch", "time_ns": 5.0, **known}
    phase["enough"] = True
    phase["shares"] = [{"category": "memory", "time_ns": 9.0, **known}]
    phase["callers"] = [
        {**asker, "function": "<b>EVP_MD_fetch"},
        {**asker, "function": "(several)", "category": "memory"},
    ]
    table = next(one for one in content["handshakes"] if one["count"] >= 30)
    task = {"function": "<i>d2i_X509", "category": "certificate", "time_ns": 7.0, **known}
    table["other_tasks"] = [task]
    text = printed(content).replace("\n", " ")
    assert "called by <b>EVP_MD_fetch (provider fetch) 50" in text
    assert "other computing, by samples: <i>d2i_X509 7" in text.replace("\u00a0", " ")
    page = html.render(content)
    assert "&lt;b&gt;EVP_MD_fetch (provider fetch)" in page
    assert "other functions (provider fetch)" in page
    assert "of that in &lt;i&gt;d2i_X509" in page
    assert "<b>EVP_MD_fetch" not in page.partition('<script type="application/json"')[0]
