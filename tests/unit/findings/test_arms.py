# SPDX-License-Identifier: GPL-2.0-only
"""What the README says of the demo stands in its findings; what TLS adds to a client, by arms."""

from dataclasses import replace
from pathlib import Path

import pytest

from tlstax.analysis.document import explain
from tlstax.analysis.rows import tables
from tlstax.collectors.capture.reader import CaptureReader

DEMO = Path(__file__).resolve().parents[3] / "docs/demo/demo.tlstax"
CAUSES = {"connections_not_reused", "fetch_over_signature", "client_work"}


@pytest.fixture(scope="module")
def demo() -> tables.Tables:
    with CaptureReader.open(DEMO) as reader:
        return tables.load(reader)


def found(rows: tables.Tables) -> set[str]:
    return {finding.id for finding in explain.explain(rows).findings}


def test_the_demo_names_its_causes(demo: tables.Tables) -> None:
    assert found(demo) == CAUSES


def test_a_client_that_computes_as_little_as_in_plaintext_is_no_cause(demo: tables.Tables) -> None:
    idle = [run._replace(client_cpu_ns=run.operation_count * 1000) for run in demo.runs]
    assert found(replace(demo, runs=idle)) == CAUSES - {"client_work"}


def test_without_a_plaintext_arm_nothing_is_said_of_the_client(demo: tables.Tables) -> None:
    alone = [run for run in demo.runs if run.arm == "tls"]
    assert "client_work" not in found(replace(demo, runs=alone))
