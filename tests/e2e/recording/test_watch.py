# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax watch` on real servers: restarts, an upgrade, kill -9, a full disk."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tlstax.analysis.fleet import columns
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.tests.e2e.recording.watch_runs import (
    THREADS,
    WatchRun,
    await_true,
    connect,
    copied_server,
    handshakes,
    rows_of,
    server_of,
    upgrade,
)
from tlstax.tests.otlp_receiver import Collector, named
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

FIRST, SECOND, LOST, THIRD = 20, 12, 4, 8
BUSY_S = 10
# Says how much of earlier recordings is in memory whenever it looks for the server's next process.
COUNTING = """
import gc, sys
from tlstax.collectors.watching.watch import Watch
gc.disable()
def _found(self, found=Watch._found):
    if self._was_attached:
        kinds = [type(one).__name__ for one in gc.get_objects()]
        counts = [kinds.count(name) for name in ("RecorderSession", "Replay", "Site")]
        print("left in memory:", *counts, file=sys.stderr, flush=True)
    return found(self)
Watch._found = _found
"""
"""Python's own collections come by chance."""


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
        # Killed between two rollups, it loses what came after the first of them and nothing else.
        watch.process.send_signal(signal.SIGSTOP)
        connect(server, LOST)
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
    assert len(list(data.glob("raw/db1/*.tlstax"))) >= 3
    program.unlink()


def test_a_restart_leaves_nothing_of_the_recording_before_it(
    lab_directory: Path, tmp_path: Path
) -> None:
    program = copied_server(lab_directory, f"tlstax-{lab_directory.name[-6:]}")
    watch = WatchRun(tmp_path / "said", tmp_path / "data", "--name", program.name, changes=COUNTING)
    for life in (1, 2):
        with server_of(program) as server:
            watch.await_said("recording process", life)
            connect(server, FIRST)
        watch.await_said("left in memory:", life)
    assert watch.end() == 0
    assert watch.said.count("left in memory: 0 0 0") == 2, watch.said
    program.unlink()


def received_times(collector: Collector) -> dict[tuple[str, str], int]:
    """Time of the profiles in ns by phase and state."""
    made: dict[tuple[str, str], int] = {}
    for request in collector.requests:
        for profile in request.resource_profiles[0].scope_profiles[0].profiles:
            for sample in profile.samples:
                known = named(request, sample.attribute_indices)
                key = known["tlstax.phase"], known["tlstax.state"]
                made[key] = made.get(key, 0) + sum(sample.values)
    return made


def test_hours_have_stacks_of_places_in_builds(
    lab_directory: Path, tmp_path: Path, collector: Collector
) -> None:
    program = copied_server(lab_directory, f"tlstax-{lab_directory.name[-6:]}")
    data = tmp_path / "data"
    with server_of(program) as server:
        profiles = ("--otlp-profiles", collector.address)
        watch = WatchRun(tmp_path / "said", data, "--pid", str(server.pid), *profiles)
        watch.await_said("recording process")
        driver = Sysbench.of_server(server, table_rows=10)
        driver.run(Load(SCENARIOS["point_select"], THREADS, BUSY_S), "tls", time.sleep)
        connect(server, FIRST)
        assert watch.end() == 0, watch.said
    sources = {row["source_id"] for row in rows_of(data, columns.Interval)}
    stacks = rows_of(data, columns.Stacks)
    assert {row["source_id"] for row in stacks} == sources
    assert {row["kind"] for row in stacks if row["user_stack_id"]} == {"on_cpu", "off_cpu"}
    times: dict[tuple[str, str], int] = {}
    for row in stacks:
        key = row["phase"], row["state"]
        times[key] = times.get(key, 0) + row["time_ns"]
    assert received_times(collector) == times
    frames = {row["frame_id"]: row for row in rows_of(data, columns.Frame)}
    used = {one for row in rows_of(data, columns.Stack) for one in row["frame_ids"]}
    assert used <= frames.keys()
    assert sum(bool(frames[one]["build_id"]) for one in used) > 10
    assert any("dispatch_command" in frames[one]["symbol"] for one in used)
    assert {frames[one]["symbol"] for one in used if frames[one]["object"] == "kernel"} - {
        "[kernel]"
    }
    (raw,) = data.glob("raw/db1/*.tlstax")
    with CaptureReader.open(raw) as reader:
        counted = sum(row.outcome == "success" for row in reader.rows(schema.Handshake))
    assert counted == handshakes(data) >= FIRST
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
