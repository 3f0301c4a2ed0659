# SPDX-License-Identifier: GPL-2.0-only
"""Rows of the sources beside the engine, computed: rates are known, one reset, one gap."""

from tlstax.collectors.capture.schema import Collector, Metric, Row, Status

SECOND = 1_000_000_000
QUESTIONS_PER_S = 5000
SHARE_MISSED = 0.02
RESET_AT = 4
"""The reading, from 0, before which FLUSH STATUS set counters back."""
SILENT = (6, 9)
"""After the first of these seconds the next answer of the server came at the second one."""


def rows(start_ns: int, seconds: int = 12, device: str = "vda") -> list[Row]:
    """A recording of so many seconds with procfs, iostat and status, and readings of bpftrace."""
    made: list[Row] = []
    for number, name in enumerate(("procfs", "iostat", "status", "bpftrace"), 1):
        end_ns = start_ns + seconds * SECOND
        made.append(Collector(number, name, f"{name} 1.0", "finished", start_ns, end_ns, 9, ""))
    for second in range(1, seconds + 1):
        at = start_ns + second * SECOND
        for thing, name, value in (
            ("cpu", "user_ns", 1.5e9),
            ("cpu", "softirq_ns", 0.1e9 * (second % 3)),
            ("pressure cpu", "some_ns", 0.25e9),
            (device, "reads_count", 200.0),
            (device, "read_bytes", 200 * 4096.0),
            (device, "read_wait_ns", 200 * 80_000.0),
        ):
            if value:
                made.append(Metric(at, SECOND, "procfs", thing, name, value))
        made.append(Metric(at, SECOND, "iostat", device, "reads_per_s", 200.0))
        if second % 2:
            made.append(Metric(at, SECOND, "iostat", device, "write_await_ns", 2.5e6))
    for second in range(seconds + 1):
        if SILENT[0] < second < SILENT[1]:
            continue
        made += answer(start_ns + second * SECOND, second)
    for phase, cycles in (("handshake", 5e9), ("record_write", 2e9)):
        made.append(Metric(at, seconds * SECOND, "perf", phase, "cycles_count", cycles))
        made.append(Metric(at, seconds * SECOND, "perf", phase, "instructions_count", 2.5 * cycles))
    made.append(
        Metric(at, seconds * SECOND, "bpftrace", "pthread_mutex_lock", "waited_ns total", 3.25e6)
    )
    made.append(
        Metric(at, seconds * SECOND, "bpftrace", "pthread_mutex_lock", "waited_ns count", 41.0)
    )
    return made


def answer(at: int, second: int) -> list[Row]:
    """What the server answered in that second; only what moved is recorded."""
    since = second if second < RESET_AT else second - RESET_AT
    counters = {
        "Questions": QUESTIONS_PER_S * since,
        "Innodb_buffer_pool_read_requests": 1000 * since,
        "Innodb_buffer_pool_reads": round(1000 * SHARE_MISSED) * since,
        "Threads_running": 1 + second % 2,
        "Bytes_sent": 3 * 2**20 * since,
        "Uptime": 100 + second,
    }
    if second == 0:
        counters |= {"Ssl_accepts": 7, "Innodb_row_lock_waits": 0}
        counters |= {"wait/io/file/sql/binlog#time_ns": 0}
    if second >= 2:
        counters["wait/synch/mutex/sql/LOCK#time_ns"] = SECOND // 2 * (second - 1)
    made: list[Row] = [Status(at, None, name, str(value)) for name, value in counters.items()]
    if second == 0:
        made.append(Status(at, None, "Ssl_cipher", "TLS_AES_256_GCM_SHA384"))
    return made
