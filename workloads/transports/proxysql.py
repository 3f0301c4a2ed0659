# SPDX-License-Identifier: GPL-2.0-only
"""The user's own ProxySQL as a pooling proxy on the client's host, with TLS to the server.

It is in no package registry. Its program is that of the recipe (`program`), of `tlstax lab run
--proxysql PATH`, of TLSTAX_PROXYSQL in the environment, or `proxysql` on the PATH, in this order.

Options: `program`; `socket`, whether clients connect through a Unix socket instead of loopback.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.certs.generate import write_private
from tlstax.workloads.endpoint import Endpoint
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.programs import find_program
from tlstax.workloads.servers.server_directory import free_port
from tlstax.workloads.transports.linked import Linked
from tlstax.workloads.transports.model import Route, RouteProcess
from tlstax.workloads.transports.namespaces import scratch
from tlstax.workloads.transports.network import Link
from tlstax.workloads.transports.processes import await_listening, version

VARIABLE: Final = "TLSTAX_PROXYSQL"
LOOPBACK: Final = "127.0.0.1"
KEPT_CONNECTIONS: Final = 64
THREADS: Final = 2


class ProxySql(Linked):
    """See above."""

    name = "proxysql"

    def check(self) -> None:
        """Also that the program is one."""
        super().check()
        self._program()

    @contextmanager
    def through(self, link: Link, server: PrivateServer) -> Iterator[Route]:
        """ProxySQL in the client's namespace."""
        program = self._program()
        directory = scratch(self.resources, "proxysql")
        port = free_port()
        socket = directory / "clients.sock" if self.options.get("socket", False) else None
        self._furnish(directory, link, server, port, socket)
        log = directory / "proxysql.log"
        process = self.resources.start(
            [program, "-f", "-c", str(directory / "proxysql.cnf"), "-D", str(directory)],
            namespace=link.client,
            log=log,
        )
        try:
            await_listening(process, port, log)
            if socket:
                endpoint = Endpoint(socket=socket, namespace=link.client)
            else:
                endpoint = Endpoint(host=LOOPBACK, port=port, namespace=link.client)
            yield Route(
                endpoint,
                (RouteProcess(process.pid, "proxysql", "proxy"),),
                link.carried_bytes,
                link.round_trip.median_ns,
                link.facts
                | {
                    "proxy": version(program, "--version"),
                    "cipher": "TLS to the server, by both sides' preference",
                    "pool": f"up to {KEPT_CONNECTIONS} connections kept",
                },
                ends_tls=True,
                pools_connections=True,
            )
        finally:
            self.resources.stop(process)

    def _program(self) -> str:
        """Its path; TlstaxError (HOST) if there is none."""
        given = str(self.options.get("program", "")) or os.environ.get(VARIABLE, "")
        if not given:
            try:
                return str(find_program("proxysql", "proxysql"))
            except TlstaxError as error:
                raise _missing("it is not on the PATH, and Debian has no package of it") from error
        if not os.access(given, os.X_OK) or not Path(given).is_file():
            raise _missing(f"{given} is no program")
        return str(Path(given).resolve())

    def _furnish(
        self, directory: Path, link: Link, server: PrivateServer, port: int, socket: Path | None
    ) -> None:
        """Its configuration, and the server's certificate: its clients trust no other CA."""
        files = server.directory.certificates
        for name, file in (("ca", "ca"), ("cert", "server-cert"), ("key", "server-key")):
            content = (files / f"{file}.pem").read_bytes()
            write_private(directory / f"proxysql-{name}.pem", content)
        account = server.account()
        listening = f"{LOOPBACK}:{port}" + (f";{socket}" if socket else "")
        admin = f"admin:{secrets.token_hex(16)}"
        write_private(
            directory / "proxysql.cnf",
            f"""\
datadir="{directory}"
admin_variables={{ admin_credentials="{admin}" mysql_ifaces="{directory}/admin.sock" }}
mysql_variables={{
  threads={THREADS} interfaces="{listening}" monitor_enabled=false have_ssl=true
  ssl_p2s_ca="{server.directory.certificates}/ca.pem" default_schema="{account.database}"
  server_version="8.0.11"
}}
mysql_servers=( {{
  address="{link.server_address}" port={server.port} hostgroup=0
  max_connections={KEPT_CONNECTIONS} use_ssl=1
}} )
mysql_users=( {{
  username="{account.user}" password="{account.password}" default_hostgroup=0 active=1
}} )
""".encode(),
        )


def _missing(why: str) -> TlstaxError:
    return TlstaxError(
        "cannot find ProxySQL",
        why,
        "Install ProxySQL and give its path: --proxysql PATH; or use the transport mysqlrouter",
        ExitCode.HOST,
    )
