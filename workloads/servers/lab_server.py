# SPDX-License-Identifier: GPL-2.0-only
"""A private server of any kind of the catalogue: like PrivateServer, from its own directory."""

from collections.abc import Mapping

from tlstax.workloads.servers import configuration, installing
from tlstax.workloads.servers.catalogue import ServerKind
from tlstax.workloads.servers.mariadb import (
    Binaries,
    PrivateServer,
    ServerRequest,
    find_program,
)

# yaSSL knows TLS 1.0 and 1.1, and of the suites that OpenSSL 3 still has these two; offered more,
# it takes one with a key of 512 bits, which OpenSSL refuses.
YASSL_CLIENTS = "MinProtocol = TLSv1\nCipherString = AES256-SHA:AES128-SHA:@SECLEVEL=0\n"
# Neither yaSSL nor wolfSSL answers with the extension for secure renegotiation.
OPENSSL_CONFIGURATION = """\
openssl_conf = tlstax
[tlstax]
ssl_conf = ssl
[ssl]
system_default = choice
[choice]
Options = UnsafeLegacyServerConnect
"""


def open_server(kind: ServerKind, request: ServerRequest | None = None) -> PrivateServer:
    """A server of the catalogue, not started yet; it is installed if it is not."""
    program = installing.install(kind)
    if kind.source.client == "apt":
        return PrivateServer(request)
    home = installing.place_of(kind)
    data = kind.start.data
    maker = program if data in ("copy", "initialize") else home / data
    client = find_program("mariadb", "mariadb-client-core")
    return LabServer(kind, request, Binaries(program, maker, client))


class LabServer(PrivateServer):
    """A server that was unpacked somewhere; a context manager whose end removes what it made."""

    administrator = "root"

    def __init__(self, kind: ServerKind, request: ServerRequest | None, binaries: Binaries) -> None:
        super().__init__(request, binaries)
        self.kind = kind
        self.traditional_keys = kind.start.yassl
        self._home = installing.place_of(kind)
        if self._user.uid is not None:
            installing.require_readable(self._home, self._user.name)

    @property
    def client_environment(self) -> Mapping[str, str]:
        """What clients add to their environment to be understood by the server."""
        return {"OPENSSL_CONF": str(self.places.client / "openssl.cnf")}

    def _client_openssl(self) -> str:
        return OPENSSL_CONFIGURATION + (YASSL_CLIENTS if self.kind.start.yassl else "")

    def _server_options(self) -> str:
        settings = configuration.ServerSettings(port=self.port)
        return configuration.common_options(
            settings, self.places.server, self._home, self.kind.start.options
        )

    def _server_environment(self) -> dict[str, str]:
        path = self.kind.start.library_path
        return {"LD_LIBRARY_PATH": str(self._home / path)} if path else {}

    def _steps(self) -> list[list[str]]:
        start, options = self.kind.start, f"--defaults-file={self.places.server}/my.cnf"
        if start.data == "copy":
            make = ["cp", "-R", str(self._home / start.data_template), "data"]
        elif start.data == "initialize":
            make = [str(self._binaries.server), options, "--initialize-insecure"]
        else:
            make = [str(self._binaries.install), options, f"--basedir={self._home}"]
            make += ["--auth-root-authentication-method=normal", "--skip-name-resolve", "--force"]
        return [make, [str(self._binaries.server), options]]

    def _account_statements(self, passwords: Mapping[str, str]) -> list[str]:
        statements = configuration.account_statements(passwords)
        if not self.kind.start.grant_requires:
            return statements
        plain = [statement.removesuffix(" REQUIRE SSL") for statement in statements]
        user = configuration.USER_TLS
        return [*plain, f"GRANT USAGE ON *.* TO {user}@'127.0.0.1' REQUIRE SSL"]
