# SPDX-License-Identifier: GPL-2.0-only
"""Waits that are longer than a window, or under way at its edges, as causes."""

from pathlib import Path

from tlstax.analysis.document import explain
from tlstax.analysis.rows import tables
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import (
    Frame,
    Ledger,
    OffcpuStack,
    PhaseCount,
    Probe,
    Stack,
    Status,
    Thread,
)
from tlstax.collectors.capture.writer import CaptureWriter
from tlstax.tests.unit.findings.loads import MS, S, dense, found, load

BUSY = {("command", "on_cpu"): 300 * MS, ("idle", "blocked_network"): 700 * MS}
LOCK_WAIT = [Frame(1, "mariadbd", "", 0, "lock_wait(que_thr_t*)", 0, "symtab", "")]
DISCONNECT = Probe(1, "disconnect", "enter", "end_connection", "mariadbd", "", 0, "", "uprobe",
                   0, 0, None)  # fmt: skip


def reread(rows: tables.Tables, folder: Path) -> tables.Tables:
    """The same, written to a capture and read."""
    path = folder / "capture.tlstax"
    with CaptureWriter.create(path) as writer:
        for line in (rows.targets, rows.probes, rows.windows, rows.threads, rows.ledger,
                     rows.phase_counts, rows.frames, rows.stacks, rows.waits, rows.system,
                     rows.effects, rows.status):  # fmt: skip
            writer.add(line)
    with CaptureReader.open(path) as reader:
        return tables.load(reader)


def locked(folder: Path) -> tables.Tables:
    """One thread waits for row locks, 3 s each, in windows of 1 s; another one works."""
    rows = load("always", BUSY, {"command": 10})
    rows.threads = [*rows.threads, Thread(2, 10, "one", "connection", 0, None)]
    rows.frames, rows.stacks = LOCK_WAIT, [Stack(1, "1")]
    for number, window in enumerate(rows.windows):
        computed = 10 * MS if number % 3 == 2 else 0
        rows.ledger.append(Ledger(window.window_id, 2, "command", "blocked_lock", S - computed))
        if computed:
            rows.ledger.append(Ledger(window.window_id, 2, "command", "on_cpu", computed))
            rows.waits.append(
                OffcpuStack(window.window_id, "command", "blocked_lock", 202, 1, None, 1,
                            3 * S - computed)
            )  # fmt: skip
            rows.phase_counts.append(PhaseCount(window.window_id, "command", 1))
    return reread(rows, folder)


def test_a_row_lock_longer_than_a_window_is_no_table_lock(tmp_path: Path) -> None:
    """Windows in which it did not end had no stack of it, and two thirds were `table locks`."""
    assert found(locked(tmp_path)) == ["row_lock"]


def under_way(folder: Path, current: int) -> tables.Tables:
    """Dense windows of 0.1 s; a thread waits for a row lock through all but the first one."""
    rows = load("budget", BUSY, {"command": 10})
    rows.probes = [DISCONNECT]
    rows.threads = [*rows.threads, Thread(2, 10, "one", "connection", 0, None)]
    for number, window in enumerate(dense(rows)):
        length = window.end_ns - window.start_ns
        cell = ("unknown", "blocked_futex") if number else ("command", "on_cpu")
        rows.ledger.append(Ledger(window.window_id, 2, *cell, length))
    rows.status = [
        Status(at * S, None, name, value)
        for at in range(1, 14)
        for name, value in (
            ("Innodb_row_lock_time", "0"),
            ("Innodb_row_lock_current_waits", str(current)),
            ("Uptime", str(at)),
        )
    ]
    return reread(rows, folder)


def test_a_lock_that_is_not_over_is_found_by_its_lower_bound(tmp_path: Path) -> None:
    """It was `unknown`: its counter grows, and its stack is recorded, when it ends."""
    rows = under_way(tmp_path, 1)
    assert found(rows) == ["row_lock"]
    (finding,) = explain.explain(rows).findings
    assert "at least" in finding.sentence
    (longest,) = (one for one in finding.evidence if one.name == "unfinished_ns")
    assert (longest.value, longest.at_least) == (S // 10, True)


def test_a_wait_of_unknown_kind_is_no_lock(tmp_path: Path) -> None:
    rows = under_way(tmp_path, 0)
    assert found(rows) == []
    assert "1 command was under way" in " ".join(explain.explain(rows).health.warnings)
