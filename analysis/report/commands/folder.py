# SPDX-License-Identifier: GPL-2.0-only
"""The page of what an experiment left in a folder."""

from pathlib import Path


def render_folder(folder: Path) -> Path:
    """The HTML page of what an experiment left: a matrix, or a comparison of libraries."""
    from tlstax.analysis.report.commands import libraries as libraries_command
    from tlstax.analysis.report.commands import matrix as matrix_command

    if (folder / matrix_command.RESULTS).exists():
        return matrix_command.render(folder)
    return libraries_command.render(folder / libraries_command.FACTS)
