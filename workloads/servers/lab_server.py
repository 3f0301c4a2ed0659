# SPDX-License-Identifier: GPL-2.0-only
"""A private server that is not the host's own: of the catalogue, or any program the user names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tlstax import ExitCode, TlstaxError
from tlstax.workloads.servers import any_server, configuration, installing, other_openssl
from tlstax.workloads.servers.at_rest import AtRest, mariadb_at_rest, mysql_at_rest
from tlstax.workloads.servers.catalogue import ServerKind, Start
from tlstax.workloads.servers.debian_root import Say
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.programs import Binaries, find_program
from tlstax.workloads.servers.request import ServerRequest
from tlstax.workloads.servers.storage import Storage
from tlstax.workloads.tls import TlsChoice

# yaSSL knows TLS 1.0 and 1.1, and of the suites that OpenSSL 3 still has these two; offered more,
# it takes one with a key of 512 bits, which OpenSSL refuses.
YASSL_CLIENTS = "MinProtocol = TLSv1\nCipherString = AES256-SHA:AES128-SHA:@SECLEVEL=0\n"
# Neither yaSSL nor wolfSSL answers with the extension for secure renegotiation.
UNPATCHED_SERVERS = "Options = UnsafeLegacyServerConnect\n"


@dataclass(frozen=True)
class Program:
    """A server program that is on this host, and how it is started."""

    path: Path
    start: Start
    home: Path  # what it was unpacked to, whose files it must be able to read
    root: Path | None = None  # started in it by chroot, and `start` names files in there
    family: str = "mysql"  # mysql | mariadb
    base_options: tuple[str, ...] = ()  # where it finds what it was not built to find

    @property
    def data_maker(self) -> Path:
        """The program that makes its data directory."""
        return (
            self.path if self.start.data in ("copy", "initialize") else self.home / self.start.data
        )


def open_server(
    kind: ServerKind, request: ServerRequest | None = None, say: Say = lambda line: None
) -> PrivateServer:
    """A server of the catalogue, not started yet; it is installed if it is not."""
    path = installing.install(kind, say)
    if kind.source.client == "apt":
        return PrivateServer(request)
    home = installing.place_of(kind)
    if kind.source.client == "debian-root":
        return LabServer(Program(path, kind.start, home, home, kind.family), request)
    base = (f"basedir = {home}", f"lc_messages_dir = {home}/share")
    return LabServer(Program(path, kind.start, home, None, kind.family, base), request)


def open_program(path: Path, request: ServerRequest | None = None) -> PrivateServer:
    """Any server program of this host, not started yet; TlstaxError says what it is not."""
    found = any_server.examine(path)
    home = found.home
    base: tuple[str, ...] = (f"basedir = {home}",)
    if found.messages:
        base += (f"lc_messages_dir = {found.messages}",)
    program = Program(found.path, found.start, home, None, found.family, base)
    return LabServer(program, request)


def open_private(request: ServerRequest, program: Path | None = None) -> PrivateServer:
    """The host's own MariaDB, or the given server program, not started yet."""
    return PrivateServer(request) if program is None else open_program(program, request)


class LabServer(PrivateServer):
    """A server from a directory of its own; a context manager whose end removes what it made."""

    administrator = "root"

    def __init__(self, program: Program, request: ServerRequest | None = None) -> None:
        client = find_program("mariadb", "mariadb-client-core")
        super().__init__(request, Binaries(program.path, program.data_maker, client))
        self._program = program
        self.traditional_keys = program.start.yassl
        self.parent = program.root / "tmp" if program.root else None
        if program.start.yassl and not self.request.tls.is_default:
            raise TlstaxError(
                f"cannot ask {program.path} for a TLS version, cipher or group",
                "it is built with yaSSL, which has TLS 1.0 and 1.1 with AES256-SHA for clients of"
                " today, and nothing to choose",
                "Leave out [tls], or choose another server",
                ExitCode.USAGE,
            )
        if self._user.uid is not None:
            installing.require_readable(program.home, self._user.name)

    @property
    def client_environment(self) -> Mapping[str, str]:
        """What clients add to their environment to be understood by the server."""
        return {"OPENSSL_CONF": str(self.directory.client / "openssl.cnf")}

    def _client_openssl(self, choice: TlsChoice) -> str:
        # The last section of that file is the one that lines are added to.
        text = choice.openssl_configuration() + UNPATCHED_SERVERS
        return text + (YASSL_CLIENTS if self._program.start.yassl else "")

    def _server_options(self) -> str:
        settings = configuration.ServerSettings(port=self.port)
        start = self._program.start
        further = [*self._program.base_options, *start.options, *self._further_options()]
        return configuration.common_options(settings, self._seen(self.directory.server), further)

    def _make_at_rest(self, storage: Storage) -> AtRest:
        seen, program = self._seen(self.directory.server), self._program
        if program.family == "mariadb":
            return mariadb_at_rest(storage, seen, program.home)
        return mysql_at_rest(storage, seen, program.home, self._seen(program.path))

    def _server_environment(self) -> dict[str, str]:
        environment = self._openssl_environment(self._seen(self.directory.server / "openssl.cnf"))
        path = self._program.start.library_path
        if path:
            environment["LD_LIBRARY_PATH"] = str(self._program.home / path)
        if self.request.openssl:
            environment["LD_LIBRARY_PATH"] = str(self._seen(self._own_openssl))
        return environment

    @property
    def _own_openssl(self) -> Path:
        return self.directory.root / "openssl"

    def _prepare(self) -> None:
        super()._prepare()
        if self.request.openssl:
            other_openssl.copy_to(self._own_openssl, self.request.openssl)

    def _specification(self) -> dict[str, object]:
        root = self._program.root
        return super()._specification() | {"root": str(root) if root else None}

    def _steps(self) -> list[list[str]]:
        start = self._program.start
        options = f"--defaults-file={self._seen(self.directory.server)}/my.cnf"
        program = str(self._seen(self._program.path))
        if self._at_rest and self._at_rest.program:
            program = str(self._seen(self.directory.server / self._at_rest.program))
        if start.data == "copy":
            make = ["cp", "-R", str(self._program.home / start.data_template), "data"]
        elif start.data == "initialize":
            make = [program, options, "--initialize-insecure"]
        else:
            make = [str(self._seen(self._program.data_maker)), options, *self._script_options()]
        serve = f"--defaults-file={self._seen(self.directory.server)}/{self._serve_file}"
        return [make, [program, serve]]

    def _script_options(self) -> Sequence[str]:
        """What mysql_install_db and mariadb-install-db are told."""
        home = self._seen(self._program.home)
        options = ["--auth-root-authentication-method=normal", "--skip-name-resolve", "--force"]
        return options if self._program.root else [f"--basedir={home}", *options]

    def _seen(self, path: Path) -> Path:
        """A path as the server sees it."""
        root = self._program.root
        return Path("/") / path.relative_to(root) if root else path

    def _account_statements(self, passwords: Mapping[str, str]) -> list[str]:
        statements = configuration.account_statements(passwords)
        if not self._program.start.grant_requires:
            return statements
        plain = [statement.removesuffix(" REQUIRE SSL") for statement in statements]
        user = configuration.USER_TLS
        return [*plain, f"GRANT USAGE ON *.* TO {user}@'127.0.0.1' REQUIRE SSL"]
