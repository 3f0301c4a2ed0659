# SPDX-License-Identifier: GPL-2.0-only
"""Render what `tlstax lab run libraries` left in a folder: terminal, JSON and one HTML page.

The folder holds facts.json and one capture for each server; nothing else is needed, neither root
nor the host that measured.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.experiment.libraries import compare_libraries
from tlstax.analysis.report import output
from tlstax.analysis.report.html import libraries as libraries_html
from tlstax.analysis.report.terminal import libraries as libraries_terminal
from tlstax.analysis.rows import tables
from tlstax.collectors.capture.reader import CaptureReader

FACTS = "facts.json"


def render(facts_path: Path) -> Path:
    """Write libraries.json and libraries.html beside the facts and print the tables.

    Returns the page. Raises TlstaxError: CAPTURE where facts or captures are damaged, IO where the
    reports cannot be written.
    """
    facts = _read(facts_path)
    folder = facts_path.parent
    rows = {}
    for entry in facts["servers"]:
        if entry["capture"]:
            with CaptureReader.open(folder / entry["capture"]) as reader:
                rows[entry["name"]] = tables.load(reader)
    document = dataclasses.asdict(compare_libraries(facts, rows))
    page = folder / "libraries.html"
    output.write(str(folder / "libraries.json"), json.dumps(document, indent=1) + "\n")
    output.write(str(page), libraries_html.render(document))
    libraries_terminal.print_libraries(document, str(page))
    return page


def _read(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(facts, dict) or not isinstance(facts.get("servers"), list):
            raise ValueError("it holds no list of servers")
    except (OSError, ValueError) as error:
        raise TlstaxError(
            f"cannot read {path}",
            str(getattr(error, "strerror", None) or error),
            "Name the folder that `tlstax lab run libraries` wrote",
            ExitCode.CAPTURE,
        ) from error
    return facts
