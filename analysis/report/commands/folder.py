# SPDX-License-Identifier: GPL-2.0-only
"""Render what `tlstax lab run` left in a directory: terminal, JSON and one HTML page.

The directory holds results.sqlite and the captures; nothing else is needed, neither root nor the
host that measured. An experiment that was interrupted is rendered as far as it came.
"""

import json
from pathlib import Path
from typing import Any

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.experiment import libraries, matrix, matrix_results
from tlstax.analysis.experiment.matrix_results import Results
from tlstax.analysis.model.libraries import Libraries
from tlstax.analysis.model.report import to_plain
from tlstax.analysis.report import output
from tlstax.analysis.report.html import libraries as libraries_html
from tlstax.analysis.report.html import matrix as matrix_html
from tlstax.analysis.report.terminal import libraries as libraries_terminal
from tlstax.analysis.report.terminal import matrix as matrix_terminal
from tlstax.analysis.rows import tables
from tlstax.collectors.capture.reader import CaptureReader


def render_folder(folder: Path) -> Path:
    """Write the JSON and the page beside the results and print the tables; the page.

    Raises TlstaxError: CAPTURE where results or captures are damaged, IO where the reports cannot
    be written.
    """
    results = matrix_results.read(folder)
    if results.kind == "libraries":
        document = to_plain(_compare(results))
        page = _write(folder / "libraries", document, libraries_html.render(document))
        libraries_terminal.print_libraries(document, str(page))
    else:
        document = to_plain(matrix.explain(results))
        page = _write(folder / "matrix", document, matrix_html.render(document))
        matrix_terminal.print_matrix(document, str(page))
    return page


def _compare(results: Results) -> Libraries:
    """The comparison of the servers; TlstaxError (CAPTURE) where their captures are in parts."""
    compared = libraries.compared_servers(results)
    rows = {}
    for server in compared:
        if len(server.captures) > 1:
            raise TlstaxError(
                f"cannot compare the servers of {results.folder}",
                "the experiment was interrupted",
                f"Finish it: `tlstax lab resume {results.folder}`",
                ExitCode.CAPTURE,
            )
        for capture in server.captures:
            with CaptureReader.open(results.folder / capture) as reader:
                rows[server.name] = tables.load(reader)
    key = str(next(iter(results.cells.values()))["key"])
    return libraries.compare_libraries(results.meta["title"], key, compared, rows)


def _write(stem: Path, document: dict[str, Any], page: str) -> Path:
    """STEM.json and STEM.html; the latter."""
    output.write(f"{stem}.json", json.dumps(document, indent=1) + "\n")
    output.write(f"{stem}.html", page)
    return stem.with_suffix(".html")
