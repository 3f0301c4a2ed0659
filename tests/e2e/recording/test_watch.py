# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax watch` on real servers: restarts, an upgrade, kill -9, a full disk."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tlstax.analysis.fleet import columns
from tlstax.tests.e2e.recording.watch_runs import (
    WatchRun,
    await_true,
    connect,
    copied_server,
    handshakes,
    rows_of,
    server_of,
    upgrade,
)

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

FIRST, SECOND, THIRD = 20, 12, 8


def test_each_connection_is_counted_once_over_restarts_and_kills(
    lab_directory: Path, tmp_path: Path
) -> None:
    program = copied_server(lab_directory, f"tlstax-{lab_directory.name[-6:]}")
    data, said = tmp_path / "data", tmp_path / "said"
    watch = WatchRun(said, data, "--name", program.name)
    watch.await_said("waiting for a process")
    with server_of(program) as server:
        watch.await_said("recording process")
        connect(server, FIRST)
        await_true(lambda: handshakes(data) == FIRST, lambda: f"{handshakes(data)} {watch.said}")
    watch.await_said("is no longer recorded")
    build_id = upgrade(program)
    with server_of(program) as server:
        watch.await_said("recording process", 2)
        connect(server, SECOND)
        wanted = FIRST + SECOND
        await_true(lambda: handshakes(data) == wanted, lambda: f"{handshakes(data)} {watch.said}")
        watch.process.send_signal(signal.SIGKILL)
        watch.process.wait()
        assert handshakes(data) == wanted
        watch = WatchRun(said, data, "--name", program.name)
        watch.await_said("recording process", 3)
        connect(server, THIRD)
        assert watch.end() == 0, watch.said
    wanted += THIRD
    assert {tier: handshakes(data, tier) for tier in ("10s", "1m", "1h")} == {
        "10s": wanted, "1m": wanted, "1h": wanted,
    }  # fmt: skip
    hosts = sorted(rows_of(data, columns.Host), key=lambda row: row["first_wall_ns"])
    assert [row["build_id"] == build_id for row in hosts][-2:] == [True, True]
    assert hosts[0]["build_id"] != build_id
    assert {(row["host"], row["server"], row["level"]) for row in hosts} <= {
        ("db1", "mariadb", "flow"), ("db1", "mariadb", "command"),
    }  # fmt: skip
    whole = rows_of(data, columns.Interval)
    assert all(row["engine_cpu_ns"] > 0 for row in whole)
    ledger = {
        tier: sum(row["on_cpu_ns"] for row in rows_of(data, columns.Ledger, tier))
        for tier in ("10s", "1m", "1h")
    }
    assert len(set(ledger.values())) == 1
    program.unlink()


def test_a_disk_that_is_full_for_a_while_costs_nothing(
    lab_directory: Path, tmp_path: Path, make_disk: Callable[[str], Path]
) -> None:
    program = copied_server(lab_directory, f"tlstax-{lab_directory.name[-6:]}")
    disk = make_disk("2m")
    data, filler = disk / "data", disk / "filler"
    with server_of(program) as server:
        watch = WatchRun(tmp_path / "said", data, "--pid", str(server.pid))
        await_true(lambda: rows_of(data, columns.Interval), lambda: watch.said)
        with pytest.raises(OSError, match="No space left"):
            filler.write_bytes(bytes(4 << 20))
        connect(server, FIRST)
        watch.await_said("no space left on device; rollups are kept in memory")
        assert handshakes(data) < FIRST
        filler.unlink()
        watch.await_said("rollups are written again")
        connect(server, SECOND)
        assert watch.end() == 0
    assert handshakes(data) == FIRST + SECOND
    assert watch.said.count("no space left") == 1
    assert list(data.rglob("*.partial")) == []
    program.unlink()
