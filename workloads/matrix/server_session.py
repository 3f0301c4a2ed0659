# SPDX-License-Identifier: GPL-2.0-only
"""One running server of a matrix, with the ways to it and what drives it."""

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from tlstax import ExitCode, TlstaxError
from tlstax.certs.generate import KeyKind
from tlstax.workloads.drivers import (
    DRIVERS,
    Driver,
    DriveRequest,
    DriveResult,
    Tick,
    make_driver,
)
from tlstax.workloads.matrix.cells import OFF, Cell, ServerKey
from tlstax.workloads.matrix.recipe import (
    MatrixRecipe,
    Part,
    driver_of,
    server_of,
    transport_of,
)
from tlstax.workloads.matrix.store import Outcome
from tlstax.workloads.negotiation import negotiate
from tlstax.workloads.proof import Evidence
from tlstax.workloads.resources import Resources
from tlstax.workloads.results import Recorder, RunResult, RunTotals, StatusSample
from tlstax.workloads.servers.canary import find_plaintext
from tlstax.workloads.servers.connections import await_quiet, socket_count
from tlstax.workloads.servers.lab_server import open_server
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.request import ServerRequest
from tlstax.workloads.servers.server_directory import is_running, process_start_ticks
from tlstax.workloads.servers.status import Status, StatusSession
from tlstax.workloads.servers.storage import Storage
from tlstax.workloads.transports import Route, Transport, make_transport

UNKNOWN = "unknown"  # of a version or cipher in a capture
WARM_UP_S = 1
WARM_UP_OPERATIONS = 5
SETTLE_S = 0.2  # for a proxy, whose connections to the server stay

Say = Callable[[str], None]


@dataclass(frozen=True)
class _Witness:
    """A driver's result as `Evidence` reads it."""

    connection_count: int


@dataclass
class ServerSession:
    """A server at work. What it made is gone afterwards."""

    key: ServerKey
    recipe: MatrixRecipe
    cells: Sequence[Cell]
    resources: Resources
    say: Say
    failed: dict[str, str] = field(default_factory=dict)  # transport or driver -> why it cannot be
    facts: dict[str, str] = field(default_factory=dict)

    def open(self) -> None:
        """Start the server, open every transport, make the tables, warm up."""
        self._stack = ExitStack()
        self._routes: dict[str, Route] = {}
        self._drivers: dict[str, Driver] = {}
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

    def _open(self) -> None:
        transports = {
            cell.transport: transport_of(self.recipe, cell)
            for cell in self.cells
            if cell.transport not in self.failed
        }
        arm = server_of(self.recipe, self.key.server)
        ways = {name: self._way(part) for name, part in transports.items()}
        namespace = None
        if any(way.needs_namespace for way in ways.values()):
            namespace = _make_namespace(self.resources, self.key)
            self._stack.callback(self.resources.release, "namespace", namespace)
        request = ServerRequest(
            key=KeyKind.parse(self.key.key),
            options=arm.options,
            namespace=namespace,
            storage=self._storage(arm.storage),
        )
        server: PrivateServer = open_server(arm.kind, request, self.say)
        self.server = self._stack.enter_context(server)
        self._start_ticks = process_start_ticks(self.server.pid)
        self.status: StatusSession = self._stack.enter_context(self.server.open_status())
        for name, way in ways.items():
            try:
                route = self._stack.enter_context(way.open(self.server))
                if not route.ends_tls:
                    self._warm_account(route)
                self._routes[name] = route
            except TlstaxError as error:
                self._give_up(name, error)
        self._describe()
        self._prepare_drivers()
        self._baseline = socket_count(self.server.pid)
        self._warm_up()

    def _storage(self, asked: Storage | None) -> Storage | None:
        """On a disk in both arms, as soon as encryption is a question of the recipe."""
        is_question = any(cell.encryption != OFF for cell in self.recipe.cells)
        if asked is None and not is_question:
            return None
        return replace(asked or Storage(), encrypted=self.key.encryption != OFF)

    def _way(self, part: Part) -> Transport:
        return make_transport(part.kind, self.resources, part.options)

    def _give_up(self, name: str, error: TlstaxError) -> None:
        self.failed[name] = f"{error.what}: {error.why}"
        self.say(f"left out: {self.failed[name]}")

    def _warm_account(self, route: Route) -> None:
        """One connection with TLS, so that one without it finds the password in the cache.

        For caching_sha2_password of MySQL 8.0 and later, which else asks for the password encrypted
        by RSA; for others this is a connection like any.
        """
        account = self.server.account()
        choice = self.server.request.choice
        make_driver("sysbench").run(
            DriveRequest(route.endpoint, account, "tls", choice, "connect", operation_count=1),
            Tick(),
        )

    def _describe(self) -> None:
        """What was started, and what it negotiates."""
        agreed = negotiate(self.server)
        self._agreed = agreed.driver
        self.facts = {
            "program": str(self.server.program),
            "tls_library": server_of(self.recipe, self.key.server).kind.tls_library,
            "negotiated": f"{agreed.driver.version} {agreed.driver.cipher}",
            "tls_versions": " ".join(agreed.versions),
        }
        if self.server.request.storage is not None:
            self.facts |= self._look_at_disk()

    def _look_at_disk(self) -> dict[str, str]:
        """Whether a text that was stored can be read there; TlstaxError (FAILED) if it should not
        be, or if it is not found though nothing is encrypted.
        """
        found = find_plaintext(self.server)
        is_encrypted = self.key.encryption != OFF
        if any(found.values()) == is_encrypted:
            raise TlstaxError(
                f"the server {self.key.label} does not store its data as asked",
                f"a text that it stored was found so often on the disk: {found}",
                "Look at its log",
                ExitCode.FAILED,
            )
        return {"found on disk": ", ".join(f"{kind} {count}" for kind, count in found.items())}

    def _prepare_drivers(self) -> None:
        """Make each driver's tables, by the first transport of its cells."""
        for cell in self.cells:
            if cell.driver in self._drivers or cell.driver in self.failed:
                continue
            if cell.transport not in self._routes:
                continue
            part = driver_of(self.recipe, cell)
            driver = make_driver(part.kind, part.options)
            route = self._routes[cell.transport]
            try:
                driver.prepare(self.server, route.endpoint, self.server.account())
            except TlstaxError as error:
                self._give_up(cell.driver, error)
                continue
            self._drivers[cell.driver] = driver

    def _warm_up(self) -> None:
        """A short run of each kind of load and arm: caches, threads, whether the server counts."""
        self._server_counts = False
        done: set[tuple[str, ...]] = set()
        # TLS first: it warms the cache of caching_sha2_password, without which the plaintext arm
        # would encrypt the password by RSA.
        for cell in sorted(self.cells, key=lambda cell: (cell.arm == "plaintext", -cell.threads)):
            kind = (cell.tls, cell.transport, cell.driver, cell.scenario)
            if kind in done or self.why_not(cell):
                continue
            done.add(kind)
            before = self.status.read()
            count = max(WARM_UP_OPERATIONS, cell.threads) if self.scenario_connects(cell) else None
            try:
                self.drive(cell, WARM_UP_S, count, Tick())
            except TlstaxError as error:
                self.say(f"warm-up of {cell.label} failed: {error.why}")
                if not self.is_alive:
                    raise self.died() from error
            self._come_to_rest(cell)
            counted = self.status.read().since(before, "Ssl_finished_accepts")
            self._server_counts |= cell.arm == "tls" and counted > 0

    def scenario_connects(self, cell: Cell) -> bool:
        """Whether each operation of the cell opens a connection."""
        kind = DRIVERS[driver_of(self.recipe, cell).kind].scenario(cell.scenario)
        return kind is not None and kind.connects

    def why_not(self, cell: Cell) -> str | None:
        """Why the cell cannot be run here; None if it can."""
        return self.failed.get(cell.transport) or self.failed.get(cell.driver)

    # ---- runs ----

    def run(
        self, cell: Cell, run_id: int, round_number: int, recorder: Recorder, capture: str
    ) -> Outcome:
        """One run of a cell, from quiet to quiet, proven; TlstaxError with the reason if not."""
        route = self._routes[cell.transport]
        length = self.recipe.length_of(cell)
        # At the gate the driver's own preparations are over: what is counted begins there.
        seen: list[tuple[Status, int | None]] = []

        def at_gate(pids: Sequence[int]) -> None:
            self._come_to_rest(cell, recorder.poll)
            seen.append((self.status.read(), route.carried() if route.carried else None))
            if "client" in self.recipe.watch:
                for pid in pids:
                    recorder.add_client(pid)
            recorder.begin_run(run_id)

        began = time.monotonic_ns()
        tick = Tick(recorder.poll, at_gate)
        driven = self.drive(cell, length.seconds, length.operation_count, tick)
        self._come_to_rest(cell, recorder.poll)
        totals = recorder.end_run()
        (before, carried), after = seen[0], self.status.read()
        if route.carried is not None and carried is not None:
            carried = route.carried() - carried
        proof = self._prove(cell, driven, before, after, totals, carried)
        kind = DRIVERS[driver_of(self.recipe, cell).kind].scenario(cell.scenario)
        result = RunResult(
            run_id=run_id,
            driver=cell.driver,
            scenario=cell.recorded_name,
            arm=cell.arm,
            round=round_number,
            start_ns=totals.start_ns or began,
            end_ns=totals.end_ns,
            threads_count=cell.threads,
            connection_count=driven.connections_count,
            operation_count=driven.operations_count,
            client_mean_ns=driven.latencies.mean_ns,
            client_p95_ns=driven.latencies.p95_ns,
            client_max_ns=driven.latencies.max_ns,
            client_cpu_ns=driven.client_cpu_ns,
            proof=proof,
        )
        assert kind is not None
        recorder.add([result, *_samples(run_id, before), *_samples(run_id, after)])
        version, cipher = driven.negotiated or self._negotiated(totals)
        return Outcome(
            capture, totals.start_ns, totals.end_ns, driven, version, cipher, carried, proof
        )

    def _negotiated(self, totals: RunTotals) -> tuple[str, str]:
        """As the recorder saw it; where the library does not tell it, as a client was answered."""
        version, cipher = _names(totals.tls_versions), _names(totals.ciphers)
        if UNKNOWN in (version, cipher):
            return self._agreed.version, self._agreed.cipher
        return version, cipher

    def drive(
        self, cell: Cell, seconds: int, operation_count: int | None, tick: Tick
    ) -> DriveResult:
        """The load of a cell, unproven."""
        arm = self.recipe.tls[cell.tls]
        request = DriveRequest(
            endpoint=self._routes[cell.transport].endpoint,
            account=self.server.account(arm.choice),
            arm=cell.arm,
            tls=arm.choice,
            scenario=cell.scenario,
            threads_count=cell.threads,
            seconds=seconds,
            operation_count=operation_count,
            resume=arm.resume,
            rate_per_s=cell.rate or None,
            is_direct=self._is_direct(cell),
        )
        return self._drivers[cell.driver].run(request, tick)

    def _is_direct(self, cell: Cell) -> bool:
        route = self._routes[cell.transport]
        return not (route.ends_tls or route.pools_connections)

    def died(self, met: TlstaxError | None = None) -> TlstaxError:
        """The error of a server that is not there any more; `met` is what that made fail."""
        met_text = f"; the client's words: {met.why}" if met else ""
        return TlstaxError(
            f"the server {self.key.label} ended under load",
            f"its process is gone{self.server.log_tail()}{met_text}",
            "It is started again for what remains",
            ExitCode.TARGET,
        )

    def _prove(
        self,
        cell: Cell,
        driven: DriveResult,
        before: Status,
        after: Status,
        totals: RunTotals,
        carried_bytes: int | None,
    ) -> str:
        if carried_bytes is not None and carried_bytes <= 0:
            raise _unproven(cell, "the transport carried nothing by its own count")
        evidence = Evidence(
            cell.label,
            cell.arm,
            self.server.request.client_choice(self.recipe.tls[cell.tls].choice),
            _Witness(driven.connections_count),
            before,
            after,
            totals,
            self._server_counts,
            reused_count=driven.reused_count or 0,
            is_direct=self._is_direct(cell),
        )
        return evidence.prove()

    def _come_to_rest(self, cell: Cell, wait: Callable[[float], None] = time.sleep) -> None:
        if not self.is_alive:
            raise self.died()
        if self._routes[cell.transport].pools_connections:
            wait(SETTLE_S)
            self._baseline = socket_count(self.server.pid)
        else:
            await_quiet(self.server.pid, self._baseline, wait)


def _make_namespace(resources: Resources, key: ServerKey) -> str:
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


def _unproven(cell: Cell, why: str) -> TlstaxError:
    return TlstaxError(
        f"run of {cell.label} did not do what was asked",
        why,
        "Look at the logs of client and server, and run it again",
        ExitCode.FAILED,
    )


def _names(counts: Mapping[str, int]) -> str:
    return " ".join(sorted(counts))


def _samples(run_id: int, status: Status) -> list[StatusSample]:
    return [
        StatusSample(status.time_ns, run_id, name, value)
        for name, value in sorted(status.values.items())
    ]
