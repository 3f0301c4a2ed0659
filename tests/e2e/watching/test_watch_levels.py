# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax watch` at level `flow` where the budget has room, else in stretches: it says which.

What a rollup does not have was not observed: `interval` says for how long each level was.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from tlstax.analysis.fleet import columns
from tlstax.tests.background_load import await_busy, in_background
from tlstax.tests.e2e.recording.watch_runs import (
    THREADS,
    WatchRun,
    await_true,
    connect,
    copied_server,
    rows_of,
    server_of,
)
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

LOAD_MOST_S, SEEN_S, COUNT = 120, 12, 5
BETWEEN = re.compile(r"handshakes, waits and commands, in windows .* in between (handshakes|CPU)")
"""What fits between the windows depends on what CPU time the server gets."""


def observed(data: Path) -> tuple[dict[str, Any], ...]:
    """The intervals of 10 s."""
    return tuple(rows_of(data, columns.Interval, "10s"))


def total_s(rows: tuple[dict[str, Any], ...], name: str) -> float:
    return float(sum(row[name] for row in rows)) / 1e9


@pytest.mark.parametrize(("budget", "is_whole"), [("0.5%", False), ("none", True)])
def test_what_does_not_fit_is_observed_in_stretches(
    lab_directory: Path, tmp_path: Path, budget: str, is_whole: bool
) -> None:
    """Point selects that saturate the server: `flow` all the time would cost some percent."""
    program = copied_server(lab_directory, f"tlstax-{lab_directory.name[-6:]}")
    data = tmp_path / "data"
    with server_of(program) as server:
        driver = Sysbench.of_server(server, table_rows=10)
        with in_background(driver, Load(SCENARIOS["point_select"], THREADS, LOAD_MOST_S)):
            await_busy(server.pid)
            watch = WatchRun(tmp_path / "said", data, "--pid", str(server.pid), "--budget", budget)
            watch.await_said("recording process")
            connect(server, COUNT)
            await_true(lambda: total_s(observed(data), "recorded_ns") > SEEN_S, lambda: watch.said)
            assert watch.end() == 0, watch.said
    rows = observed(data)
    recorded_s = total_s(rows, "recorded_ns")
    ledger_s = total_s(rows, "ledger_observed_ns")
    handshake_s = total_s(rows, "handshake_observed_ns")
    assert "at level flow" in watch.said
    assert ("in windows of" in watch.said) is not is_whole, watch.said
    assert 0 < ledger_s <= handshake_s <= recorded_s
    if is_whole:
        assert ledger_s > 0.95 * recorded_s
    else:
        assert ledger_s < 0.5 * recorded_s
        between = set(BETWEEN.findall(watch.said))
        assert between, watch.said
        if between == {"handshakes"}:  # with other work on the host they may not fit
            assert handshake_s > 0.8 * recorded_s
    assert {row["level"] for row in rows_of(data, columns.Host)} == {"flow"}
    program.unlink()
