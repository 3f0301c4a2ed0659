# SPDX-License-Identifier: GPL-2.0-only
"""Handshakes that nobody asked for by name, on both sides, and what is no handshake after them."""

import subprocess
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tlstax.collectors.placement.planning import plan_in_child
from tlstax.tests.loader.native import Engine, Options

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
    how: str, pem: Path, repository: Path, real_losses: Callable[..., dict[str, int]]
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
        _, plan = plan_in_child(process.pid)
        with closing(Engine(process.pid, plan, Options())) as engine:
            engine.attach()
            process.stdin.write("go\n")
            assert process.stdout.readline() == "done\n"
            records = engine.maps.handshake_records()
            hits: Counter[str] = Counter()
            for site, count in zip(plan.sites, engine.site_hits(), strict=True):
                if site.boundary == "handshake_call":
                    hits[site.event] += count
            losses = real_losses(engine.loss_counts())
        process.stdin.write("end\n")
    assert [record.outcome for record in records] == [0] * (2 * COUNT)
    assert {record.tls_version for record in records} == {TLS13}
    assert losses == {}
    # The client's tickets pass through the same functions, and belong to no record.
    assert hits["enter"] == hits["exit"]
    assert hits["enter"] >= sum(record.call_count for record in records) + COUNT
