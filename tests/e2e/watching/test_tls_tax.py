# SPDX-License-Identifier: GPL-2.0-only
"""The TLS tax of a server from the rollups of a watch alone, without a capture."""

import json
import time
from pathlib import Path

import pytest

from tlstax.__main__ import main
from tlstax.analysis.fleet import columns
from tlstax.tests.background_load import in_background
from tlstax.tests.e2e.recording.watch_runs import (
    THREADS,
    WatchRun,
    copied_server,
    rows_of,
    server_of,
)
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

OFTEN = """
from tlstax.collectors.watching import outlet
outlet.SAMPLE_HZ = 499
"""
"""What an hour has at 3 samples a second, in some seconds."""
LOAD_S = 25


def test_top_ranks_by_tls_from_a_watch_alone(
    lab_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = copied_server(lab_directory, f"tlstax-{lab_directory.name[-6:]}")
    data = tmp_path / "data"
    with server_of(program) as server:
        watch = WatchRun(tmp_path / "said", data, "--pid", str(server.pid), changes=OFTEN)
        watch.await_said("recording process")
        driver = Sysbench.of_server(server, table_rows=10)
        with in_background(driver, Load(SCENARIOS["point_select"], THREADS, 2 * LOAD_S)):
            time.sleep(LOAD_S)
        assert watch.end() == 0, watch.said
    program.unlink()
    (split,) = rows_of(data, columns.RecordSplit)
    assert 0 < split["low_ns"] < split["record_crypto_ns"] < split["high_ns"]
    assert split["high_ns"] < split["command_cpu_ns"]
    for tier in ("10s", "1m", "1h"):
        found = sum(row["record_crypto_ns"] for row in rows_of(data, columns.Interval, tier))
        assert abs(found - split["record_crypto_ns"]) < 1000, tier
    assert main(["fleet", "top", "--data", str(data), "--by", "tls_share", "--json", "-"]) == 0
    (line,) = json.loads(capsys.readouterr().out)["hosts"]
    assert 0 < line["low"] < line["value"] < line["high"] < 1
