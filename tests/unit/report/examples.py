# SPDX-License-Identifier: GPL-2.0-only
"""Captures, documents and printed reports, for the tests of this folder."""

import copy
import functools
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

from tlstax.analysis.document import explain
from tlstax.analysis.model.report import to_json
from tlstax.analysis.report.terminal import report as terminal
from tlstax.analysis.rows import tables
from tlstax.collectors.capture.reader import CaptureReader

ROOT = Path(__file__).resolve().parents[3]


def synthetic(path: Path, *options: str) -> Path:
    """A capture whose model is known."""
    script = ROOT / "tests/golden/capture/synthetic.py"
    subprocess.run([sys.executable, str(script), str(path), *options], check=True)
    return path


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


HOSTILE = "</script><script>alert(1)</script><!-- & \u2028\u2029 \x1b[31m '\" {{ 7*7 }}"
