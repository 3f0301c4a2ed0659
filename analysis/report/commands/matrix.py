# SPDX-License-Identifier: GPL-2.0-only
"""Render what `tlstax lab run` left of a matrix: terminal, JSON and one HTML page.

The directory holds results.sqlite and the captures; nothing else is needed, neither root nor the
host that measured. A matrix that was interrupted is rendered as far as it came.
"""

import json
from pathlib import Path

from tlstax.analysis.experiment import matrix, matrix_results
from tlstax.analysis.model.report import to_plain
from tlstax.analysis.report import output
from tlstax.analysis.report.html import matrix as matrix_html
from tlstax.analysis.report.terminal import matrix as matrix_terminal

RESULTS = matrix_results.NAME


def render(folder: Path) -> Path:
    """Write matrix.json and matrix.html beside the results and print the tables; the page.

    Raises TlstaxError: CAPTURE where results or captures are damaged, IO where the reports cannot
    be written.
    """
    document = to_plain(matrix.explain(matrix_results.read(folder)))
    page = folder / "matrix.html"
    output.write(str(folder / "matrix.json"), json.dumps(document, indent=1) + "\n")
    output.write(str(page), matrix_html.render(document))
    matrix_terminal.print_matrix(document, str(page))
    return page
