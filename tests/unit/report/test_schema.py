# SPDX-License-Identifier: GPL-2.0-only
"""The schema of the JSON report: it is the documented one, and reports keep to it."""

import copy
import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from tlstax.analysis.document import explain
from tlstax.analysis.document.json_schema import report_schema
from tlstax.analysis.model.report import to_json
from tlstax.analysis.rows import tables
from tlstax.collectors.capture.reader import CaptureReader

ROOT = Path(__file__).resolve().parents[3]


def test_the_schema_in_docs_is_the_schema() -> None:
    text = (ROOT / "docs/report.schema.json").read_text(encoding="utf-8")
    assert json.loads(text) == report_schema(), "run `make capture-docs`"


@pytest.mark.parametrize("options", [("--attach",), ("--rounds", "4")])
def test_reports_keep_to_the_schema(options: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "capture.tlstax"
    script = ROOT / "tests/golden/capture/synthetic.py"
    subprocess.run([sys.executable, str(script), str(path), *options], check=True)
    with CaptureReader.open(path) as reader:
        content = to_json(explain.explain(tables.load(reader)))
    validator = jsonschema.Draft202012Validator(report_schema())
    validator.check_schema(report_schema())
    validator.validate(json.loads(json.dumps(content)))
    wrong = copy.deepcopy(content)
    wrong["ledgers"][0]["total_ns"] = "much"
    assert not validator.is_valid(wrong)
    del wrong["ledgers"]
    assert not validator.is_valid(wrong)


def test_an_empty_report_keeps_to_the_schema() -> None:
    content = to_json(explain.explain(tables.Tables()))
    jsonschema.Draft202012Validator(report_schema()).validate(content)


def test_shipped_captures_keep_to_the_schema() -> None:
    validator = jsonschema.Draft202012Validator(report_schema())
    captures = sorted((ROOT / "docs/demo").glob("*.tlstax"))
    assert captures
    for path in captures:
        with CaptureReader.open(path) as reader:
            content = to_json(explain.explain(tables.load(reader)))
        for flame in content["flames"]:
            flame["root"]["children"] = []  # thousands of frames, all alike
        validator.validate(content)
