# SPDX-License-Identifier: GPL-2.0-only
"""Recordings joined into one capture: nothing is lost, and no key means two things."""

from pathlib import Path

from tlstax.analysis.document.recording_facts import of_capture
from tlstax.analysis.quantities import process
from tlstax.analysis.rows.tables import load
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.join import join_captures
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.writer import CaptureWriter


def part(path: Path, number: int) -> Path:
    """A recording with two of each key; `number` is the round."""
    rows: list[schema.Row] = [
        schema.Meta("hostname", f"host {number}"),
        schema.Meta("end_monotonic_ns", str(number)),
        schema.Target(1, 7, "mysqld", "", "mysql", "5.6", "yaSSL", "unknown", "static"),
        schema.Target(2, 8 + number, "sysbench", "", "", "", "", "", "", "client"),
        schema.Probe(
            1,
            "command",
            "enter",
            "f",
            "mysqld",
            "",
            1,
            "push",
            "uprobe",
            0,
            5,
            1.0,
            1,
            4 + number,
            number,
        ),
        schema.Run(
            number + 1, "storm", "connect", "tls", number, 0, 9, 1, 1, 1, 1, 1, 1, 1, "{}", number
        ),
        schema.Gap(1, "row_lock_wait", "Row locks are not told."),
        schema.Gap(2, "a client's name", "It is unknown."),
        schema.Window(1, number + 1, 0, 5),
        schema.Window(2, None, 5, 9, target_id=2),
        schema.Thread(1, 70, "mysqld", "connection", 0, None),
        schema.Ledger(1, 1, "handshake", "on_cpu", 100 + number),
        schema.Frame(1, "mysqld", "", 1, "leaf", 0, "symtab", ""),
        schema.Frame(2, "mysqld", "", 2, f"root {number}", 0, "symtab", ""),
        schema.Stack(1, "1 2"),
        schema.SampleStack(1, "handshake", -1, 1, None, 3),
    ]
    with CaptureWriter.create(path) as writer:
        writer.add(rows)
    return path


def test_rows_of_all_parts_keep_their_meaning(tmp_path: Path) -> None:
    joined = tmp_path / "joined.tlstax"
    join_captures([part(tmp_path / f"{number}.tlstax", number) for number in range(3)], joined)
    with CaptureReader.open(joined) as reader:
        windows = {row.window_id: row for row in reader.rows(schema.Window)}
        assert len(windows) == 6
        ledger = list(reader.rows(schema.Ledger))
        assert [row.time_ns for row in ledger] == [100, 101, 102]
        assert [windows[row.window_id].run_id for row in ledger] == [1, 2, 3]
        threads = [row.thread_id for row in reader.rows(schema.Thread)]
        assert threads == [row.thread_id for row in ledger] == [1, 2, 3]
        frames = {row.frame_id: row.symbol for row in reader.rows(schema.Frame)}
        stacks = {row.stack_id: row.frame_ids for row in reader.rows(schema.Stack)}
        for number, row in enumerate(reader.rows(schema.SampleStack)):
            assert row.user_stack_id is not None
            names = [frames[int(text)] for text in stacks[row.user_stack_id].split()]
            assert names == ["leaf", f"root {number}"]


def test_the_server_is_one_and_its_clients_are_many(tmp_path: Path) -> None:
    joined = tmp_path / "joined.tlstax"
    join_captures([part(tmp_path / f"{number}.tlstax", number) for number in range(2)], joined)
    with CaptureReader.open(joined) as reader:
        targets = {row.target_id: row.pid for row in reader.rows(schema.Target)}
        assert targets == {1: 7, 2: 8, 4: 9}
        assert {row.target_id for row in reader.rows(schema.Window)} == set(targets)
        (probe,) = reader.rows(schema.Probe)
        assert (probe.hits_count, probe.begun_count, probe.healed_count) == (10, 9, 1)
        gaps = [(row.target_id, row.subject) for row in reader.rows(schema.Gap)]
        assert sorted(gaps) == [
            (1, "row_lock_wait"),
            (2, "a client's name"),
            (4, "a client's name"),
        ]
        assert [row.server_start for row in reader.rows(schema.Run)] == [0, 1]
        meta = {row.key: row.value for row in reader.rows(schema.Meta)}
        assert meta == {"hostname": "host 0", "end_monotonic_ns": "1"}


def started(path: Path, pid: int, *more: schema.Meta) -> Path:
    """A recording of one start of the server."""
    with CaptureWriter.create(path) as writer:
        writer.add(schema.Target(1, pid, "mysqld", "", "mysql", "5.6", "yaSSL", "", "static"))
        writer.add([schema.Meta("start_cpu_ns", "5"), schema.Meta("end_cpu_ns", "7"), *more])
    return path


def test_each_start_of_the_server_is_named(tmp_path: Path) -> None:
    starts = [started(tmp_path / f"{n}.tlstax", pid) for n, pid in enumerate((71, 72, 72, 73))]
    first, whole = tmp_path / "first.tlstax", tmp_path / "whole.tlstax"
    join_captures(starts[:2], first)
    join_captures([first, *starts[2:]], whole)
    with CaptureReader.open(whole) as reader:
        meta = reader.meta()
        assert meta["server_pids"] == "71 72 73"
        assert (meta["start_cpu_ns"], meta["end_cpu_ns"]) == ("20", "28")
        (target,) = of_capture(load(reader)).targets
    assert (target.pid, target.later_pids) == (71, [72, 73])
    assert process(71, 0, target.later_pids) == "pid\u00a071, then 72, 73"


def test_pids_that_are_no_numbers_are_left_out(tmp_path: Path) -> None:
    path = started(
        tmp_path / "x.tlstax", 71, schema.Meta("server_pids", "71 \x1b[31m -2 \u00b2 99999999999 3")
    )
    with CaptureReader.open(path) as reader:
        (target,) = of_capture(load(reader)).targets
    assert target.later_pids == [3]
