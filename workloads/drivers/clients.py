# SPDX-License-Identifier: GPL-2.0-only
"""Client libraries of programming languages as drivers: Python, PHP and Perl.

Each client is a small program in this folder, one process for each of `threads_count`, with one
connection at a time. It reads one line of JSON (`_orders` below), warms up with connections
that it closes again, stands at the gate, works, and prints one line of JSON (`_Report`).
A client that is told to speak TLS and does not, or the other way round, fails the run.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tlstax import ExitCode, TlstaxError
from tlstax.workloads.drivers.crew import Command, Ended, client_failed, run_clients
from tlstax.workloads.drivers.model import (
    SAMPLES_MAX,
    TABLE_ROWS,
    DriveRequest,
    DriveResult,
    Latencies,
    Tick,
    Value,
)
from tlstax.workloads.drivers.sysbench_driver import SysbenchDriver
from tlstax.workloads.endpoint import Account, Endpoint
from tlstax.workloads.servers.mariadb import PrivateServer

FOLDER = Path(__file__).parent
REPORT = "tlstax report "
WARM_UP_COUNT = 2
COUNT_LIMIT_S = 3600.0  # the longest that a run bounded by operations may take
GRACE_S = 60.0
SAMPLES_MIN = 100
SEED = 20131010
P95 = 0.95
YASSL_CIPHERS = "AES256-SHA:@SECLEVEL=0"
SHORT_TABLE = (
    "CREATE TABLE {}.tlstax_short (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,"
    " k INT NOT NULL, c CHAR(120) NOT NULL) ENGINE=InnoDB"
)


@dataclass(frozen=True)
class Work:
    """What one operation does."""

    connects: bool
    statements: str  # as the clients know it


WORKS: Mapping[str, Work] = {
    "connect": Work(True, "select_1"),
    "point_select": Work(False, "point_select"),
    "connect_point_select": Work(True, "point_select"),
    "connect_insert_select": Work(True, "insert_select"),
}


class ClientDriver:
    """One library of one language; the classes below say which."""

    name = ""
    title = ""  # its name in messages
    resumes = False
    socket_tls = True  # whether it speaks TLS through a Unix socket

    def __init__(self, options: Mapping[str, Value]) -> None:
        """Options: table_rows, and those of the library."""
        self._options = options
        self._rows = int(options.get("table_rows", TABLE_ROWS))

    def check(self) -> None:
        """TlstaxError (HOST) says what must be installed."""
        self.program()

    def program(self) -> list[str]:
        """How the client is started, which must be possible."""
        raise NotImplementedError

    def prepare(self, server: PrivateServer, endpoint: Endpoint, account: Account) -> None:
        """The table of sysbench, and one for short connections."""
        SysbenchDriver({"table_rows": self._rows}).prepare(server, endpoint, account)
        with server.open_administrator() as session:
            session.query(f"DROP TABLE IF EXISTS {account.database}.tlstax_short")
            session.query(SHORT_TABLE.format(account.database))

    def run(self, request: DriveRequest, tick: Tick) -> DriveResult:
        """One run."""
        self._require(request)
        account = request.account
        prefix = request.endpoint.prefix
        command = Command(
            self.title,
            [*prefix, *self.program()],
            account.directory,
            dict(account.environment),
        )
        limit_s = COUNT_LIMIT_S if request.operation_count else request.seconds + GRACE_S
        orders = [json.dumps(order).encode() + b"\n" for order in self._orders(request)]
        ended = run_clients(command, orders, limit_s, tick)
        return _merge(request, [_Report.parse(self.title, client) for client in ended])

    def _require(self, request: DriveRequest) -> None:
        """TlstaxError (USAGE) for what this library cannot do."""
        why = ""
        if request.resume and not self.resumes:
            why = "has no way to resume TLS sessions"
        elif request.arm == "tls" and request.endpoint.socket and not self.socket_tls:
            why = "speaks no TLS through a Unix socket"
        if why:
            raise TlstaxError(
                f"{self.title} cannot do this run",
                f"it {why}",
                "Leave it out, or choose another driver",
                ExitCode.USAGE,
            )

    def _orders(self, request: DriveRequest) -> list[dict[str, Any]]:
        """What each process is told."""
        account, endpoint, work = request.account, request.endpoint, WORKS[request.scenario]
        processes_count = request.threads_count
        total = request.operation_count
        shared = {
            "library": self.name,
            "host": endpoint.host or "",
            "port": endpoint.port or 0,
            "socket": str(endpoint.socket or ""),
            "user": account.user,
            "password": account.password,
            "database": account.database,
            "tls": self._tls(request) if request.arm == "tls" else None,
            "resumes": request.resume,
            "connects": work.connects,
            "work": work.statements,
            "rows": self._rows,
            "warm_up_count": WARM_UP_COUNT,
            "seconds": COUNT_LIMIT_S if total else request.seconds,
            "rate_per_s": (request.rate_per_s or 0) / processes_count,
            "samples_max": max(SAMPLES_MIN, SAMPLES_MAX // processes_count),
            **self._further_orders(),
        }
        return [
            shared
            | {
                "seed": SEED + number,
                "operation_count": (total + processes_count - 1 - number) // processes_count
                if total
                else 1 << 62,
            }
            for number in range(processes_count)
        ]

    def _further_orders(self) -> dict[str, Any]:
        return {}

    def _tls(self, request: DriveRequest) -> dict[str, Any]:
        """TLS of the order; suites of TLS 1.3 and groups come by OPENSSL_CONF."""
        account, asked = request.account, request.tls
        cipher = asked.cipher or ""
        is_tls13_suite = cipher.startswith("TLS_")
        level = "" if asked.security_level is None else f":@SECLEVEL={asked.security_level}"
        ciphers = f"{cipher}{level}" if cipher and not is_tls13_suite else ""
        return {
            "ca": str(account.ca),
            "certificate": str(account.certificate),
            "key": str(account.key),
            "version": asked.version,
            "ciphers": YASSL_CIPHERS if account.is_yassl else ciphers,
            "suites": [cipher] if cipher else [],
            "is_yassl": account.is_yassl,
        }


@dataclass(frozen=True)
class _Report:
    """What one client printed."""

    pid: int
    start_ns: int  # CLOCK_MONOTONIC
    end_ns: int
    cpu_ns: int  # from the gate to the end
    operation_count: int
    connection_count: int
    reused_count: int | None
    latency_sum_ns: int
    latency_min_ns: int
    latency_max_ns: int
    samples_ns: list[int]  # every so many of all, in their order
    negotiated: dict[str, str]  # Ssl_version and Ssl_cipher, as the server says
    version: str

    @classmethod
    def parse(cls, program: str, ended: Ended) -> "_Report":
        """TlstaxError (FAILED) where it is not there."""
        lines = [line for line in ended.text.splitlines() if line.startswith(REPORT)]
        if not lines:
            raise client_failed(program, "it printed no report", ended.text)
        return cls(pid=ended.pid, **json.loads(lines[-1].removeprefix(REPORT)))


def _merge(request: DriveRequest, reports: Sequence[_Report]) -> DriveResult:
    """The processes of one run as one."""
    operation_count = sum(report.operation_count for report in reports)
    if request.operation_count not in (None, operation_count) or not operation_count:
        raise client_failed(request.scenario, f"it did {operation_count} operations", "")
    version, cipher = _negotiated(request, reports)
    samples = merge_samples([(report.samples_ns, report.operation_count) for report in reports])
    reused = [report.reused_count for report in reports if report.reused_count is not None]
    return DriveResult(
        operation_count=operation_count,
        elapsed_ns=max(r.end_ns for r in reports) - min(r.start_ns for r in reports),
        latencies=Latencies(
            mean_ns=sum(report.latency_sum_ns for report in reports) // operation_count,
            p95_ns=sorted(samples)[int(P95 * (len(samples) - 1))],
            max_ns=max(report.latency_max_ns for report in reports),
            samples_ns=tuple(samples),
        ),
        connection_count=sum(report.connection_count for report in reports),
        client_cpu_ns=sum(report.cpu_ns for report in reports),
        pids=tuple(report.pid for report in reports),
        reused_count=sum(reused) if reused else None,
        negotiated=(version, cipher) if request.arm == "tls" else None,
        latency_includes_connect=WORKS[request.scenario].connects,
        client_version=reports[0].version,
    )


def _negotiated(request: DriveRequest, reports: Sequence[_Report]) -> tuple[str, str]:
    """What the warm-up connections negotiated; ('', '') where the server cannot tell.

    TlstaxError (FAILED) for a fallback, and for a version other than asked: PHP's mysqlnd obeys
    neither an option nor OPENSSL_CONF.
    """
    if not request.is_direct:
        return "", ""
    found = {(r.negotiated["Ssl_version"], r.negotiated["Ssl_cipher"]) for r in reports}
    if len(found) != 1 or bool(next(iter(found))[1]) != (request.arm == "tls"):
        said = ", ".join(" ".join(pair).strip() or "plaintext" for pair in sorted(found))
        raise client_failed(request.scenario, f"asked for {request.arm} it spoke {said}", "")
    version, cipher = found.pop()
    if request.arm == "tls" and version != (request.tls.version or version):
        raise client_failed(
            request.scenario, f"asked for {request.tls.version} it spoke {version}", ""
        )
    return version, cipher


def merge_samples(parts: Sequence[tuple[Sequence[int], int]]) -> list[int]:
    """Samples of several clients, thinned out to the same share of each; about as they ended.

    `parts` are (samples, operations that they stand for).
    """
    strides = [count / len(samples) for samples, count in parts if samples]
    if not strides:
        return []
    stride = max(*strides, sum(count for _, count in parts) / SAMPLES_MAX)
    placed = []
    for samples, count in parts:
        kept = round(count / stride) if samples else 0
        kept = min(max(kept, 1), len(samples))
        placed += [
            (number / kept, samples[number * len(samples) // kept]) for number in range(kept)
        ]
    return [sample for _, sample in sorted(placed, key=lambda entry: entry[0])]
