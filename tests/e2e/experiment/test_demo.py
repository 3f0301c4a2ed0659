# SPDX-License-Identifier: GPL-2.0-only
"""The whole chain on real parts: certificates, server, drivers, probes, capture, report."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tlstax.analysis.document import explain
from tlstax.analysis.report.commands.report import headline
from tlstax.analysis.rows import tables
from tlstax.analysis.statistics.units import LEAST_RANGE
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Run, Status
from tlstax.tests.golden.report import shown

PATIENCE_S = 550
NAMED = {"connections_not_reused", "client_setup"}
"""Of what README.md tells of the demo. Method fetch and the signature are too near to each other
for so few rounds: tests/unit/findings/test_arms.py has it of the shipped capture.
"""
SEVERAL = pytest.param(LEAST_RANGE, marks=pytest.mark.long)
"""The fewest rounds with which anything is named, and a host that has nothing else to do."""


def letters(text: str) -> str:
    """A text without its blanks: lines break where they must."""
    return "".join(text.split())


@pytest.mark.root
@pytest.mark.needs("uprobes", "btf")
@pytest.mark.usefixtures("lab_directory")  # also sees that nothing is left behind
@pytest.mark.parametrize("rounds", [2, SEVERAL])
def test_a_demo_proves_its_arms_and_explains_them(tmp_path: Path, rounds: int) -> None:
    demo = [sys.executable, "-m", "tlstax", "lab", "demo", "-o", str(tmp_path / "out")]
    done = subprocess.run(
        [*demo, "--rounds", str(rounds), "--seconds", "1"],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr + done.stdout[-2000:]
    (capture,) = (tmp_path / "out").glob("*.tlstax")
    (page,) = (tmp_path / "out").glob("*.html")
    assert page.name in done.stdout
    sentence = headline(capture)
    assert sentence.startswith("With TLS, a new connection takes ")
    with CaptureReader.open(capture) as reader:
        found = {one.id: one for one in explain.explain(tables.load(reader)).findings}
    assert found.keys() >= (NAMED if rounds >= LEAST_RANGE else set())
    for text in (done.stdout, shown.visible_text(page.read_text())):
        assert letters(sentence) in letters(text)
        for finding in found.values():
            assert letters(finding.title) in letters(text)
    assert re.search(r"^demo +took (\d+ min )?\d+ s in all$", done.stdout, re.MULTILINE)

    with CaptureReader.open(capture) as reader:
        runs, statuses = list(reader.rows(Run)), list(reader.rows(Status))
    assert len(runs) == 3 * 2 * rounds
    for run in runs:
        proof = json.loads(run.proof)
        handshakes = run.connection_count if run.arm == "tls" else 0
        assert proof["recorder_handshakes"] == proof["server_handshakes"] == handshakes
        assert proof["client_handshakes"] == handshakes
        counted = [
            int(status.value)
            for status in statuses
            if status.run_id == run.run_id and status.name == "Ssl_finished_accepts"
        ]
        assert len(counted) == 2
        assert counted[1] - counted[0] == handshakes
