# SPDX-License-Identifier: GPL-2.0-only
"""Captures for the tests of reports: an experiment, an attached and a watched server."""

from pathlib import Path
from typing import Any

import pytest

from tlstax.analysis.rows import tables
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Meta
from tlstax.collectors.capture.writer import CaptureWriter
from tlstax.tests.golden.capture import sources
from tlstax.tests.unit.report.examples import HOSTILE, document, synthetic


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic(tmp_path_factory.mktemp("report") / "experiment.tlstax", "--rounds", "8")


@pytest.fixture(scope="module")
def attached(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic(tmp_path_factory.mktemp("report") / "attached.tlstax", "--attach")


@pytest.fixture(scope="module")
def watched(attached: Path) -> Path:
    """The same with sources beside the engine, among them a device with a hostile name."""
    target = attached.with_name("watched.tlstax")
    with CaptureReader.open(attached) as reader:
        rows = tables.load(reader)
    start_ns = min(window.start_ns for window in rows.windows)
    with CaptureWriter.create(target) as writer:
        for table in vars(rows).values():
            if isinstance(table, list):
                writer.add(table)
        writer.add(Meta(key, value) for key, value in rows.meta.items())
        writer.add(sources.rows(start_ns, device=HOSTILE))
        writer.commit()
    return target


@pytest.fixture(params=["experiment", "attached", "watched"])
def content(request: pytest.FixtureRequest) -> dict[str, Any]:
    return document(request.getfixturevalue(request.param))
