# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax report`: the files that it writes, what it prints, and what it refuses."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.__main__ import main
from tlstax.analysis.report.html import page as html
from tlstax.tests.golden.report import shown
from tlstax.tests.unit.report.examples import ROOT, document, printed


def test_command_writes_every_form(experiment: Path, tmp_path: Path, capsys: Any) -> None:
    page, data, stacks = (tmp_path / name for name in ("r.html", "r.json", "r.folded"))
    options = ["--html", str(page), "--json", str(data), "--folded", str(stacks)]
    assert main(["report", str(experiment), *options]) == 0
    assert capsys.readouterr().out.rstrip().endswith(f"Report: {page}")
    assert json.loads(data.read_text())["version"] == 3
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
