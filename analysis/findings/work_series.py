# SPDX-License-Identifier: GPL-2.0-only
"""Sums by block of what threads do beside serving: beginning, hashing passwords, replicating."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping

from tlstax.analysis.classify.composition import Counts
from tlstax.analysis.findings.throughout import Add
from tlstax.analysis.rows import ledger
from tlstax.analysis.rows.ledger import Totals
from tlstax.analysis.rows.tables import Tables


def add_work(add: Add, block: int, work: Counts, counts: Counts, totals: Totals) -> None:
    """CPU time of each kind of work in a window: the ledger's, split by samples of all threads.

    `work` and `counts`: samples by phase and kind, and all of them by phase and category.
    """
    per_phase: dict[str, int] = defaultdict(int)
    for (phase, _), count in counts.items():
        per_phase[phase] += count
    on_cpu = ledger.on_cpu(totals)
    for (phase, kind), count in work.items():
        if per_phase[phase]:
            add(f"work:{kind}", block, on_cpu.get(phase, 0) * count / per_phase[phase])
            add(f"worked:{kind}", block, count)


def add_all_samples(
    add: Add,
    everywhere: Mapping[int, int],
    counts: Mapping[int, Counts],
    works: Mapping[int, Counts],
) -> None:
    """Samples of all windows, and those of threads that are created or end.

    The system call tells the latter, so that they need no ledger: there are many between dense
    windows.
    """
    for window_id, block in everywhere.items():
        whole = sum(counts.get(window_id, {}).values())
        of_threads = sum(n for (_, kind), n in works.get(window_id, {}).items() if kind == "thread")
        add("sampled:thread", block, of_threads)
        add("sampled:rest", block, whole - of_threads)


def add_replica(add: Add, block_of: Mapping[int, int], tables: Tables) -> None:
    """Time of the threads that fetch the binary log of another server: all, computing, wanted.

    Wanted is what they compute and what they wait for a CPU.
    """
    fetching = {row.thread_id for row in tables.threads if row.role == "replica_io"}
    for row in tables.ledger:
        block = block_of.get(row.window_id)
        if block is None or row.thread_id not in fetching:
            continue
        add("replica:all", block, row.time_ns)
        if row.state in ("on_cpu", "runnable"):
            add("replica:wanted", block, row.time_ns)
        if row.state == "on_cpu":
            add("replica:on_cpu", block, row.time_ns)


def add_feeding(add: Add, block_of: Mapping[int, int], tables: Tables) -> None:
    """CPU time in which threads that feed replicas send: each event of the binary log by itself.

    One that is older than the recording has no such role. With MariaDB 10.11 none of the sends of
    such a thread was counted, either: they are its command's.
    """
    feeding = {row.thread_id for row in tables.threads if row.role == "binlog_dump"}
    for row in tables.ledger:
        block = block_of.get(row.window_id)
        if block is None or row.thread_id not in feeding:
            continue
        if (row.phase, row.state) == ("record_write", "on_cpu"):
            add("feeding:sending", block, row.time_ns)


def add_births(add: Add, block_of: Mapping[int, int], tables: Tables) -> None:
    """Threads of connections that began in dense windows."""
    dense = sorted((w for w in tables.windows if w.window_id in block_of), key=lambda w: w.start_ns)
    starts = [window.start_ns for window in dense]
    for thread in tables.threads:
        if thread.role != "connection" or not starts or thread.start_ns <= starts[0]:
            continue
        window = dense[bisect_right(starts, thread.start_ns) - 1]
        if thread.start_ns < window.end_ns:
            add("births", block_of[window.window_id], 1)
