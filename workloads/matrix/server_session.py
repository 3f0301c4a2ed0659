# SPDX-License-Identifier: GPL-2.0-only
"""One running server of an experiment, with its transports and drivers, warmed up."""

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from tlstax import ExitCode, TlstaxError
from tlstax.certs.generate import KeyKind
from tlstax.workloads.drivers import make_driver
from tlstax.workloads.drivers.model import Driver, DriveRequest, DriveResult, Tick
from tlstax.workloads.matrix import offers
from tlstax.workloads.matrix.cells import OFF, Cell, ServerKey
from tlstax.workloads.matrix.recipe import Part, Recipe
from tlstax.workloads.negotiation import Agreed, Negotiated, negotiate
from tlstax.workloads.resources import Resources
from tlstax.workloads.servers.connections import await_quiet, socket_count
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.plaintext_search import find_plaintext
from tlstax.workloads.servers.request import ServerRequest
from tlstax.workloads.servers.server_directory import is_running, process_start_ticks
from tlstax.workloads.servers.status import StatusSession
from tlstax.workloads.servers.storage import Storage
from tlstax.workloads.transports import make_transport
from tlstax.workloads.transports.model import Route, Transport

WARM_UP_S = 1
WARM_UP_OPERATIONS = 5
SETTLE_S = 0.2  # for a proxy, whose connections to the server stay

Say = Callable[[str], None]


@dataclass
class ServerSession:
    """A server at work. Closing it removes what it made."""

    key: ServerKey
    recipe: Recipe
    cells: Sequence[Cell]
    resources: Resources
    say: Say
    failed: dict[str, str] = field(default_factory=dict)  # transport or driver -> why it cannot be
    negotiates: bool = True  # find out which TLS versions and ciphers the server has
    negotiated: Negotiated | None = None
    facts: dict[str, str] = field(default_factory=dict)
    counts_handshakes: bool = False  # whether the server's own counter does: with yaSSL it does not

    def open(self) -> None:
        """Start the server, open every transport, make the tables, warm up."""
        self._stack = ExitStack()
        self._routes: dict[str, Route] = {}
        self._drivers: dict[str, Driver] = {}
        self._objections: dict[tuple[str, str], str] = {}  # driver, TLS arm -> why it is another
        try:
            self._open()
        except BaseException:
            self._stack.close()
            raise

    def close(self) -> None:
        """Stop everything."""
        self._stack.close()

    @property
    def is_alive(self) -> bool:
        """Whether the server still runs."""
        return is_running(self.server.pid, self._start_ticks)

    @property
    def routes(self) -> Mapping[str, Route]:
        """The transports that are open, by their names in the recipe."""
        return self._routes

    @property
    def agreed(self) -> Agreed | None:
        """What a client is answered that asks for nothing; None if nobody found out."""
        return self.negotiated.driver if self.negotiated else None

    def route_of(self, cell: Cell) -> Route:
        """The transport of a cell."""
        return self._routes[cell.transport]

    def is_direct(self, cell: Cell) -> bool:
        """Whether the server sees the connections that the driver opens."""
        route = self.route_of(cell)
        return not (route.ends_tls or route.pools_connections)

    def why_not(self, cell: Cell) -> str | None:
        """Why the cell cannot be run here; None if it can."""
        failed = self.failed.get(cell.transport) or self.failed.get(cell.driver)
        return failed or self._objections.get((cell.driver, cell.tls))

    # ---- at work ----

    def drive(
        self, cell: Cell, seconds: int, operation_count: int | None, tick: Tick
    ) -> DriveResult:
        """The load of a cell, unproven."""
        request = self._request(cell, seconds, operation_count)
        return self._drivers[cell.driver].run(request, tick)

    def _request(self, cell: Cell, seconds: int, operation_count: int | None) -> DriveRequest:
        arm = self.recipe.tls[cell.tls]
        return DriveRequest(
            endpoint=self.route_of(cell).endpoint,
            account=self.server.account(arm.choice),
            arm=cell.arm,
            tls=arm.choice,
            scenario=cell.scenario,
            threads_count=cell.threads,
            seconds=seconds,
            operation_count=operation_count,
            resume=arm.resume,
            rate_per_s=cell.rate or None,
            is_direct=self.is_direct(cell),
        )

    def come_to_rest(self, cell: Cell, wait: Callable[[float], None] = time.sleep) -> None:
        """Wait until the server has no client left; TlstaxError if it has ended, or keeps some."""
        if not self.is_alive:
            raise self.died()
        if self.route_of(cell).pools_connections:
            wait(SETTLE_S)
            self._baseline = socket_count(self.server.pid)
        else:
            await_quiet(self.server.pid, self._baseline, wait)

    def died(self, met: TlstaxError | None = None) -> TlstaxError:
        """The error of a server that has ended; `met` is what that made fail."""
        met_text = f"; the client says: {met.why}" if met else ""
        return TlstaxError(
            f"the server {self.key.label} ended under load",
            f"its process is gone{self.server.log_tail()}{met_text}",
            "Look at its error log; `tlstax lab resume` continues a matrix",
            ExitCode.TARGET,
        )

    # ---- opening ----

    def _open(self) -> None:
        transports = {
            cell.transport: self._transport(self.recipe.transport_of(cell))
            for cell in self.cells
            if cell.transport not in self.failed
        }
        arm = self.recipe.server_of(self.key.server)
        namespace = None
        if any(transport.needs_namespace for transport in transports.values()):
            namespace = _make_namespace(self.resources)
            self._stack.callback(self.resources.release, "namespace", namespace)
        request = ServerRequest(
            key=KeyKind.parse(self.key.key),
            options=arm.options,
            namespace=namespace,
            storage=self._storage(arm.storage),
        )
        self.server: PrivateServer = self._stack.enter_context(arm.open(request, self.say))
        self._start_ticks = process_start_ticks(self.server.pid)
        self.status: StatusSession = self._stack.enter_context(self.server.open_status())
        for name, transport in transports.items():
            try:
                route = self._stack.enter_context(transport.open(self.server))
                if not route.ends_tls:
                    self._warm_account(route)
                self._routes[name] = route
            except TlstaxError as error:
                self._give_up(name, error)
        self._describe()
        self._prepare_drivers()
        self._check_offers()
        self._baseline = socket_count(self.server.pid)
        self._warm_up()

    def _storage(self, asked: Storage | None) -> Storage | None:
        """On a disk in both arms if encryption at rest is a dimension of the recipe."""
        is_compared = any(cell.encryption != OFF for cell in self.recipe.cells)
        if asked is None and not is_compared:
            return None
        return replace(asked or Storage(), encrypted=self.key.encryption != OFF)

    def _transport(self, part: Part) -> Transport:
        return make_transport(part.kind, self.resources, part.options)

    def _give_up(self, name: str, error: TlstaxError) -> None:
        self.failed[name] = f"{error.what}: {error.why}"
        self.say(f"left out: {self.failed[name]}")

    def _warm_account(self, route: Route) -> None:
        """One connection with TLS, so that one without it finds the password in the cache.

        For caching_sha2_password of MySQL 8.0 and later, which without it asks for the password
        encrypted by RSA; for others this is a connection like any.
        """
        account = self.server.account()
        choice = self.server.request.choice
        make_driver("sysbench").run(
            DriveRequest(route.endpoint, account, "tls", choice, "connect", operation_count=1),
            Tick(),
        )

    def _describe(self) -> None:
        """What was started, and what it negotiates."""
        self.facts = {"program": str(self.server.program)}
        kind = self.recipe.server_of(self.key.server).kind
        if kind is not None:
            self.facts["tls_library"] = kind.tls_library
        if self.negotiates:
            self.negotiated = negotiate(self.server)
            agreed = self.negotiated.driver
            self.facts["negotiated"] = f"{agreed.version} {agreed.cipher}"
            self.facts["tls_versions"] = " ".join(self.negotiated.versions)
        if self.server.request.storage is not None:
            self.facts |= self._look_at_disk()

    def _look_at_disk(self) -> dict[str, str]:
        """Whether a stored text can be read on the disk.

        TlstaxError (FAILED) if it can and should not, or cannot though nothing is encrypted.
        """
        found = find_plaintext(self.server)
        is_encrypted = self.key.encryption != OFF
        if any(found.values()) == is_encrypted:
            raise TlstaxError(
                f"the server {self.key.label} does not store its data as requested",
                f"occurrences of a stored test text on disk: {found}",
                "Look at its log",
                ExitCode.FAILED,
            )
        return {"found on disk": ", ".join(f"{kind} {count}" for kind, count in found.items())}

    def _prepare_drivers(self) -> None:
        """Make each driver's tables, over the first transport of its cells."""
        for cell in self.cells:
            if cell.driver in self._drivers or cell.driver in self.failed:
                continue
            if cell.transport not in self._routes:
                continue
            part = self.recipe.driver_of(cell)
            driver = make_driver(part.kind, part.options)
            route = self.route_of(cell)
            try:
                driver.prepare(self.server, route.endpoint, self.server.account())
            except TlstaxError as error:
                self._give_up(cell.driver, error)
                continue
            self._drivers[cell.driver] = driver

    def _check_offers(self) -> None:
        """Whether each client offers the key shares that its TLS arm names."""
        for cell in self.cells:
            wanted = self.recipe.tls[cell.tls].key_shares
            name = f"ClientHello {cell.driver} {cell.tls}"
            if not wanted or name in self.facts or self.why_not(cell):
                continue
            hello = offers.see_offer(self._drivers[cell.driver], self._request(cell, WARM_UP_S, 1))
            self.facts[name] = str(hello or "none")
            why = offers.objection(hello, wanted)
            if why is not None:
                self._objections[cell.driver, cell.tls] = why
                self.say(f"left out: {cell.driver} with TLS {cell.tls}: {why}")

    def _warm_up(self) -> None:
        """A short run of each kind of load and arm: caches, threads, whether the server counts."""
        done: set[tuple[str, ...]] = set()
        # TLS first: it warms the cache of caching_sha2_password, without which the plaintext arm
        # would encrypt the password by RSA.
        for cell in sorted(self.cells, key=lambda cell: (cell.arm == "plaintext", -cell.threads)):
            kind = (cell.tls, cell.transport, cell.driver, cell.scenario)
            if kind in done or self.why_not(cell):
                continue
            done.add(kind)
            before = self.status.read()
            connects = self.recipe.scenario_of(cell).connects
            count = max(WARM_UP_OPERATIONS, cell.threads) if connects else None
            try:
                self.drive(cell, WARM_UP_S, count, Tick())
            except TlstaxError as error:
                self.say(f"warm-up of {cell.label} failed: {error.why}")
                if not self.is_alive:
                    raise self.died() from error
            self.come_to_rest(cell)
            counted = self.status.read().since(before, "Ssl_finished_accepts")
            self.counts_handshakes |= cell.arm == "tls" and counted > 0


def _make_namespace(resources: Resources) -> str:
    """A network namespace with its loopback interface up."""
    count = sum(resource.kind == "namespace" for resource in resources.listed())
    name = resources.register("namespace", f"tlstax-{resources.tag}-{count}")
    for command in (["ip", "netns", "add", name], ["ip", "-n", name, "link", "set", "lo", "up"]):
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode != 0:
            raise TlstaxError(
                "cannot make a network namespace",
                done.stderr.decode(errors="replace").strip() or f"{command[0]} failed",
                "Run tlstax as root, with iproute2 installed",
                ExitCode.HOST,
            )
    return name
