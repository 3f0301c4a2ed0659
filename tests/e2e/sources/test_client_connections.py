# SPDX-License-Identifier: GPL-2.0-only
"""`attach --collect sockets`: the TCP counters of a real server's connections, in its namespace."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Collector, Metric
from tlstax.tests.truth.causes import bench
from tlstax.tests.truth.causes.bench import Injection

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes", "tun")]

THREADS = 3


def test_the_connections_of_a_server_in_a_network_namespace_of_its_own(tmp_path: Path) -> None:
    capture = tmp_path / "x.tlstax"
    load = Injection(rtt_ms=1, threads=THREADS)
    with (
        bench.reachable(load, tmp_path) as (server, endpoint),
        bench.driven(load, server, endpoint),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "tlstax", "attach", str(server.pid), "--quiet", "--for", "4s",
             "-o", str(capture), "--collect", "native,sockets"],
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with CaptureReader.open(capture) as reader:
        (source,) = reader.rows(Collector)
        rows = [row for row in reader.rows(Metric) if row.source == "sockets"]
    assert (source.name, source.state) == ("sockets", "finished")
    sums = Counter[str]()
    for row in rows:
        sums[row.name] += row.value  # type: ignore[assignment]
    readings = sum(row.name == "open_count" for row in rows)
    assert readings >= 2
    assert sums["open_count"] == THREADS * readings
    assert sums["sent_count"] > 100
    assert sums["received_count"] > 100
    assert "client_count" not in sums, "clients are in another namespace"
