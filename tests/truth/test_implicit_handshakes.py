# SPDX-License-Identifier: GPL-2.0-only
"""Handshakes that nobody asked for by name, on both sides, and what is no handshake after them."""

import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tlstax.collectors.placement.planning import plan_in_child
from tlstax.collectors.preflight.safety import Safety
from tlstax.collectors.recording.stream.plan_file import plan_file_text
from tlstax.tests.figures import note
from tlstax.tests.safe_programs import is_guarded
from tlstax.tests.truth.by_recorder import record

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

TLS13 = 0x0304
COUNT = 23


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    """A key and a certificate that it signed itself."""
    path = tmp_path / "both.pem"
    options = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=truth -days 2"
    files = ["-keyout", str(path), "-out", f"{path}.crt"]
    command = ["openssl", "req", "-x509", *options.split(), *files]
    subprocess.run(command, check=True, capture_output=True)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


@pytest.mark.parametrize("how", ["implicit", "explicit"])
def test_each_side_of_a_connection_is_one_handshake(
    how: str,
    pem: Path,
    repository: Path,
    real_losses: Callable[..., dict[str, int]],
    tmp_path: Path,
) -> None:
    program = repository / "tests/testprogs/both_sides.py"
    # The system's Python: its ssl module is linked to the system's libssl.
    command = ["/usr/bin/python3", str(program), how, str(COUNT), str(pem)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        target, plan = plan_in_child(process.pid)

        def go() -> None:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("go\n")
            assert process.stdout.readline() == "done\n"

        text = plan_file_text(target, plan, Safety(guarded=is_guarded()))
        recorded = record(process.pid, text, tmp_path, go)
        records = recorded.handshake_records()
        hits: Counter[str] = Counter()
        for site, count in zip(plan.sites, recorded.site_hits(), strict=True):
            if site.boundary == "handshake_call":
                hits[site.event] += count
        losses = real_losses(recorded.loss_counts())
        process.stdin.write("end\n")
    note("records", 2 * COUNT, len(records))
    assert [each.outcome for each in records] == [0] * (2 * COUNT)
    assert {each.tls_version for each in records} == {TLS13}
    assert losses == {}
    # The client's tickets pass through the same functions, and belong to no record.
    assert hits["enter"] == hits["exit"]
    assert hits["enter"] >= sum(each.call_count for each in records) + COUNT
