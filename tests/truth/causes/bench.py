# SPDX-License-Identifier: GPL-2.0-only
"""A real server under a real load, recorded by tlstax: what every injected cause is made of.

Server, clients and whatever stands between run ahead of everything else on the host (autogroup and
nice), so that a busy test machine is not the cause that is found.
"""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tlstax.certs.generate import Certificates, KeyKind, generate
from tlstax.tests.truth.causes.modes import MODES, WINDOW_S, Recording
from tlstax.tests.truth.causes.obstacles import (
    limited,
    locking,
    long_locks,
    slow_names,
    starved,
    strangers_files,
    write_chain,
    write_expired,
    write_login,
    write_revoked,
)
from tlstax.tests.truth.causes.programs import HERE, ahead, ahead_ourselves, ready, started
from tlstax.tests.truth.causes.replication import ACKNOWLEDGED, acknowledging, fetching
from tlstax.workloads.drivers.sysbench import Caller, Sysbench
from tlstax.workloads.endpoint import Endpoint
from tlstax.workloads.resources import Resources
from tlstax.workloads.results import Arm
from tlstax.workloads.servers.catalogue import find_kind
from tlstax.workloads.servers.lab_server import open_server
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.programs import find_program
from tlstax.workloads.servers.request import ServerRequest
from tlstax.workloads.servers.server_directory import free_port
from tlstax.workloads.servers.storage import Storage
from tlstax.workloads.tls import TlsChoice
from tlstax.workloads.transports import make_transport
from tlstax.workloads.transports.namespaces import new_namespace

GUESSED = "tlstax_guessed"
DIRECTORY_PORT = "DIRECTORY_PORT"
"""In the environment of a server with directory_login.c."""
LOAD_S = 300
"""Longer than any recording."""
SETTLE_S = 0.4
"""From the clients' start to the recording, so that it sees the load and not its beginning."""


@dataclass(frozen=True)
class Injection:
    """One load with one cause in it."""

    script: str = "oltp_point_select"
    """Of sysbench, or of this directory."""
    sysbench: tuple[str, ...] = ()
    threads: int = 2
    seconds: float = 6.0
    """Long enough for eight windows and more, whatever else the host does."""
    window_s: float = WINDOW_S
    tls: bool = True
    server_key: str = "ec:p256"
    client_key: str = "ec:p256"
    kind: str = "mariadb"
    options: tuple[str, ...] = ()
    """Further lines of the server's option file."""
    environment: tuple[tuple[str, str], ...] = ()
    """Of the server; with LONG_* it runs with long_locks.c."""
    choice: TlsChoice | None = None
    """What the clients' library is limited to."""
    rtt_ms: float = 0.0
    """Round trip between clients and server, which are in network namespaces of their own then."""
    split_bytes: int = 0
    """What clients send goes on in two parts, the first of so many bytes, by relay.py."""
    pause_ms: float = 0.0
    """What clients send to finish a handshake goes on after so long, by relay.py."""
    late_ms: float = 0.0
    """All that clients send goes on after so long, by relay.py: they think between queries."""
    halting_ms: float = 0.0
    """All that clients send goes on in two halves, so long apart, by relay.py."""
    stranger: str = ""
    """Another client, which never gets as far as a query: see stranger.py."""
    chain: int = 0
    """CA certificates of the host behind the server's own, in its file."""
    expired: bool = False
    """The server's certificate was valid until yesterday."""
    replicated: str | None = None
    """A replica is recorded that fetches with this cipher ("": none), and nothing else runs."""
    acknowledged: bool = False
    """A replica acknowledges each transaction before its commit returns."""
    guesses: str = ""
    """How an account is authenticated (the end of CREATE USER) that clients try to guess."""
    guessers: int = 2
    """These clients."""
    directory_ms: float = 0.0
    """An LDAP directory, which `guesses` leads to (LDAP), takes so long for each answer."""
    record_client: bool = False
    big_ca: int = 0
    """How many times the host's CA certificates stand before the right one in the clients' file."""
    busy_loops: int = 0
    """Programs that compete with the server for its one CPU."""
    quota_cpus: float = 0.0
    """CPUs that the server may use, by its control group; 0: as many as there are."""
    name_server_ms: float = 0.0
    """The server asks for the names of its clients, and gets no for an answer after so long."""
    revoked: int = 0
    """Certificates in the list of revoked ones (CRL) that the server checks clients against."""
    storage: Storage | None = None
    locked: tuple[float, float] | None = None
    """Seconds for which another session locks the table, and then does not, again and again."""
    functions: tuple[str, ...] = ()
    rows: int = 1000
    reads_status: bool = True
    """The server's counters and its certificate are read."""
    mode: str = "none"
    """How it is recorded: a name of modes.py."""

    @property
    def needs_sockets(self) -> bool:
        """Whether what is between clients and server shows in the counters of their sockets."""
        return bool(self.split_bytes or self.late_ms or self.halting_ms)

    @property
    def needs_table(self) -> bool:
        """Whether the load reads or changes sysbench's table."""
        return self.script not in ("result", "storm")


def record(injection: Injection, capture: Path, directory: Path) -> None:
    """Start all of it, record for a while, end all of it."""
    if injection.replicated is not None:
        record_replica(injection, capture)
        return
    with reachable(injection, directory) as (server, endpoint):
        record_load(injection, server, endpoint, capture, directory)


def record_load(
    injection: Injection, server: PrivateServer, endpoint: Endpoint, capture: Path, directory: Path
) -> None:
    """Start the load and what is in its way, record for a while, end all of it but the server."""
    with ExitStack() as stack:
        if (manner := _manner(injection)) is not None:
            port = free_port()
            stack.enter_context(ready("relay.py", port, server.port, *manner))
            endpoint = replace(endpoint, port=port)
        if injection.name_server_ms:
            assert server.request.namespace is not None
            stack.enter_context(slow_names(server.request.namespace, injection.name_server_ms))
        if injection.quota_cpus:
            stack.enter_context(limited(server.pid, injection.quota_cpus))
        if injection.busy_loops:
            stack.enter_context(starved(server.pid, injection.busy_loops))
        if injection.locked:
            stack.enter_context(locking(server, *injection.locked))
        if injection.stranger:
            files = strangers_files(injection.stranger, directory)
            stack.enter_context(ready("stranger.py", server.port, injection.stranger, *files))
        if injection.directory_ms:
            port = int(dict(server.request.environment)[DIRECTORY_PORT])
            stack.enter_context(ready("directory.py", port, injection.directory_ms))
        if injection.acknowledged:
            stack.enter_context(acknowledging(server))
        if injection.guesses:
            with server.open_administrator() as session:
                session.query(f"CREATE USER {GUESSED}@'127.0.0.1' {injection.guesses}")
            guesser = ready("guesser.py", server.port, GUESSED, injection.guessers)
            stack.enter_context(guesser)
        client = stack.enter_context(driven(injection, server, endpoint))
        time.sleep(SETTLE_S)
        status = server.directory.client / "status.cnf" if injection.reads_status else None
        recording = Recording(
            server.pid, capture, injection.seconds, status, injection.needs_sockets,
            injection.window_s, (client.pid,) if injection.record_client else (),
            injection.functions,
        )  # fmt: skip
        with ahead_ourselves():
            recording.make(MODES[injection.mode])
        assert client.poll() is None, "the load ended before the recording"


def _manner(injection: Injection) -> tuple[str, float] | None:
    """How relay.py hands on what clients send; None if it does not stand between."""
    manners = {
        "split": float(injection.split_bytes), "pause": injection.pause_ms,
        "late": injection.late_ms, "halting": injection.halting_ms,
    }  # fmt: skip
    return next(((name, amount) for name, amount in manners.items() if amount), None)


def record_replica(injection: Injection, capture: Path) -> None:
    """A replica that fetches as fast as it can, for a while."""
    with fetching(injection.replicated or "") as replica, ahead_ourselves():
        Recording(replica.pid, capture, injection.seconds, window_s=injection.window_s).make(
            MODES[injection.mode]
        )


# ---- server and accounts ----


@contextmanager
def reachable(injection: Injection, directory: Path) -> Iterator[tuple[PrivateServer, Endpoint]]:
    """The server with its data, and where clients connect: here, or behind a delay line."""
    if not injection.rtt_ms:
        with _server(injection, directory, None) as server:
            endpoint = Endpoint("127.0.0.1", server.port)
            _prepare(injection, server, endpoint)
            yield server, endpoint
        return
    with (
        Resources() as resources,
        new_namespace(resources, "server") as namespace,
        _server(injection, directory, namespace) as server,
        make_transport("wan", resources, {"rtt_ms": injection.rtt_ms}).open(server) as route,
    ):
        _prepare(injection, server, route.endpoint)
        yield server, route.endpoint


def _prepare(injection: Injection, server: PrivateServer, endpoint: Endpoint) -> None:
    ahead(server.pid)
    if injection.kind == "mariadb" or injection.needs_table:
        caller = Caller.of_account(server.account(), endpoint, "plaintext")
        Sysbench(lambda _: caller, table_rows=injection.rows).prepare()


def _server(injection: Injection, directory: Path, namespace: str | None) -> PrivateServer:
    options = injection.options + (ACKNOWLEDGED if injection.acknowledged else ())
    if injection.kind != "mariadb":
        request = ServerRequest(
            key=KeyKind.parse("rsa:2048"), options=options, environment=injection.environment,
            storage=injection.storage,
        )  # fmt: skip
        return open_server(find_kind(injection.kind), request)
    if injection.name_server_ms:
        options += ("skip_name_resolve = OFF", "host_cache_size = 0")
    environment = long_locks(injection.environment, directory)
    if injection.directory_ms:
        options += write_login(directory)
        environment += ((DIRECTORY_PORT, str(free_port())),)
    if injection.revoked:
        options += (f"ssl_crl = {directory / 'revoked.pem'}",)
    request = ServerRequest(
        certificates=_certificates(injection, directory), namespace=namespace, options=options,
        storage=injection.storage, environment=environment,
    )  # fmt: skip
    return open_server(find_kind(injection.kind), request)


def _certificates(injection: Injection, directory: Path) -> Certificates:
    """Server and client with keys of their own kinds, each known to the other."""
    server = generate(directory / "of-server", KeyKind.parse(injection.server_key))
    client = generate(directory / "of-client", KeyKind.parse(injection.client_key))
    if injection.expired:
        write_expired(server)
    if injection.chain:
        write_chain(server, injection.chain)
    both = server.ca.read_bytes() + client.ca.read_bytes()
    known, known_to_client = directory / "ca.pem", directory / "cacert.pem"
    known.write_bytes(both)
    bundle = Path("/etc/ssl/certs/ca-certificates.crt")
    strangers = bundle.read_bytes() * injection.big_ca if injection.big_ca else b""
    known_to_client.write_bytes(strangers + both)
    if injection.revoked:
        write_revoked(directory / "revoked.pem", client, injection.revoked)
        (directory / "revoked.pem").chmod(0o644)
    return replace(
        server,
        ca=known,
        sysbench_ca=known_to_client,
        client=client.client,
        client_key=client.client_key,
    )


# ---- load, and what is in its way ----


@contextmanager
def driven(
    injection: Injection, server: PrivateServer, endpoint: Endpoint
) -> Iterator["subprocess.Popen[bytes]"]:
    """sysbench, for longer than it is recorded."""
    arm: Arm = "tls" if injection.tls else "plaintext"
    caller = Caller.of_account(server.account(), endpoint, arm)
    script = HERE / f"{injection.script}.lua"
    command = [
        *caller.prefix,
        str(find_program("sysbench", "sysbench")), f"--config-file={caller.option_file}",
        f"--threads={injection.threads}", "--events=0", f"--time={LOAD_S}",
        "--mysql-ignore-errors=all",
        *([] if script.exists() else ["--tables=1", f"--table-size={injection.rows}"]),
        *injection.sysbench,
        str(script) if script.exists() else injection.script, "run",
    ]  # fmt: skip
    environment = {"PATH": os.defpath, "LC_ALL": "C"} | dict(caller.environment)
    if injection.choice:
        limits = server.client_directory / "limited.cnf"
        limits.write_text(injection.choice.openssl_configuration())
        limits.chmod(0o644)
        environment["OPENSSL_CONF"] = str(limits)
    with (
        (server.client_directory / "load.log").open("wb") as log,
        started(command, cwd=server.client_directory, env=environment, stdout=log,
                 stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL) as process,
    ):  # fmt: skip
        time.sleep(SETTLE_S)
        if process.poll() is not None:
            raise AssertionError((server.client_directory / "load.log").read_text()[-2000:])
        yield process
