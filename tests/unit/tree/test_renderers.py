# SPDX-License-Identifier: GPL-2.0-only
"""A renderer of one format imports no renderer of another: what they share is in modules that
belong to no format, such as report/layout.py and report/texts.py."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tlstax.tests.unit.tree.test_rooms import imported, innermost, module_of, source_files

FORMATS: Final = tuple(
    f"analysis.report.{name}" for name in ("export", "html", "live", "markdown", "terminal")
)


def across_formats(sources: Mapping[str, str]) -> list[str]:
    """One line for each import of one format's renderer by another's."""
    known = frozenset(sources)
    return sorted(
        f"{module} imports {other}"
        for module, source in sources.items()
        if (own := innermost(module, FORMATS)) is not None
        for other in set(imported(source, known))
        if innermost(other, FORMATS) not in (None, own)
    )


@pytest.fixture(scope="module")
def sources(repository: Path) -> dict[str, str]:
    return {module_of(path, repository): path.read_text() for path in source_files(repository)}


def test_no_renderer_imports_that_of_another_format(sources: dict[str, str]) -> None:
    folders = {".".join(module.split(".")[:3]) for module in sources}
    assert folders >= set(FORMATS)
    assert across_formats(sources) == []


@pytest.mark.parametrize(
    "planted",
    [
        "from tlstax.analysis.report.terminal import console",
        "def render():\n    from tlstax.analysis.report.terminal.diff import print_difference",
        "import tlstax.analysis.report.terminal.diff",
    ],
)
def test_a_planted_import_of_another_format_is_found(sources: dict[str, str], planted: str) -> None:
    planted_sources = {**sources, "analysis.report.html.diff": planted}
    (line,) = across_formats(planted_sources)
    assert line.startswith("analysis.report.html.diff imports analysis.report.terminal")
