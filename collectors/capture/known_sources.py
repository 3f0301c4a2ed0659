# SPDX-License-Identifier: GPL-2.0-only
"""Declarations of sources that captures before version 3, and imported ones, do not contain.

A new source needs no entry here: captures contain its declaration. Names are those in captures:
proc(5) as `sources.procfs` names it, iostat(1) as `sources.iostat` does, and SHOW GLOBAL STATUS as
the servers of both families spell it. A server that lacks a counter has no line for it.
"""

from collections.abc import Mapping
from typing import Final

from tlstax.collectors.capture.schema import SourceFacts
from tlstax.collectors.capture.series import Line, Panel, averages, levels, rates

PROCFS: Final = (
    Panel("cpu", "CPU time of the host", "cpus", (
        Line("user", "per_time", ("user_ns", "nice_ns")),
        Line("system", "per_time", ("system_ns",)),
        Line("interrupts", "per_time", ("irq_ns", "softirq_ns")),
        Line("I/O wait", "per_time", ("iowait_ns",)),
        Line("stolen by the hypervisor", "per_time", ("steal_ns",)),
    ), "cpu"),
    Panel("pressure", "time in which some task waited", "share",
          (Line("*", "per_time", ("some_ns",)),), "pressure *"),
    Panel("*/operations", "operations: *", "per_second",
          rates(reads="reads_count", writes="writes_count", flushes="flushes_count",
                discards="discards_count"), "*"),
    Panel("*/bytes", "bytes: *", "bytes_per_second",
          rates(read="read_bytes", written="write_bytes", discarded="discard_bytes"), "*"),
    Panel("*/wait", "mean time of an operation: *", "time_ns", (
        Line("read", "mean", ("read_wait_ns", "reads_count")),
        Line("write", "mean", ("write_wait_ns", "writes_count")),
        Line("flush", "mean", ("flush_wait_ns", "flushes_count")),
    ), "*"),
    Panel("*/queue", "operations under way: *", "number",
          (Line("queue", "per_time", ("queue_wait_ns",)),), "*"),
    Panel("*/busy", "time with an operation under way: *", "share",
          (Line("busy", "per_time", ("busy_ns",)),), "*"),
)  # fmt: skip
IOSTAT: Final = (
    Panel("*/operations", "operations: *", "per_second",
          levels(reads="reads_per_s", writes="writes_per_s", flushes="flushes_per_s"), "*"),
    Panel("*/bytes", "bytes: *", "bytes_per_second",
          levels(read="read_bytes_per_s", written="write_bytes_per_s"), "*"),
    Panel("*/wait", "mean time of an operation: *", "time_ns",
          averages(read="read_await_ns", write="write_await_ns", flush="flush_await_ns"), "*"),
    Panel("*/queue", "operations under way: *", "number", levels(queue="queue_mean_count"), "*"),
    Panel("*/busy", "time with an operation under way: *", "share", levels(busy="busy_ratio"), "*"),
)  # fmt: skip
"""The same from iostat, which prints rates and means."""

STATUS: Final = (
    Panel("tls_handshakes", "TLS handshakes", "per_second",
          rates(begun="Ssl_accepts", finished="Ssl_finished_accepts",
                 renegotiated="Ssl_accept_renegotiates",
                 found_in_the_cache="Ssl_session_cache_hits",
                 not_found_in_it="Ssl_session_cache_misses")),
    Panel("connections", "connections", "per_second",
          rates(new="Connections", refused="Aborted_connects", broken_off="Aborted_clients",
                 new_threads="Threads_created")),
    Panel("threads", "threads", "number",
          levels(connected="Threads_connected", running="Threads_running")),
    Panel("statements", "statements", "per_second",
          rates(all="Questions", select="Com_select", insert="Com_insert", update="Com_update",
                 delete="Com_delete")),
    Panel("transactions", "transactions", "per_second",
          rates(commit="Com_commit", rollback="Com_rollback", slow_queries="Slow_queries")),
    Panel("network", "bytes through connections", "bytes_per_second",
          rates(received="Bytes_received", sent="Bytes_sent")),
    Panel("innodb_rows", "InnoDB rows", "per_second",
          rates(read="Innodb_rows_read", inserted="Innodb_rows_inserted",
                 updated="Innodb_rows_updated", deleted="Innodb_rows_deleted")),
    Panel("rows_read", "rows read by the storage engines", "per_second",
          rates(by_key="Handler_read_key", next_in_index="Handler_read_next",
                 by_position="Handler_read_rnd", next_in_table="Handler_read_rnd_next")),
    Panel("rows_written", "rows written by the storage engines", "per_second",
          rates(written="Handler_write", updated="Handler_update", deleted="Handler_delete")),
    Panel("row_locks", "InnoDB row lock waits", "per_second",
          rates(begun="Innodb_row_lock_waits")),
    Panel("row_lock_time", "threads waiting for a row lock", "threads", (
        Line("mean, of the waits that ended", "per_time", ("Innodb_row_lock_time",), 1e6),
        Line("at the reading", "level", ("Innodb_row_lock_current_waits",)),
    )),
    Panel("redo_log", "InnoDB redo log", "per_second",
          rates(writes="Innodb_log_writes", flushes="Innodb_os_log_fsyncs",
                 waits_for_its_buffer="Innodb_log_waits")),
    Panel("log_bytes", "bytes to logs", "bytes_per_second",
          rates(redo_log="Innodb_os_log_written", binary_log="Binlog_bytes_written")),
    Panel("innodb_io", "InnoDB files", "per_second",
          rates(reads="Innodb_data_reads", writes="Innodb_data_writes",
                 flushes="Innodb_data_fsyncs", doublewrites="Innodb_dblwr_writes")),
    Panel("innodb_io_bytes", "bytes of InnoDB files", "bytes_per_second",
          rates(read="Innodb_data_read", written="Innodb_data_written")),
    Panel("buffer_pool_hits", "buffer pool", "share", (
        Line("page requests that it served", "complement",
             ("Innodb_buffer_pool_reads", "Innodb_buffer_pool_read_requests")),
    )),
    Panel("buffer_pool", "pages of the buffer pool", "per_second",
          rates(read="Innodb_buffer_pool_reads", read_ahead="Innodb_buffer_pool_read_ahead",
                 flushed="Innodb_buffer_pool_pages_flushed",
                 waits_for_a_free_one="Innodb_buffer_pool_wait_free")),
    Panel("binlog", "binary log", "per_second",
          rates(commits="Binlog_commits", group_commits="Binlog_group_commits",
                 transactions_cached="Binlog_cache_use", cached_on_disk="Binlog_cache_disk_use")),
    Panel("temporary", "temporary tables and sorts", "per_second",
          rates(tables="Created_tmp_tables", tables_on_disk="Created_tmp_disk_tables",
                 sorts="Sort_scan", sort_merges="Sort_merge_passes")),
    Panel("waits", "threads in waits that performance_schema timed", "threads",
          (Line("*", "per_time", ("*#time_ns",)),)),
)  # fmt: skip
PANELS: Final[Mapping[str, tuple[Panel, ...]]] = {
    "procfs": PROCFS,
    "iostat": IOSTAT,
    "status": STATUS,
}

BPFTRACE: Final = (
    "Recorded by bpftrace, not by the native engine: it holds what one program counts, and no "
    "ledger."
)
PERF: Final = (
    "Recorded by perf, not by the native engine: times are samples, phases are inferred from "
    "stacks, and waits are not recorded."
)
BCC: Final = (
    "Recorded by bcc's tools, not by the native engine: phases are inferred from stacks, "
    "unfinished waits are missing, and their number is unknown."
)
FACTS: Final[Mapping[str, SourceFacts]] = {
    "bpftrace": SourceFacts("bpftrace", "", 0, BPFTRACE),
    "perf": SourceFacts("perf", "", 0, PERF),
    "bcc": SourceFacts("bcc", "", 0, BCC),
    "pmp": SourceFacts(
        "pmp",
        "",
        0,
        "Recorded by stopping the server, not by the native engine: threads were counted in "
        "snapshots, and no time was measured.",
    ),
}
