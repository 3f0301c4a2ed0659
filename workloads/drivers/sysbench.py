# SPDX-License-Identifier: GPL-2.0-only
"""sysbench 1.0: pooled connections at work, or a storm of connects.

The Lua scripts in workloads/sysbench print what the run did with full precision and count
connections where they are opened, so that the count can be held against the server's.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tlstax import TlstaxError
from tlstax.certs.generate import write_private
from tlstax.workloads.drivers.crew import Command, Ended, client_failed, run_clients
from tlstax.workloads.drivers.model import DriveResult, Latencies, Tick
from tlstax.workloads.endpoint import Account, Endpoint
from tlstax.workloads.results import Arm
from tlstax.workloads.servers.configuration import USER_PLAINTEXT, USER_TLS, sysbench_options
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.programs import find_program

SCRIPTS = Path(__file__).parent.parent / "sysbench"
GRACE_S = 20.0  # how much longer than asked a driver may take before it is killed
PREPARE_PATIENCE_S, PREPARE_ROWS_PER_S = 120.0, 5000  # the slowest that is not taken for stuck
COUNT_LIMIT_S = 3600  # the longest that a run bounded by operations may take
PERCENTILE = 95
COUNTS = ("events", "reads", "writes", "other", "errors", "reconnects")
LOSS = re.compile(r"FATAL: (?:error|\w+\(\) returned error) (\d+):? (.{1,80})")
UNTOLD = "without a line of its own in what sysbench printed"
NEEDED = (*COUNTS, "latency_max", "latency_pct", "latency_sum")
# special: sysbench's own default, which chooses most rows from a hundredth of them.
DISTRIBUTIONS = ("special", "uniform", "gaussian", "pareto")
NS_PER_S, NS_PER_MS = 1_000_000_000, 1_000_000
BULK_INSERT = "tlstax_bulk_insert.lua"
OLTP = "tlstax_oltp.lua"  # runs the script of sysbench that TLSTAX_SCRIPT names

Wait = Callable[[float], None]
AtGate = Callable[[int], None]


@dataclass(frozen=True)
class Scenario:
    """What one driver does to the server."""

    name: str
    driver: str  # pooled: connections stay open; storm: one connection per operation
    script: str
    needs_table: bool = False  # reads the table that Sysbench.prepare makes
    original: str = ""  # with OLTP: the script of sysbench
    writes: bool = False  # its transactions may meet in a deadlock, and are then repeated
    consumes: bool = False  # changes how many rows there are

    @property
    def preparer(self) -> str:
        """The script that makes its tables."""
        return str(SCRIPTS / self.script) if self.script == BULK_INSERT else "oltp_point_select"


def _oltp(name: str, *, writes: bool = False, consumes: bool = False) -> Scenario:
    """One of sysbench's own scripts."""
    original = name if name.startswith("select_") else f"oltp_{name}"
    return Scenario(name, "pooled", OLTP, True, original, writes, consumes)


SCENARIOS: Mapping[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        _oltp("point_select"),
        _oltp("read_only"),
        Scenario("connect", "storm", "tlstax_storm.lua"),
        Scenario("bulk_result", "pooled", "tlstax_bulk.lua"),
        _oltp("read_write", writes=True),
        _oltp("write_only", writes=True),
        _oltp("update_index", writes=True),
        _oltp("update_non_index", writes=True),
        _oltp("insert", writes=True, consumes=True),
        _oltp("delete", writes=True, consumes=True),
        Scenario("bulk_insert", "pooled", BULK_INSERT, writes=True, consumes=True),
        _oltp("select_random_points"),
        _oltp("select_random_ranges"),
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
class SysbenchReport:
    """The lines that tlstax_report.lua prints, and the histogram."""

    values: Mapping[str, float]
    connects: Mapping[int, int]  # thread -> connections that it opened
    histogram: Sequence[tuple[int, int]] = field(default_factory=tuple)
    lost_count: int | None = None  # of all threads; None where losses are not counted

    @classmethod
    def parse(
        cls, text: str, threads_count: int, *, may_conflict: bool = False
    ) -> "SysbenchReport":
        """Read a run's output; TlstaxError (FAILED) if anything of the report is missing."""
        found = re.findall(r"^tlstax (\w+)=(\d+(?:\.\d+)?)$", text, re.MULTILINE)
        values = {name: float(value) for name, value in found}
        threads = re.findall(r"^tlstax thread=(\d+) connects=(\d+)$", text, re.MULTILINE)
        connects = {int(thread): int(count) for thread, count in threads}
        missing = [name for name in NEEDED if name not in values]
        if missing or len(connects) != threads_count:
            lacking = missing[0] if missing else "the connections of every thread"
            raise _failed(f"its report lacks {lacking}", text)
        if (values["errors"] and not may_conflict) or values["reconnects"]:
            raise _failed(
                f"it met {values['errors']:.0f} errors and {values['reconnects']:.0f} reconnects",
                text,
            )
        bars = re.findall(r"^ *(\d+\.\d+) \|\** +(\d+)$", text, re.MULTILINE)
        histogram = [(round(float(ms) * NS_PER_MS), int(count)) for ms, count in bars]
        losses = re.findall(r"^tlstax thread=\d+ losses=(\d+)$", text, re.MULTILINE)
        lost_count = sum(map(int, losses)) if losses else None
        return cls(values, connects, histogram, lost_count)


@dataclass(frozen=True)
class Caller:
    """As whom and from where sysbench is started."""

    option_file: Path
    directory: Path  # where it finds its key and certificates
    environment: Mapping[str, str]
    prefix: tuple[str, ...] = ()  # before its command: a namespace, a loader

    @classmethod
    def of_server(cls, server: PrivateServer, arm: Arm) -> "Caller":
        """With an account of its own for each arm, of which that for TLS is refused without it."""
        option_file = server.option_file(USER_TLS if arm == "tls" else USER_PLAINTEXT)
        return cls(option_file, server.client_directory, server.client_environment)

    @classmethod
    def of_account(
        cls, account: Account, endpoint: Endpoint, arm: Arm, prefix: tuple[str, ...] = ()
    ) -> "Caller":
        """With the account of both arms, by any transport; `prefix` starts the program."""
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
        prefix = (*endpoint.prefix, *prefix)
        return cls(path, account.directory, account.environment, prefix)


class Sysbench:
    """sysbench against one private server."""

    def __init__(
        self,
        caller: Callable[[Arm], Caller],
        *,
        table_rows: int,
        tables: int = 1,
        distribution: str = "special",
        counts_losses: bool = False,
    ) -> None:
        """`table_rows` is the size of each table that the pooled scenarios read.

        `distribution` is that of the rows that they choose, one of DISTRIBUTIONS. With
        `counts_losses` a connection that fails is counted and does not fail the run (storms only).
        """
        self._caller = caller
        self._program = find_program("sysbench", "sysbench")
        self._table_rows = table_rows
        self._tables = tables
        self._distribution = distribution
        self._counts_losses = counts_losses

    @classmethod
    def of_server(cls, server: PrivateServer, *, table_rows: int) -> "Sysbench":
        """For the accounts that a private server has for each arm."""
        return cls(lambda arm: Caller.of_server(server, arm), table_rows=table_rows)

    def prepare(
        self, wait: Wait = time.sleep, preparer: str = "oltp_point_select", threads_count: int = 1
    ) -> None:
        """Make and fill the tables of a script, anew where they are, over plaintext."""
        limit_s = PREPARE_PATIENCE_S + self._tables * self._table_rows / PREPARE_ROWS_PER_S
        for action in ("cleanup", "prepare"):
            arguments = [f"--threads={threads_count}", preparer, action]
            self._execute("plaintext", arguments, limit_s, Tick(wait))

    def run(
        self, load: Load, arm: Arm, wait: Wait = time.sleep, at_gate: AtGate = lambda _: None
    ) -> DriveResult:
        """Run `load`; `wait` is called again and again until it ended, with seconds to spend.

        `at_gate` is called with the process id once, before the driver connects or starts threads.
        """
        scenario = load.scenario
        arguments = [
            f"--threads={load.threads_count}",
            f"--events={load.operation_count or 0}",
            f"--time={COUNT_LIMIT_S if load.operation_count else load.seconds}",
            f"--percentile={PERCENTILE}",
            "--histogram=on",
            *([f"--rate={load.rate_per_s:.0f}"] if load.rate_per_s else []),
            str(SCRIPTS / scenario.script),
            "run",
        ]
        started_ns = 0

        def pass_gate(pids: Sequence[int]) -> None:
            nonlocal started_ns
            at_gate(pids[0])
            started_ns = time.monotonic_ns()

        ended = self._execute(
            arm, arguments, load.limit_s, Tick(wait, pass_gate), scenario.original, gated=True
        )
        elapsed_ns = time.monotonic_ns() - started_ns
        report = SysbenchReport.parse(ended.text, load.threads_count, may_conflict=scenario.writes)
        values = report.values
        lost_count = report.lost_count
        operation_count = int(values["events"])
        if operation_count != (load.operation_count or operation_count) or not operation_count:
            raise _failed(f"it did {operation_count} operations, not what was asked", ended.text)
        return DriveResult(
            operation_count=operation_count - (lost_count or 0),
            elapsed_ns=elapsed_ns,
            latencies=Latencies(
                mean_ns=round(values["latency_sum"] * NS_PER_S / operation_count),
                p95_ns=round(values["latency_pct"] * NS_PER_S),
                max_ns=round(values["latency_max"] * NS_PER_S),
                histogram=tuple(report.histogram),
            ),
            connection_count=sum(report.connects.values()),
            client_cpu_ns=ended.cpu_ns,
            pids=(ended.pid,),
            error_count=int(values["errors"]),
            lost_count=lost_count,
            lost_with=losses_by_error(ended.text, lost_count) if lost_count else {},
            query_count=int(values["reads"] + values["writes"] + values["other"]),
            latency_includes_connect=scenario.driver == "storm",
        )

    def _execute(
        self,
        arm: Arm,
        arguments: list[str],
        limit_s: float,
        tick: Tick,
        original: str = "",
        *,
        gated: bool = False,
    ) -> Ended:
        """Run sysbench to its end."""
        caller = self._caller(arm)
        command = [
            *caller.prefix,
            str(self._program),
            f"--config-file={caller.option_file}",
            f"--tables={self._tables}",
            f"--table-size={self._table_rows}",
            f"--rand-type={self._distribution}",
            *arguments,
        ]
        environment = {"LUA_PATH": f"{SCRIPTS}/?.lua;;", "TLSTAX_SCRIPT": original}
        if self._counts_losses:
            environment["TLSTAX_COUNTS_LOSSES"] = "1"
        (ended,) = run_clients(
            Command("sysbench", command, caller.directory, environment | dict(caller.environment)),
            [b""],
            limit_s,
            tick,
            gated=gated,
        )
        return ended


def losses_by_error(text: str, lost_count: int) -> dict[str, int]:
    """Lost connections by number and words of their error; the counts add up to `lost_count`.

    sysbench prints a message once where several threads say the same in a row, and the lines of
    threads may change places, so that a line of repeats does not tell what it repeats. Of one
    kind are therefore all losses; of several, what was printed, and the rest is `UNTOLD`.
    """
    told = Counter(f"{number} {words}" for number, words in LOSS.findall(text))
    rest = lost_count - told.total()
    if rest > 0:
        told[next(iter(told)) if len(told) == 1 else UNTOLD] += rest
    return dict(told)


def _failed(why: str, text: str) -> TlstaxError:
    return client_failed("sysbench", why, text)
