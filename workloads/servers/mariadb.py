# SPDX-License-Identifier: GPL-2.0-only
"""A private MariaDB server: made, started, awaited, stopped and removed without a trace.

It uses the host's own `mariadbd` (Debian: mariadb-server-core) and nothing else of an installed
server: own data directory, option file, port, socket, accounts and certificates.
"""

import json
import os
import secrets
import shutil
import socket
import time
import zlib
from collections.abc import Mapping
from pathlib import Path

from tlstax import ExitCode, TlstaxError
from tlstax.certs.generate import generate, write_private
from tlstax.workloads.endpoint import Account
from tlstax.workloads.servers import configuration
from tlstax.workloads.servers.at_rest import AtRest, await_encrypted, mariadb_at_rest
from tlstax.workloads.servers.programs import Binaries
from tlstax.workloads.servers.request import ServerRequest
from tlstax.workloads.servers.server_directory import (
    ServerDirectory,
    ServerUser,
    free_port,
    is_free,
)
from tlstax.workloads.servers.status import StatusSession
from tlstax.workloads.servers.storage import Storage, require_disk
from tlstax.workloads.servers.supervised import Supervised
from tlstax.workloads.tls import TlsChoice

INSTALL_PATIENCE_S = 180.0
START_PATIENCE_S = 60.0
LOG_TAIL_LINES = 5


class PrivateServer:
    """A running server; a context manager whose end stops it and removes its directory."""

    def __init__(self, request: ServerRequest | None = None, binaries: Binaries | None = None):
        self.request = request or ServerRequest()
        self._binaries = binaries or Binaries.find()
        self.port = self._choose_port()
        self._user = ServerUser.choose()
        self._supervised: Supervised | None = None
        self._at_rest: AtRest | None = None
        self.pid = 0

    def __enter__(self) -> "PrivateServer":
        self.directory = ServerDirectory.create(self._user, self.parent)
        try:
            self._prepare()
            self._start()
        except BaseException:  # also Ctrl-C: nothing may stay behind
            self.stop()
            raise
        return self

    def __exit__(self, *unused: object) -> None:
        self.stop()

    @property
    def program(self) -> Path:
        """The server's program."""
        return self._binaries.server

    @property
    def client_directory(self) -> Path:
        """Working directory of the drivers: option files and what sysbench needs for TLS."""
        return self.directory.client

    @property
    def client_environment(self) -> Mapping[str, str]:
        """What drivers add to their environment to make the asked TLS choice."""
        return self._openssl_environment(self.directory.client / "openssl.cnf")

    def option_file(self, user: str) -> Path:
        """The sysbench --config-file of USER_PLAINTEXT or USER_TLS."""
        return self.directory.client / f"{user}.cnf"

    def account(self, asked: TlsChoice | None = None) -> Account:
        """The account of both arms, and its files for a client that asks for this TLS."""
        choice = self.request.client_choice(asked or self.request.tls)
        text = self._client_openssl(choice).encode()
        path = self.directory.client / f"openssl-{zlib.crc32(text):08x}.cnf"
        write_private(path, text, replace=True)
        client = self.directory.client
        return Account(
            user=configuration.USER_LOAD,
            password=self._load_password,
            database=configuration.DATABASE,
            directory=client,
            ca=client / "cacert.pem",
            certificate=client / "client-cert.pem",
            key=client / "client-key.pem",
            environment={"OPENSSL_CONF": str(path)},
            is_yassl=self.traditional_keys,
        )

    def open_status(self) -> StatusSession:
        """A new plaintext connection for counters."""
        return StatusSession(self._binaries.client, self.directory.client / "status.cnf")

    def open_administrator(self) -> StatusSession:
        """A new plaintext connection that may do everything, through the socket."""
        return StatusSession(self._binaries.client, self.directory.client / "administrator.cnf")

    def stop(self) -> None:
        """Stop the server and remove everything. Safe to repeat."""
        if self._supervised is not None:
            self._supervised.stop()
        shutil.rmtree(self.directory.root, ignore_errors=True)

    def _choose_port(self) -> int:
        port = self.request.port
        if port is None:
            return free_port()
        if not is_free(port):
            raise TlstaxError(
                f"cannot start a server on port {port}",
                "another process listens there",
                "Choose another port, or leave out --port",
                ExitCode.HOST,
            )
        return port

    def _openssl_environment(self, path: Path) -> dict[str, str]:
        return {} if self.request.choice.is_default else {"OPENSSL_CONF": str(path)}

    def _prepare(self) -> None:
        """Write every file that the server and the clients read."""
        storage = self.request.storage
        self._at_rest = self._make_at_rest(storage) if storage and storage.encrypted else None
        certificates = self.request.certificates or generate(
            self.directory.certificates, self.request.key, pkcs1=self.traditional_keys
        )
        openssl = self.request.choice.openssl_configuration().encode()
        server = self.directory.server
        owned_by_server = {
            server / "my.cnf": self._server_options().encode(),
            server / "openssl.cnf": openssl,
            server / "ca.pem": certificates.ca.read_bytes(),
            server / "server-cert.pem": certificates.server.read_bytes(),
            server / "server-key.pem": certificates.server_key.read_bytes(),
            self.directory.log: b"",
        }
        for path, content in owned_by_server.items():
            write_private(path, content)
            self._user.own(path)
        write_private(
            self.directory.client / "openssl.cnf",
            self._client_openssl(self.request.choice).encode(),
        )
        for source in (certificates.sysbench_ca, certificates.client, certificates.client_key):
            write_private(self.directory.client / source.name, source.read_bytes())

        self._prepare_storage()

    def _prepare_storage(self) -> None:
        """Keys, plugin and option file of a server that encrypts."""
        storage, server = self.request.storage, self.directory.server
        if storage is not None:
            require_disk(server)
        if self._at_rest is not None:
            self._at_rest.write(server, self._user)
            text = "\n".join((self._server_options(), *self._at_rest.options, ""))
            write_private(server / "serve.cnf", text.encode())
            self._user.own(server / "serve.cnf")

    def _start(self) -> None:
        """Have the supervisor install the data directory and start the server; wait for it."""
        specification = self.directory.root / "specification.json"
        write_private(specification, json.dumps(self._specification()).encode())
        environment = self._server_environment() | dict(self.request.environment)
        self._supervised = Supervised(specification, environment)
        pids = {"owner": os.getpid(), "supervisor": self._supervised.pid}
        self.directory.write_state(pids)
        self._expect("started 0 ", START_PATIENCE_S)
        if self._expect("finished 0 ", INSTALL_PATIENCE_S) != "0":
            name = Path(self._steps()[0][0]).name
            raise self._failure("cannot make a data directory", f"{name} failed")
        self.pid = int(self._expect("started 1 ", START_PATIENCE_S))
        self.directory.write_state(pids | {"server": self.pid})
        self._await_socket()
        self._make_accounts()
        if self._at_rest:
            with self.open_administrator() as session:
                await_encrypted(session)

    def _specification(self) -> dict[str, object]:
        """What the supervisor shall run (see supervisor.py); nothing here is secret."""
        server, user = self.directory.server, self._user
        return {
            "directory": str(self.directory.root),
            "working_directory": str(server),
            "log": str(self.directory.log),
            "uid": user.uid,
            "gid": user.gid,
            "root": None,
            "namespace": self.request.namespace,
            "steps": self._steps(),
        }

    # ---- what other servers do in another way (see lab_server.py) ----

    traditional_keys = False  # whether the keys must be in the form of PKCS#1
    parent: Path | None = None  # where its directory is made; None: that for temporary files

    @property
    def administrator(self) -> str:
        """The account that may do everything, through the socket and without a password."""
        return ServerUser.us()

    def _server_options(self) -> str:
        settings = configuration.ServerSettings(port=self.port)
        text = configuration.server_options(settings, self.directory.server)
        return "\n".join((text, *self._further_options(), ""))

    def _further_options(self) -> tuple[str, ...]:
        # In a namespace of its own nobody else can reach it, and tunnels end at other addresses.
        anywhere = ("bind_address = 0.0.0.0",) if self.request.namespace else ()
        storage = self.request.storage.options if self.request.storage else ()
        always = self._at_rest.always if self._at_rest else ()
        return (*anywhere, *storage, *always, *self.request.options)

    def _make_at_rest(self, storage: Storage) -> AtRest:
        return mariadb_at_rest(storage, self.directory.server, None)

    def _client_openssl(self, choice: TlsChoice) -> str:
        return choice.openssl_configuration()

    def _server_environment(self) -> dict[str, str]:
        return self._openssl_environment(self.directory.server / "openssl.cnf")

    def _steps(self) -> list[list[str]]:
        """Make the data directory; serve."""
        options = f"--defaults-file={self.directory.server}/my.cnf"
        serve = f"--defaults-file={self.directory.server}/{self._serve_file}"
        install = [
            str(self._binaries.install),
            options,
            "--auth-root-authentication-method=socket",
            f"--auth-root-socket-user={self.administrator}",
            "--skip-test-db",
            "--skip-name-resolve",
        ]
        return [install, [str(self._binaries.server), serve]]

    @property
    def _serve_file(self) -> str:
        """The option file of the server; its data is made without encryption."""
        return "serve.cnf" if self._at_rest else "my.cnf"

    def _account_statements(self, passwords: Mapping[str, str]) -> list[str]:
        return configuration.account_statements(passwords)

    # ---- starting ----

    def _expect(self, event: str, patience_s: float) -> str:
        """Wait for the supervisor to report `event` and return what follows it."""
        line = self._next_event(patience_s)
        if line is None or not line.startswith(event):
            raise self._failure("cannot start a private server", "its supervisor ended early")
        return line.removeprefix(event)

    def _next_event(self, patience_s: float) -> str | None:
        return self._supervised.next_event(patience_s) if self._supervised else None

    def _await_socket(self) -> None:
        """Return once the server answers on its socket."""
        deadline = time.monotonic() + START_PATIENCE_S
        while not _listens(self.directory.socket):
            ended = self._next_event(0.02)
            if ended is not None:
                raise self._failure(
                    "cannot start a private server", f"{self._binaries.server.name} ended"
                )
            if time.monotonic() > deadline:
                raise self._failure(
                    "cannot start a private server",
                    f"{self._binaries.server.name} was not ready within {START_PATIENCE_S:.0f} s",
                )

    def _make_accounts(self) -> None:
        """Make the accounts and write the option files that know their passwords."""
        passwords = {user: secrets.token_hex(16) for user in configuration.USERS}
        self._load_password = passwords[configuration.USER_LOAD]
        client, socket = self.directory.client, self.directory.socket
        status = configuration.USER_STATUS
        files = {
            client / "administrator.cnf": configuration.client_options(socket, self.administrator),
            client / "status.cnf": configuration.client_options(socket, status, passwords[status]),
        }
        for user in (configuration.USER_PLAINTEXT, configuration.USER_TLS):
            files[self.option_file(user)] = configuration.sysbench_options(
                self.port, user, passwords[user], tls=user == configuration.USER_TLS
            )
        for path, text in files.items():
            write_private(path, text.encode())
        with self.open_administrator() as session:
            for statement in self._account_statements(passwords):
                session.query(statement)

    def _failure(self, what: str, why: str) -> TlstaxError:
        """An error that carries the end of the server's log: the directory is about to go."""
        tail = self.log_tail()
        return TlstaxError(
            what,
            f"{why}{tail}\n" if tail else f"{why} and left no log",
            "Fix the cause named in the log; `tlstax doctor` shows what else this host lacks",
            ExitCode.TARGET,
        )

    def log_tail(self) -> str:
        """The end of the server's log, as the end of a sentence; '' without one."""
        try:
            lines = self.directory.log.read_text(errors="replace").strip().splitlines()
        except OSError:
            return ""
        tail = "".join(f"\n    {line}" for line in lines[-LOG_TAIL_LINES:])
        return f"; the end of its log:{tail}" if tail else ""


def _listens(path: Path) -> bool:
    """Whether somebody listens there; the file comes a moment before."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
    return True
