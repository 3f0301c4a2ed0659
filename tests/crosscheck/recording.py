# SPDX-License-Identifier: GPL-2.0-only
"""One recording by some engines of one load, and what it cost the server and the engines."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tlstax.tests.processes import process_cpu_ns
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.programs import find_program
from tlstax.workloads.servers.status import StatusSession

ATTACH_PATIENCE_S = 120
END_PATIENCE_S = 180
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
THREADS_COUNT = 2


@dataclass(frozen=True)
class Drive:
    """How much load: TLS connects, then point selects on open TLS connections."""

    connects_count: int
    select_s: int
    select_rate_per_s: float | None = None  # None: as fast as they are answered


@dataclass(frozen=True)
class Driven:
    """What a load did, and what the server used for it."""

    handshake_count: int
    connect_cpu_ns: float  # of the server, for each connect
    select_cpu_ns: float  # of the server, for each select


@dataclass(frozen=True)
class Cost:
    """What the engine itself took while the load ran."""

    cpu_share: float  # of one CPU
    rss_bytes: int  # with its tools


class Bench:
    """A server, its driver and its counters."""

    def __init__(self, server: PrivateServer, status: StatusSession, counter: str) -> None:
        self.server = server
        self._driver = Sysbench.of_server(server, table_rows=1000)
        self._status = status
        self._counter = counter

    def prepare(self) -> None:
        """Make the table, and let the server meet every kind of work once."""
        self._driver.prepare()
        self.drive(Drive(10, 1))

    def keep_threads(self, keep: bool) -> None:
        """Whether threads are kept for the next connection, or end with theirs."""
        options = self.server.directory.client / "administrator.cnf"
        client = find_program("mariadb", "mariadb-client-core")
        with StatusSession(client, options) as administrator:
            administrator.query(f"SET GLOBAL thread_cache_size = {16 if keep else 0}")

    def counted(self) -> int:
        """The server's own count of handshakes; asked outside of recordings only."""
        return self._status.read()[self._counter]

    def drive(self, what: Drive) -> Driven:
        """Run the load."""
        cpu_ns = [process_cpu_ns(self.server.pid)]
        loads = (
            Load(SCENARIOS["connect"], THREADS_COUNT, 0, what.connects_count),
            Load(
                SCENARIOS["point_select"],
                THREADS_COUNT,
                what.select_s,
                rate_per_s=what.select_rate_per_s,
            ),
        )
        done = []
        for load in loads:
            done.append(self._driver.run(load, "tls"))
            cpu_ns.append(process_cpu_ns(self.server.pid))
        return Driven(
            sum(one.connection_count for one in done),
            (cpu_ns[1] - cpu_ns[0]) / done[0].operation_count,
            (cpu_ns[2] - cpu_ns[1]) / done[1].operation_count,
        )

    def record(
        self, engines: Sequence[str], capture: Path, what: Drive, options: Sequence[str]
    ) -> tuple[Driven, Cost, str]:
        """The load, all of it inside the recording; what tlstax said if it failed, else ''."""
        names = ",".join(engines)
        command = [sys.executable, "-m", "tlstax", "attach", str(self.server.pid), "--quiet"]
        command += ["--accept", "return-probes"]
        budget = ["--budget", "none"] if "native" in engines else []
        process = subprocess.Popen(
            [*command, "--collect", names, *budget, *options, "-o", str(capture)],
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            said = _await_attached(process)
            began_ns, cpu_ns = time.monotonic_ns(), tree_cpu_ns(process.pid)
            driven = self.drive(what)
            used_ns = tree_cpu_ns(process.pid) - cpu_ns
            cost = Cost(used_ns / (time.monotonic_ns() - began_ns), tree_rss_bytes(process.pid))
            process.send_signal(signal.SIGINT)
            said += process.communicate(timeout=END_PATIENCE_S)[1]
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        return driven, cost, said if process.returncode else ""


def _await_attached(process: "subprocess.Popen[str]") -> str:
    """Read until it says that all engines watch; what it said."""
    assert process.stderr is not None
    said = ""
    while "attached to" not in said:
        line = process.stderr.readline()
        if not line:
            raise SystemExit(f"an engine does not attach: {said}")
        said += line
    return said


def tree(pid: int) -> list[int]:
    """A process and what it started, as far as it runs."""
    pids = [pid]
    for one in pids:
        for children in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                pids += map(int, children.read_text().split())
            except OSError:
                continue
    return pids


def tree_cpu_ns(pid: int) -> int:
    """CPU time of a process, of what it started and of what these waited for."""
    total = 0
    for one in tree(pid):
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    return total * TICK_NS


def tree_rss_bytes(pid: int) -> int:
    """Resident memory of a process and what it started."""
    total = 0
    for one in tree(pid):
        try:
            total += int(Path(f"/proc/{one}/statm").read_text().split()[1])
        except OSError:
            continue
    return total * PAGE_BYTES
