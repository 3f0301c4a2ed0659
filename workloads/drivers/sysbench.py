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
from tlstax.workloads.results import Arm
from tlstax.workloads.servers.configuration import USER_PLAINTEXT, USER_TLS
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


class Sysbench:
    """sysbench against one private server."""

    def __init__(self, server: PrivateServer, *, table_rows: int) -> None:
        """`table_rows` is the size of the one table that the pooled scenarios read."""
        self._server = server
        self._program = find_program("sysbench", "sysbench")
        self._table_rows = table_rows

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
            str(SCRIPTS / load.scenario.script),
            "run",
        ]
        started_ns = 0

        def pass_gate(pid: int) -> None:
            nonlocal started_ns
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
        user = USER_TLS if arm == "tls" else USER_PLAINTEXT
        command = [
            str(self._program),
            f"--config-file={self._server.option_file(user)}",
            "--tables=1",
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
                cwd=self._server.client_directory,  # where it finds its key and certificates
                env=environment | dict(self._server.client_environment),
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
