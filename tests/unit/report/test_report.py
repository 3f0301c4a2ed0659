# SPDX-License-Identifier: GPL-2.0-only
"""Every renderer on captures with and without arms, empty ones, and hostile ones."""

import copy
import functools
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.__main__ import main
from tlstax.analysis.document import explain
from tlstax.analysis.model.report import to_json
from tlstax.analysis.report.export import jsondoc
from tlstax.analysis.report.html import page as html
from tlstax.analysis.report.markdown import report as markdown
from tlstax.analysis.report.terminal import console
from tlstax.analysis.report.terminal import report as terminal
from tlstax.analysis.rows import tables
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Frame, Gap, Meta, Probe, Target, Window
from tlstax.collectors.capture.writer import CaptureWriter
from tlstax.tests.golden.capture import sources
from tlstax.tests.golden.report import shown

HOSTILE = "</script><script>alert(1)</script><!-- & \u2028\u2029 \x1b[31m '\" {{ 7*7 }}"
ROOT = Path(__file__).resolve().parents[3]


def synthetic(path: Path, *options: str) -> Path:
    """A capture whose model is known."""
    script = ROOT / "tests/golden/capture/synthetic.py"
    subprocess.run([sys.executable, str(script), str(path), *options], check=True)
    return path


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic(tmp_path_factory.mktemp("report") / "experiment.tlstax", "--rounds", "4")


@pytest.fixture(scope="module")
def attached(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic(tmp_path_factory.mktemp("report") / "attached.tlstax", "--attach")


@pytest.fixture(scope="module")
def watched(attached: Path) -> Path:
    """The same with sources beside the engine, among them a device with a hostile name."""
    target = attached.with_name("watched.tlstax")
    with CaptureReader.open(attached) as reader:
        rows = tables.load(reader)
    start_ns = min(window.start_ns for window in rows.windows)
    with CaptureWriter.create(target) as writer:
        for table in vars(rows).values():
            if isinstance(table, list):
                writer.add(table)
        writer.add(Meta(key, value) for key, value in rows.meta.items())
        writer.add(sources.rows(start_ns, device=HOSTILE))
        writer.commit()
    return target


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


def document(path: Path) -> dict[str, Any]:
    return copy.deepcopy(explained(path))


@functools.cache
def explained(path: Path) -> dict[str, Any]:
    with CaptureReader.open(path) as reader:
        return to_json(explain.explain(tables.load(reader)))


def printed(content: dict[str, Any], html_path: str | None = None) -> str:
    stream = io.StringIO()
    terminal.print_report(content, html_path, stream)
    return stream.getvalue()


@pytest.fixture(params=["experiment", "attached", "watched"])
def content(request: pytest.FixtureRequest) -> dict[str, Any]:
    return document(request.getfixturevalue(request.param))


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


def test_what_could_not_be_had_is_said_with_its_consequence(attached: Path) -> None:
    content = document(attached)
    assert "not to be had" not in printed(content)
    consequence = "5 of 7 functions have names: the others show as addresses."
    content["health"]["gaps"] = [{"subject": "names in mariadbd", "consequence": consequence}]
    for output in (printed(content), shown.visible_text(html.render(content))):
        assert consequence in " ".join(output.replace("\u00a0", " ").split())
    assert printed(content).index("names in mariadbd") < printed(content).index("mariadb 10")


def test_the_pid_in_its_own_namespace_is_named(attached: Path) -> None:
    content = document(attached)
    content["capture"]["targets"][0] |= {"pid": 4242, "own_pid": 1}
    for output in (printed(content), shown.visible_text(html.render(content))):
        assert "4242 (1 in its own namespace)" in " ".join(output.replace("\u00a0", " ").split())


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


def test_command_writes_every_form(experiment: Path, tmp_path: Path, capsys: Any) -> None:
    page, data, stacks = (tmp_path / name for name in ("r.html", "r.json", "r.folded"))
    options = ["--html", str(page), "--json", str(data), "--folded", str(stacks)]
    assert main(["report", str(experiment), *options]) == 0
    assert capsys.readouterr().out.rstrip().endswith(f"Report: {page}")
    assert json.loads(data.read_text())["version"] == 1
    assert page.read_text().startswith("<!doctype html>")
    for line in stacks.read_text().splitlines():
        assert re.fullmatch(r"[^;]+(;[^;]+)+ \d+", line), line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.folded", "r.html", "r.json"]


def test_folded_stacks_sum_to_the_flame_graphs(experiment: Path, capsys: Any) -> None:
    assert main(["report", str(experiment), "--folded", "-"]) == 0
    sums: dict[str, int] = {}
    for line in capsys.readouterr().out.splitlines():
        stack, _, value = line.rpartition(" ")
        name = stack.partition(";")[0]
        sums[name] = sums.get(name, 0) + int(value)
    flames = {flame["name"]: flame["total_ns"] for flame in document(experiment)["flames"]}
    assert sums == pytest.approx(flames, rel=1e-6)


def test_json_on_standard_output_is_all_there_is(experiment: Path, capsys: Any) -> None:
    assert main(["report", str(experiment), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out) == document(experiment)


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["/nonexistent/x.tlstax"], ExitCode.CAPTURE, ""),
        ([__file__], ExitCode.CAPTURE, "capture"),
        (["{capture}", "--html", "/nonexistent/r.html"], ExitCode.IO, "no such file"),
        (["{capture}", "--html", "/proc/self/r.html"], ExitCode.IO, "cannot write"),
        (["{capture}", "--json", "-", "--folded", "-"], ExitCode.USAGE, "several outputs"),
    ],
)
def test_errors(
    experiment: Path, options: list[str], code: ExitCode, says: str, capsys: Any
) -> None:
    arguments = [option.format(capture=experiment) for option in options]
    assert main(["report", *arguments]) == code
    error = capsys.readouterr().err
    assert error.startswith("tlstax: ")
    assert says in error
    assert error.count("\n") == 1


def test_full_disk_leaves_no_half_report(experiment: Path, capsys: Any) -> None:
    assert main(["report", str(experiment), "--html", "/dev/full"]) == ExitCode.IO
    assert "no space" in capsys.readouterr().err


def test_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, experiment: Path) -> None:
    monkeypatch.setattr(html, "VENDORED", ("absent.min.js", *html.VENDORED))
    with pytest.raises(TlstaxError, match="make assets"):
        html.render(document(experiment))


@pytest.mark.parametrize("options", [[], ["--json", "-"]])
def test_output_that_lacks_characters(experiment: Path, options: list[str]) -> None:
    command = [sys.executable, "-m", "tlstax", "report", str(experiment), *options]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""
    if options:
        assert json.loads(done.stdout.decode("utf-8")) == document(experiment)


def test_shipped_captures_can_be_reported(tmp_path: Path) -> None:
    captures = sorted((ROOT / "docs/demo").glob("*.tlstax"))
    assert captures
    for path in captures:
        content = document(path)
        page = html.render(content)
        assert len(page.encode()) < 3_000_000
        assert shown.missing(shown.visible_text(page), content) == []
        assert shown.missing(printed(content), content) == []


def test_answer_is_one_short_sentence(experiment: Path, attached: Path) -> None:
    answer = document(experiment)["answer"]
    assert len(answer["sentence"]) < 240
    assert answer["sentence"].startswith("With TLS, a new connection takes 7.")
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
