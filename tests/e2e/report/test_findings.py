# SPDX-License-Identifier: GPL-2.0-only
"""Injected causes, named by the findings: two fast ones; make check-causes has them all."""

from dataclasses import replace
from pathlib import Path

import pytest

from tlstax.analysis.document import explain
from tlstax.analysis.rows import tables
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.tests.truth.causes import bench, causes

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

SECONDS = 8.0  # twice what make check-causes takes: a finding is not looked for a second time


@pytest.mark.parametrize("name", ["wan", "row_lock"])
def test_the_top_finding_names_the_injected_cause(
    name: str, lab_directory: Path, tmp_path: Path
) -> None:
    case = causes.CASES[name]
    capture = tmp_path / "capture.tlstax"
    bench.record(replace(case.parameters[0], seconds=SECONDS), capture, tmp_path)
    with CaptureReader.open(capture) as reader:
        found = explain.explain(tables.load(reader)).findings
    assert found, "nothing was found"
    assert found[0].id in case.expected
    assert found[0].size.low_ns is not None
    assert found[0].size.low_ns > 0
