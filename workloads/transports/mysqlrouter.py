# SPDX-License-Identifier: GPL-2.0-only
"""MySQL Router as a pooling proxy on the client's host, with TLS to the server.

It is the one pooling proxy that a registry has: Debian sid's, unpacked to a root directory of its
own on the first use (32 packages) and started in there by chroot. It pools for MySQL 9.

It shows clients the server's certificate. What they ask for ends at the router: TLS is between
client and router in the TLS arm, and between router and server always, on connections that the
router keeps and gives to the next client.

Option `pool`: without it (false) the router opens a connection to the server for each client.
"""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.certs.generate import write_private
from tlstax.workloads.endpoint import Endpoint
from tlstax.workloads.servers import installing
from tlstax.workloads.servers.catalogue import ServerKind, Source, Start
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.server_directory import free_port
from tlstax.workloads.transports.linked import Linked
from tlstax.workloads.transports.model import Route, RouteProcess
from tlstax.workloads.transports.network import Link
from tlstax.workloads.transports.processes import await_listening

LOOPBACK: Final = "127.0.0.1"
SERVER_FILES: Final = ("ca.pem", "server-cert.pem", "server-key.pem")
ROUTER: Final = ServerKind(
    name="mysqlrouter",
    server="MySQL Router",
    tls_library="OpenSSL 3, shared",
    family="mysql",
    source=Source(client="debian-root", suite="sid", package="mysql-router"),
    start=Start(program="usr/bin/mysqlrouter", data=""),
)
KEPT_CONNECTIONS: Final = 64
OLDEST_MAJOR: Final = 9  # 8.0.15 was tried: clients then receive a malformed packet


class MysqlRouter(Linked):
    """See above."""

    name = "mysqlrouter"
    programs = (("chroot", "coreutils"), ("apt-get", "apt"))

    @contextmanager
    def through(self, link: Link, server: PrivateServer) -> Iterator[Route]:
        """The router in the client's namespace, listening on its loopback interface."""
        _require_known(server)
        program = installing.install(ROUTER)
        port = free_port()
        with (
            self._directory() as directory,
            self._router(program, directory, link, server, port) as router,
        ):
            yield Route(
                Endpoint(host=LOOPBACK, port=port, namespace=link.client),
                (RouteProcess(router.pid, "mysqlrouter", "proxy"),),
                link.carried_bytes,
                link.round_trip.median_ns,
                link.facts
                | {
                    "proxy": f"MySQL Router {installing.installed_version(ROUTER)}",
                    "cipher": "TLS to the server, by both sides' preference",
                    "pool": f"up to {KEPT_CONNECTIONS} connections kept" if self._pools else "none",
                },
                ends_tls=True,
                pools_connections=self._pools,
            )

    @property
    def _pools(self) -> bool:
        return bool(self.options.get("pool", True))

    @contextmanager
    def _directory(self) -> Iterator[Path]:
        """A directory that the router sees: below its root."""
        parent = installing.place_of(ROUTER) / "tmp"
        directory = Path(tempfile.mkdtemp(prefix=f"tlstax-{self.resources.tag}-", dir=parent))
        self.resources.register("directory", str(directory))
        try:
            yield directory
        finally:
            self.resources.release("directory", str(directory))

    @contextmanager
    def _router(
        self, program: Path, directory: Path, link: Link, server: PrivateServer, port: int
    ) -> Iterator["subprocess.Popen[bytes]"]:
        root = installing.place_of(ROUTER)
        inside = Path("/") / directory.relative_to(root)
        for name in SERVER_FILES:  # clients trust what the server's CA signed, and nothing else
            write_private(directory / name, (server.directory.certificates / name).read_bytes())
        configuration = directory / "router.conf"
        text = self._configuration(inside, link, server.port, port)
        write_private(configuration, text.encode())
        log = self.resources.directory / f"mysqlrouter-{port}.log"
        command = ["chroot", str(root), str(Path("/") / program.relative_to(root))]
        process = self.resources.start(
            [*command, "-c", str(inside / "router.conf")], namespace=link.client, log=log
        )
        try:
            await_listening(process, port, log)
            yield process
        finally:
            self.resources.stop(process)

    def _configuration(self, inside: Path, link: Link, target: int, port: int) -> str:
        return f"""\
[DEFAULT]
logging_folder =
runtime_folder = {inside}
data_folder = {inside}
max_idle_server_connections = {KEPT_CONNECTIONS if self._pools else 0}
[logger]
level = WARNING
[routing:pool]
bind_address = {LOOPBACK}
bind_port = {port}
destinations = {link.server_address}:{target}
routing_strategy = first-available
protocol = classic
client_ssl_mode = PREFERRED
client_ssl_cert = {inside}/server-cert.pem
client_ssl_key = {inside}/server-key.pem
server_ssl_mode = REQUIRED
server_ssl_verify = VERIFY_CA
server_ssl_ca = {inside}/ca.pem
connection_sharing = {int(self._pools)}
connection_sharing_delay = 0
"""


def _require_known(server: PrivateServer) -> None:
    """TlstaxError (TARGET) unless the router can keep connections to the server."""
    with server.open_status() as session:
        ((version,),) = session.query("SELECT VERSION()")
    if "MariaDB" in version or int(version.partition(".")[0]) < OLDEST_MAJOR:
        raise TlstaxError(
            f"MySQL Router cannot pool connections to server version {version}",
            "it works only with servers of its own version",
            "Choose mysql97, or the transport proxysql",
            ExitCode.TARGET,
        )
