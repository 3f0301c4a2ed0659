# SPDX-License-Identifier: GPL-2.0-only
"""Handshakes of threads that come and go without a ledger: each window counts those it has."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tlstax.collectors.capture.schema import Handshake, PhaseCount, Window
from tlstax.tests.background_load import in_background
from tlstax.tests.kernel.recorder_runs import rows_of
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.request import ServerRequest

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]
THREAD_EACH = ServerRequest(options=("thread_cache_size = 0",))
RECORDED_S, LOAD_MOST_S = 5, 120
BETWEEN = 4
"""Handshakes that end while a window is read: counted in one, recorded in the next."""


@pytest.fixture
def server() -> Iterator[PrivateServer]:
    """A MariaDB that starts a thread for each connection, in a storm of them."""
    with PrivateServer(THREAD_EACH) as running:
        driver = Sysbench.of_server(running, table_rows=100)
        driver.prepare()
        with in_background(driver, Load(SCENARIOS["connect"], 2, LOAD_MOST_S), "tls"):
            yield running


@pytest.mark.parametrize("level", ["signature", "handshake"])
def test_each_window_counts_its_handshakes(
    server: PrivateServer, tmp_path: Path, level: str
) -> None:
    capture = tmp_path / "a"
    command = [sys.executable, "-m", "tlstax", "attach", str(server.pid), "-o", str(capture)]
    command += ["--level", level, "--budget", "none", "--window", "1s", "--quiet"]
    made = subprocess.run(
        [*command, "--for", f"{RECORDED_S}s"], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    windows = [row.window_id for row in rows_of(capture, Window)]
    recorded = Counter(row.window_id for row in rows_of(capture, Handshake))
    counted = {
        row.window_id: row.ended_count
        for row in rows_of(capture, PhaseCount)
        if row.phase == "handshake"
    }
    assert len(windows) >= RECORDED_S - 1
    for window in windows[:-1]:
        assert recorded[window] > BETWEEN
        assert abs(recorded[window] - counted.get(window, 0)) <= BETWEEN, (recorded, counted)
