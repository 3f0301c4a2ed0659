# SPDX-License-Identifier: GPL-2.0-only
"""A real server under load: the ledger against independent clocks, for ten seconds."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Ledger, Thread, ThreadClock, Window
from tlstax.collectors.recording.by_recorder.recorder import Recorder
from tlstax.collectors.recording.request import Request
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.mariadb import PrivateServer

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

SECONDS = 11
TABLE_ROWS = 1000
BUSY_NS = 100_000_000  # also where the host has little left for a server


@pytest.fixture
def capture(measured: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two TLS connections that stay open and select all the time."""
    return measured("capture", lambda: record(tmp_path_factory.mktemp("closure") / "capture"))


def record(path: Path) -> Path:
    with PrivateServer() as server:
        driver = Sysbench.of_server(server, table_rows=TABLE_ROWS)
        driver.prepare()
        with Recorder(Request(server.pid, path)) as recorder:
            recorder.begin_run(1)
            driver.run(Load(SCENARIOS["point_select"], 2, SECONDS), "tls", recorder.poll)
            recorder.end_run()
    return path


@pytest.mark.timing
def test_on_cpu_time_is_the_schedulers(capture: Path) -> None:
    with CaptureReader.open(capture) as reader:
        busy = {row.thread_id for row in reader.rows(Thread) if row.role == "connection"}
        run = {row.window_id for row in reader.rows(Window) if row.run_id == 1}
        on_cpu: Counter[int] = Counter()
        for entry in reader.rows(Ledger):
            if entry.state == "on_cpu" and entry.window_id in run:
                on_cpu[entry.thread_id] += entry.time_ns
        scheduled: Counter[int] = Counter()
        others: Counter[int] = Counter()
        for clock in reader.rows(ThreadClock):
            if clock.window_id in run and clock.sched_cpu_ns is not None:
                scheduled[clock.thread_id] += clock.sched_cpu_ns
                others[clock.thread_id] += clock.steal_ns + clock.handed_ns
    workers = [thread for thread in busy if scheduled[thread] > BUSY_NS]
    assert len(workers) == 2
    for thread in workers:
        print(f"ledger {on_cpu[thread] / 1e6:.1f} ms, scheduler {scheduled[thread] / 1e6:.1f} ms,"
              f" given to others {others[thread] / 1e6:.1f} ms")  # fmt: skip
        assert on_cpu[thread] == pytest.approx(scheduled[thread] + others[thread], rel=0.01)


def test_every_span_of_windows_closes(capture: Path) -> None:
    with CaptureReader.open(capture) as reader:
        connection = {row.thread_id for row in reader.rows(Thread) if row.role == "connection"}
        recorded: Counter[tuple[int, int]] = Counter()
        for entry in reader.rows(Ledger):
            recorded[entry.thread_id, entry.window_id] += entry.time_ns
        told: Counter[int] = Counter()
        lived: Counter[int] = Counter()
        uncertain: Counter[int] = Counter()
        covered: set[int] = set()
        for clock in reader.rows(ThreadClock):
            if clock.thread_id in connection:
                last = clock.window_id
                windows = range(last - clock.window_count + 1, last + 1)
                told[last] += sum(recorded[clock.thread_id, window] for window in windows)
                lived[last] += clock.lifetime_ns
                uncertain[last] += clock.uncertain_ns
                covered.update(windows)
    assert len(covered) >= SECONDS - 1
    for last, lifetime in lived.items():
        assert told[last] == pytest.approx(lifetime, rel=0.01), last
        assert uncertain[last] <= 0.01 * lifetime, last
