# SPDX-License-Identifier: GPL-2.0-only
"""Injected causes, named by the findings: one fast one; make check-causes has them all."""

from dataclasses import replace
from pathlib import Path

import pytest

from tlstax.analysis.document import explain
from tlstax.analysis.model.findings import Finding
from tlstax.analysis.rows import tables
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.tests.truth.causes import bench, causes

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

SECONDS = 8.0  # twice what make check-causes takes: a finding is not looked for a second time


def findings_of(capture: Path) -> list[Finding]:
    with CaptureReader.open(capture) as reader:
        return explain.explain(tables.load(reader)).findings


@pytest.mark.parametrize("name", ["wan", pytest.param("row_lock", marks=pytest.mark.long)])
def test_the_top_finding_names_the_injected_cause(
    name: str, lab_directory: Path, tmp_path: Path
) -> None:
    case = causes.CASES[name]
    capture = tmp_path / "capture.tlstax"
    bench.record(replace(case.parameters[0], seconds=SECONDS), capture, tmp_path)
    # Events of the tests beside this one cost, too, and this server uses little CPU time.
    found = [one for one in findings_of(capture) if one.id != "profiler_costs"]
    assert found, "nothing was found"
    assert found[0].id in case.expected
    assert found[0].size.low_ns is not None
    assert found[0].size.low_ns > 0


def test_a_cause_in_records_is_named_without_their_boundaries(
    lab_directory: Path, tmp_path: Path
) -> None:
    """By `tlstax attach --level flow`, where nothing was found: commands are one phase there."""
    case = causes.CASES["old_ciphers"]
    capture = tmp_path / "capture.tlstax"
    bench.record(replace(case.parameters[0], seconds=SECONDS, mode="flow"), capture, tmp_path)
    ids = [one.id for one in findings_of(capture)]
    assert {*ids} & {"cipher_downgrade", "cipher_without_hardware"}, ids
