# SPDX-License-Identifier: GPL-2.0-only
"""What a driver is asked for and what it answers."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

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
    # Operations whose connection was refused or broke; None where the first one fails the run.
    lost_count: int | None = None
    lost_with: Mapping[str, int] = field(default_factory=dict)  # the client's error -> how often
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
