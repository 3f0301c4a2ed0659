# SPDX-License-Identifier: GPL-2.0-only
"""Drivers, which make load: their interface, and which there are.

A driver runs real client programs. It is made once for each server of an experiment, makes its
data over any endpoint, and then does one run after the other.

To add a driver, write a module in this folder and one line in DRIVERS.
"""

import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

from tlstax import ExitCode, TlstaxError
from tlstax.workloads.endpoint import Account, Endpoint
from tlstax.workloads.results import Arm
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.tls import TlsChoice

SAMPLES_MAX = 10_000  # latencies of single operations that a run keeps
TABLE_ROWS = 10_000  # where a recipe says nothing; all drivers of a server use the same table


@dataclass(frozen=True)
class DriveRequest:
    """One run."""

    endpoint: Endpoint
    account: Account
    arm: Arm
    tls: TlsChoice
    scenario: str
    threads_count: int = 1  # or processes, where a driver's scenario has processes
    seconds: int = 5
    operation_count: int | None = None  # in all; given, it is the end, and `seconds` is not
    resume: bool = False  # resume TLS sessions where client and server can
    rate_per_s: float | None = None  # operations started per second, whether or not others ended
    # A proxy ends the client's connection: the server's counters are about another one.
    is_direct: bool = True


@dataclass(frozen=True)
class Tick:
    """What a driver calls while it runs."""

    wait: Callable[[float], None] = time.sleep  # instead of sleeping: records meanwhile
    # Once, with the client's processes, before any of them begins to work or starts threads. What
    # a driver did before (new tables, connections to warm up) is over by then: count from here.
    at_gate: Callable[[Sequence[int]], None] = lambda pids: None


@dataclass(frozen=True)
class Latencies:
    """How long operations took at the client; at a fixed rate, from the time that was due."""

    mean_ns: int
    p95_ns: int
    max_ns: int
    # Single operations in the order they ended, thinned out evenly to SAMPLES_MAX; () where the
    # client only reports a histogram.
    samples_ns: tuple[int, ...] = ()
    histogram: tuple[tuple[int, int], ...] = ()  # (upper bound in ns, count), ascending

    @property
    def sampled_count(self) -> int:
        """How many operations the CDF comes from."""
        return len(self.samples_ns) or sum(count for _, count in self.histogram)


@dataclass(frozen=True)
class DriveResult:
    """What the client says it did."""

    operation_count: int
    elapsed_ns: int  # of the load: from the gate to the last operation
    latencies: Latencies
    connection_count: int  # that it opened
    client_cpu_ns: int  # user and system time of its processes, from their birth or from the gate
    pids: tuple[int, ...]
    error_count: int = 0  # deadlocks, after which a transaction was begun again
    reused_count: int | None = None  # connections with a resumed session, as the TLS library says
    negotiated: tuple[str, str] | None = None  # (version, cipher) of a connection before the gate
    query_count: int | None = None
    latency_includes_connect: bool = False
    client_version: str = ""  # the library, its version and that of its OpenSSL


class Driver(Protocol):
    """One client program at work."""

    name: str

    def check(self) -> None:
        """TlstaxError (HOST) when this host cannot do it: what is missing, what to install."""

    def prepare(self, server: PrivateServer, endpoint: Endpoint, account: Account) -> None:
        """Make and fill the tables, in plaintext; they may be there already."""

    def run(self, request: DriveRequest, tick: Tick) -> DriveResult:
        """One run; TlstaxError (FAILED) when it failed or did something other than asked."""


# Constructors take the options of the recipe: table_rows, tables, and those of the driver.
Value = str | int | float | bool
Factory = Callable[[Mapping[str, Value]], Driver]


@dataclass(frozen=True)
class ScenarioKind:
    """What one operation of a scenario is."""

    name: str
    connects: bool = False  # each operation opens a connection
    operation: str = "transaction"  # its name in reports: 'query', 'connect', ...


@dataclass(frozen=True)
class DriverKind:
    """Where a driver is written, what it can do and what a recipe may say about it."""

    module: str
    factory: str
    scenarios: tuple[ScenarioKind, ...]
    options: Mapping[str, type] = field(default_factory=dict)  # key -> type, all may be left out
    resumes: bool = False  # whether it can resume TLS sessions
    rates: bool = False  # whether it can keep a fixed rate

    def scenario(self, name: str) -> ScenarioKind | None:
        """One by its name."""
        return next((kind for kind in self.scenarios if kind.name == name), None)


_LIBRARIES = "tlstax.workloads.drivers.client_libraries"
_CLIENT_SCENARIOS = (
    ScenarioKind("connect", connects=True, operation="connect"),
    ScenarioKind("point_select", operation="query"),
    ScenarioKind("connect_point_select", connects=True, operation="connect"),
    ScenarioKind("connect_insert_select", connects=True, operation="connect"),
)


def _library(factory: str, *, resumes: bool = False, **options: type) -> DriverKind:
    options["table_rows"] = int
    return DriverKind(_LIBRARIES, factory, _CLIENT_SCENARIOS, options, resumes, rates=True)


DRIVERS: Mapping[str, DriverKind] = {
    "sysbench": DriverKind(
        "tlstax.workloads.drivers.sysbench_driver",
        "SysbenchDriver",
        (
            ScenarioKind("point_select", operation="query"),
            ScenarioKind("read_only"),
            ScenarioKind("bulk_result", operation="query"),
            ScenarioKind("connect", connects=True, operation="connect"),
            ScenarioKind("read_write"),
            ScenarioKind("write_only"),
            ScenarioKind("update_index", operation="query"),
            ScenarioKind("update_non_index", operation="query"),
            ScenarioKind("insert", operation="query"),
            ScenarioKind("delete", operation="query"),
            ScenarioKind("bulk_insert", operation="row"),
            ScenarioKind("select_random_points", operation="query"),
            ScenarioKind("select_random_ranges", operation="query"),
        ),
        {"table_rows": int, "tables": int, "distribution": str},
        rates=True,
    ),
    "pymysql": _library("PyMySql", resumes=True),
    "connector-python": _library("ConnectorPython", resumes=True, keeps_context=bool),
    "connector-python-c": _library("ConnectorC"),
    "php-mysqli": _library("PhpMysqli"),
    "perl-dbd-mysql": _library("PerlDbdMysql"),
    "perl-dbd-mariadb": _library("PerlDbdMariadb"),
}


def make_driver(name: str, options: Mapping[str, Value] | None = None) -> Driver:
    """A driver by its name; TlstaxError (USAGE) that lists them when there is no such."""
    if name not in DRIVERS:
        raise TlstaxError(
            f"there is no driver called '{name}'",
            f"known drivers are {', '.join(DRIVERS)}",
            "Choose one of them",
            ExitCode.USAGE,
        )
    kind = DRIVERS[name]
    factory = getattr(importlib.import_module(kind.module), kind.factory)
    return cast(Factory, factory)(options or {})
