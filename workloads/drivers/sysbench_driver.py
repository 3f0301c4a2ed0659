# SPDX-License-Identifier: GPL-2.0-only
"""sysbench as a driver of the matrix: its scenarios over any endpoint, at full speed or a rate."""

from collections.abc import Mapping

from tlstax import ExitCode, TlstaxError
from tlstax.workloads.drivers.model import TABLE_ROWS, DriveRequest, DriveResult, Tick, Value
from tlstax.workloads.drivers.other_libraries import OtherLibraries
from tlstax.workloads.drivers.sysbench import (
    DISTRIBUTIONS,
    SCENARIOS,
    Caller,
    Load,
    Sysbench,
)
from tlstax.workloads.endpoint import Account, Endpoint
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.programs import find_program

LIBRARIES = ("openssl", "c_library")
FRESH_SHARE = 0.1  # of the rows: more of them added or deleted, and the next run gets new tables


class SysbenchDriver:
    """sysbench against one server.

    Scenarios that add or delete rows would soon work on another table than the first run did: they
    get new ones, through the server's own socket, before they stand at the gate.
    """

    name = "sysbench"

    def __init__(self, options: Mapping[str, Value]) -> None:
        """Options: table_rows, tables, distribution (one of DISTRIBUTIONS), and below."""
        self._tables = int(options.get("tables", 1))
        self._table_rows = int(options.get("table_rows", TABLE_ROWS))
        self._distribution = str(options.get("distribution", DISTRIBUTIONS[0]))
        if self._distribution not in DISTRIBUTIONS:
            raise TlstaxError(
                f"there is no distribution called '{self._distribution}'",
                f"sysbench's are {', '.join(DISTRIBUTIONS)}",
                "Choose one of them",
                ExitCode.USAGE,
            )
        libraries = {name: str(options[name]) for name in LIBRARIES if name in options}
        self._libraries = OtherLibraries(**libraries)
        self._counts_losses = bool(options.get("counts_losses", False))
        self._consumed_count = 0  # operations that changed the number of rows
        self._local: Endpoint | None = None

    def check(self) -> None:
        """It must be installed."""
        find_program("sysbench", "sysbench")

    def prepare(self, server: PrivateServer, endpoint: Endpoint, account: Account) -> None:
        """Make and fill the tables, in plaintext."""
        self._local = Endpoint(socket=server.directory.socket)
        self._sysbench(account, self._local).prepare()
        self._consumed_count = 0

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
        self._refresh(load, request)
        sysbench = self._sysbench(request.account, request.endpoint)
        driven = sysbench.run(load, request.arm, tick.wait, lambda pid: tick.at_gate([pid]))
        if load.scenario.consumes and load.scenario.needs_table:
            self._consumed_count += driven.operation_count
        return driven

    def _refresh(self, load: Load, request: DriveRequest) -> None:
        """New tables where runs before this one have changed them, or it needs empty ones."""
        scenario = load.scenario
        if not scenario.needs_table:
            if not scenario.consumes:
                return
        elif self._consumed_count <= FRESH_SHARE * self._tables * self._table_rows:
            return
        else:
            self._consumed_count = 0
        sysbench = self._sysbench(request.account, self._local or request.endpoint)
        sysbench.prepare(preparer=scenario.preparer, threads_count=load.threads_count)

    def _sysbench(self, account: Account, endpoint: Endpoint) -> Sysbench:
        prefix = self._libraries.prefix(account.directory)
        return Sysbench(
            lambda arm: Caller.of_account(account, endpoint, arm, prefix),
            table_rows=self._table_rows,
            tables=self._tables,
            distribution=self._distribution,
            counts_losses=self._counts_losses,
        )
