# SPDX-License-Identifier: GPL-2.0-only
"""sysbench 1.0 as a driver: pooled connections at work, or a storm of connects.

The Lua scripts in workloads/sysbench print what the run did with full precision and count
connections where they are opened, so that the count can be held against the server's.
"""

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tlstax import ExitCode, TlstaxError
from tlstax.certs.generate import write_private
from tlstax.workloads.drivers import DriveRequest, DriveResult, Latencies, Tick, Value
from tlstax.workloads.endpoint import Account, Endpoint
from tlstax.workloads.results import Arm
from tlstax.workloads.servers.configuration import USER_PLAINTEXT, USER_TLS, sysbench_options
from tlstax.workloads.servers.mariadb import PrivateServer, find_program

SCRIPTS = Path(__file__).parent.parent / "sysbench"
LOOK_S = 0.05  # between two looks at whether the driver ended
GRACE_S = 20.0  # how much longer than asked a driver may take before it is killed
PREPARE_PATIENCE_S = 120.0
COUNT_LIMIT_S = 120  # the longest that a run bounded by operations may take
TAIL_LINES = 4
GATE = b"tlstax gate\n"  # printed by tlstax_gate.lua
GATE_PATIENCE_S = 20.0
GATE_LOOK_S = 0.005
PERCENTILE = 95
COUNTS = ("events", "reads", "writes", "other", "errors", "reconnects")
NEEDED = (*COUNTS, "latency_max", "latency_pct", "latency_sum")
NS_PER_S = 1_000_000_000

Wait = Callable[[float], None]
AtGate = Callable[[int], None]


@dataclass(frozen=True)
class Scenario:
    """What one driver does to the server."""

    name: str
    driver: str  # pooled: connections stay open; storm: one connection per operation
    script: str
    needs_table: bool = False  # reads the table that Sysbench.prepare makes


SCENARIOS: Mapping[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario("point_select", "pooled", "tlstax_point_select.lua", needs_table=True),
        Scenario("read_only", "pooled", "tlstax_read_only.lua", needs_table=True),
        Scenario("connect", "storm", "tlstax_storm.lua"),
        Scenario("bulk_result", "pooled", "tlstax_bulk.lua"),
    )
}


@dataclass(frozen=True)
class Load:
    """How much of a scenario: for `seconds`, or `operation_count` operations if that is given."""

    scenario: Scenario
    threads_count: int
    seconds: int  # sysbench knows whole seconds only
    operation_count: int | None = None
    rate_per_s: float | None = None  # None: each thread as fast as it can

    @property
    def limit_s(self) -> float:
        """When the driver is taken for stuck, in seconds from its start."""
        bound = COUNT_LIMIT_S if self.operation_count else self.seconds
        return bound + GRACE_S


@dataclass(frozen=True)
class DriverResult:
    """What the driver says it did; latencies are sysbench's own, per operation."""

    connection_count: int
    operation_count: int
    query_count: int
    mean_ns: int
    p95_ns: int
    max_ns: int
    cpu_ns: int  # user and system time of the driver process, from its birth to its end
    elapsed_ns: int  # from start to end of the process
    pid: int = 0


@dataclass(frozen=True)
class SysbenchReport:
    """The lines that tlstax_report.lua prints."""

    values: Mapping[str, float]
    connects: Mapping[int, int]  # thread -> connections that it opened

    @classmethod
    def parse(cls, text: str, threads_count: int) -> "SysbenchReport":
        """Read a run's output; TlstaxError (FAILED) if anything of the report is missing."""
        found = re.findall(r"^tlstax (\w+)=(\d+(?:\.\d+)?)$", text, re.MULTILINE)
        values = {name: float(value) for name, value in found}
        threads = re.findall(r"^tlstax thread=(\d+) connects=(\d+)$", text, re.MULTILINE)
        connects = {int(thread): int(count) for thread, count in threads}
        missing = [name for name in NEEDED if name not in values]
        if missing or len(connects) != threads_count:
            lacking = missing[0] if missing else "the connections of every thread"
            raise _failed(f"its report lacks {lacking}", text)
        if values["errors"] or values["reconnects"]:
            raise _failed(
                f"it met {values['errors']:.0f} errors and {values['reconnects']:.0f} reconnects",
                text,
            )
        return cls(values, connects)


@dataclass(frozen=True)
class Caller:
    """As whom and from where sysbench is started."""

    option_file: Path
    directory: Path  # where it finds its key and certificates
    environment: Mapping[str, str]
    prefix: tuple[str, ...] = ()  # Endpoint.prefix

    @classmethod
    def of_server(cls, server: PrivateServer, arm: Arm) -> "Caller":
        """With an account of its own for each arm, of which that for TLS is refused without it."""
        option_file = server.option_file(USER_TLS if arm == "tls" else USER_PLAINTEXT)
        return cls(option_file, server.client_directory, server.client_environment)

    @classmethod
    def of_account(cls, account: Account, endpoint: Endpoint, arm: Arm) -> "Caller":
        """With the account of both arms, by any transport."""
        text = sysbench_options(
            endpoint.port or 0,
            account.user,
            account.password,
            tls=arm == "tls",
            host=endpoint.host or "",
            socket=endpoint.socket,
        )
        path = account.directory / f"sysbench-{arm}.cnf"
        write_private(path, text.encode(), replace=True)
        return cls(path, account.directory, account.environment, endpoint.prefix)


class SysbenchDriver:
    """sysbench as a driver of the matrix."""

    name = "sysbench"

    def __init__(self, options: Mapping[str, Value]) -> None:
        """Options: table_rows, tables."""
        self._tables = int(options.get("tables", 1))
        self._table_rows = int(options.get("table_rows", 10_000))

    def check(self) -> None:
        """It must be installed."""
        find_program("sysbench", "sysbench")

    def prepare(self, server: PrivateServer, endpoint: Endpoint, account: Account) -> None:
        """Make and fill the tables, in plaintext."""
        self._sysbench(account, endpoint, "plaintext").prepare()

    def run(self, request: DriveRequest, tick: Tick) -> DriveResult:
        """One run."""
        if request.resume:
            raise TlstaxError(
                "sysbench cannot resume TLS sessions",
                "its client library does not",
                "Choose another driver for resumption",
                ExitCode.USAGE,
            )
        load = Load(
            SCENARIOS[request.scenario],
            request.threads_count,
            request.seconds,
            request.operation_count,
            request.rate_per_s,
        )
        sysbench = self._sysbench(request.account, request.endpoint, request.arm)
        driven = sysbench.run(load, request.arm, tick.wait, lambda pid: tick.at_gate([pid]))
        return DriveResult(
            operations_count=driven.operation_count,
            elapsed_ns=driven.elapsed_ns,
            latencies=Latencies(driven.mean_ns, driven.p95_ns, driven.max_ns),
            connections_count=driven.connection_count,
            client_cpu_ns=driven.cpu_ns,
            pids=(driven.pid,),
            queries_count=driven.query_count,
            latency_includes_connect=load.scenario.driver == "storm",
        )

    def _sysbench(self, account: Account, endpoint: Endpoint, arm: Arm) -> "Sysbench":
        caller = Caller.of_account(account, endpoint, arm)
        return Sysbench(lambda _: caller, table_rows=self._table_rows, tables=self._tables)


class Sysbench:
    """sysbench against one private server."""

    def __init__(
        self, caller: Callable[[Arm], Caller], *, table_rows: int, tables: int = 1
    ) -> None:
        """`table_rows` is the size of each table that the pooled scenarios read."""
        self._caller = caller
        self._program = find_program("sysbench", "sysbench")
        self._table_rows = table_rows
        self._tables = tables

    @classmethod
    def of_server(cls, server: PrivateServer, *, table_rows: int) -> "Sysbench":
        """For the accounts that a private server has for each arm."""
        return cls(lambda arm: Caller.of_server(server, arm), table_rows=table_rows)

    def prepare(self, wait: Wait = time.sleep) -> None:
        """Make and fill the table, over plaintext."""
        self._execute("plaintext", ["oltp_point_select", "prepare"], PREPARE_PATIENCE_S, wait)

    def run(
        self, load: Load, arm: Arm, wait: Wait = time.sleep, at_gate: AtGate = lambda _: None
    ) -> DriverResult:
        """Run `load`; `wait` is called again and again until it ended, with seconds to spend.

        `at_gate` is called with the process id once, before the driver connects or starts threads.
        """
        arguments = [
            f"--threads={load.threads_count}",
            f"--events={load.operation_count or 0}",
            f"--time={COUNT_LIMIT_S if load.operation_count else load.seconds}",
            f"--percentile={PERCENTILE}",
            *([f"--rate={load.rate_per_s:.0f}"] if load.rate_per_s else []),
            str(SCRIPTS / load.scenario.script),
            "run",
        ]
        started_ns, process_id = 0, 0

        def pass_gate(pid: int) -> None:
            nonlocal started_ns, process_id
            process_id = pid
            at_gate(pid)
            started_ns = time.monotonic_ns()

        text, cpu_ns = self._execute(arm, arguments, load.limit_s, wait, pass_gate)
        elapsed_ns = time.monotonic_ns() - started_ns
        report = SysbenchReport.parse(text, load.threads_count)
        values = report.values
        operation_count = int(values["events"])
        if operation_count != (load.operation_count or operation_count) or not operation_count:
            raise _failed(f"it did {operation_count} operations, not what was asked", text)
        return DriverResult(
            connection_count=sum(report.connects.values()),
            operation_count=operation_count,
            query_count=int(values["reads"] + values["writes"] + values["other"]),
            mean_ns=round(values["latency_sum"] * NS_PER_S / operation_count),
            p95_ns=round(values["latency_pct"] * NS_PER_S),
            max_ns=round(values["latency_max"] * NS_PER_S),
            cpu_ns=cpu_ns,
            elapsed_ns=elapsed_ns,
            pid=process_id,
        )

    def _execute(
        self,
        arm: Arm,
        arguments: list[str],
        limit_s: float,
        wait: Wait,
        at_gate: AtGate | None = None,
    ) -> tuple[str, int]:
        """Run sysbench to its end and return (what it printed, CPU time in ns)."""
        caller = self._caller(arm)
        command = [
            *caller.prefix,
            str(self._program),
            f"--config-file={caller.option_file}",
            f"--tables={self._tables}",
            f"--table-size={self._table_rows}",
            *arguments,
        ]
        environment = {"PATH": os.defpath, "LC_ALL": "C", "LUA_PATH": f"{SCRIPTS}/?.lua;;"}
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if at_gate else subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=caller.directory,
                env=environment | dict(caller.environment),
                start_new_session=True,  # Ctrl-C ends us, and we end it
            )
            if at_gate:
                _pass_gate(process, output, at_gate)
            cpu_ns = _await(process, limit_s, wait)
            text = _read_all(output)
        if process.returncode != 0:
            raise _failed(f"it ended with status {process.returncode}", text)
        return text, cpu_ns


def _pass_gate(process: "subprocess.Popen[bytes]", output: IO[bytes], at_gate: AtGate) -> None:
    """Wait until the script stands at its gate, call `at_gate`, and let it go."""
    deadline = time.monotonic() + GATE_PATIENCE_S
    assert process.stdin is not None
    try:
        while GATE not in os.pread(output.fileno(), 1 << 16, 0):
            if process.poll() is not None or time.monotonic() > deadline:
                raise _failed("it did not get ready", _read_all(output))
            time.sleep(GATE_LOOK_S)
        at_gate(process.pid)
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        process.stdin.close()


def _await(process: "subprocess.Popen[bytes]", limit_s: float, wait: Wait) -> int:
    """Call `wait` until the process ended; its CPU time in ns. It never outlives this call."""
    deadline = time.monotonic() + limit_s
    try:
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                process.returncode = os.waitstatus_to_exitcode(status)
                return round((usage.ru_utime + usage.ru_stime) * NS_PER_S)
            if time.monotonic() > deadline:
                raise _failed(f"it had not ended after {limit_s:.0f} s", "")
            wait(LOOK_S)
    finally:
        if process.returncode is None:
            process.kill()
            process.wait()


def _read_all(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _failed(why: str, text: str) -> TlstaxError:
    """An error with what sysbench said about it: lines marked FATAL, else the last ones."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith("FATAL")] or lines
    said = " | ".join(telling[-TAIL_LINES:])
    return TlstaxError(
        "a sysbench run failed",
        f"{why}; it said: {said}" if said else why,
        "Check that sysbench 1.0 and the server fit together, then run it again",
        ExitCode.FAILED,
    )
