# SPDX-License-Identifier: GPL-2.0-only
"""What the README says of the demo stands in its findings; what TLS adds to a client, by arms."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tlstax.analysis.document import explain
from tlstax.analysis.findings import arm_metrics
from tlstax.analysis.findings.finding_metrics import Awaited, Judged
from tlstax.analysis.findings.window_metrics import Metrics
from tlstax.analysis.rows import tables
from tlstax.analysis.rows.tables import Group
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Run

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


def test_what_arms_do_not_show_of_a_client_is_not_said(demo: tables.Tables) -> None:
    """Its CPU time is of the whole connection: in the demo it exceeds all of the server's wait."""
    (finding,) = (one for one in explain.explain(demo).findings if one.id == "client_work")
    numbers = {one.name: one for one in finding.evidence}
    assert (numbers["client_tls_ratio"].value or 0.0) > 1.0
    assert "the server waits for the client's work" not in finding.sentence
    assert "at most 55 % of the time" in finding.sentence
    assert "at most" in numbers["client_tls_wait_share"].label
    assert "does not show how much of it the server waits for" in finding.sentence


def arms(added_ms: Sequence[float], awaited_ms: Sequence[float], missing: int = 0) -> Metrics:
    """The metrics of rounds with 100 connections; `missing` rounds have no plaintext."""

    def runs(arm: str, client_ms: Sequence[float]) -> Group:
        made = tuple(
            Run(number, "connect", "point_select", arm, number, 0, 1, 1, 100, 100, 0, 0, 0,
                round(100 * one * 1e6), "{}")
            for number, one in enumerate(client_ms)
        )  # fmt: skip
        return Group(f"connect/point_select/{arm}", "connect", "point_select", arm, made,
                     frozenset())  # fmt: skip

    waits = np.array([np.mean(awaited_ms), *awaited_ms]) * 1e6
    judged = Judged({}, "connection", 1.0, len(added_ms), 0.0, Awaited(waits, waits / 1e7))
    plain = runs("plaintext", [1.0] * (len(added_ms) - missing))
    arm_metrics.add_client_of_arms(judged, runs("tls", [1.0 + one for one in added_ms]), plain)
    return judged.metrics


def test_a_ratio_of_what_varies_together_is_taken_in_each_round() -> None:
    """A host that is slower in some rounds slows client and wait: half of it in every round."""
    slow = [2.0, 4.0] * 6
    found = arms([one / 2 for one in slow], slow)
    assert (found["client_tls_ratio"].low, found["client_tls_ratio"].high) == (0.5, 0.5)
    share = found["client_tls_wait_share"]
    assert share.low == pytest.approx(0.1)
    assert share.high == pytest.approx(0.2)


def test_bounds_of_a_ratio_contain_how_much_the_wait_varies() -> None:
    """They were those of the client's CPU time alone, over one median of the wait."""
    found = arms([1.0] * 12, [2.0, 4.0] * 6)["client_tls_ratio"]
    assert found.low == pytest.approx(0.25)
    assert found.high == pytest.approx(0.5)


def test_rounds_without_both_arms_have_no_ratio() -> None:
    found = arms([1.0] * 12, [2.0] * 12, missing=1)
    assert found["client_tls_ns"].value == pytest.approx(1e6)
    assert "client_tls_ratio" not in found
