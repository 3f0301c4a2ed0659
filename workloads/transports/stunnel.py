# SPDX-License-Identifier: GPL-2.0-only
"""stunnel on both ends: TLS 1.3 around the plain protocol, with certificates made for it alone.

Its client resumes its TLS sessions, which is what stunnel does unless it is told not to.

Options: `cipher`, a cipher suite of TLS 1.3 as OpenSSL calls it.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tlstax.certs.generate import KeyKind, generate, write_private
from tlstax.workloads.endpoint import Endpoint
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.programs import find_program
from tlstax.workloads.servers.server_directory import free_port
from tlstax.workloads.transports.linked import Linked
from tlstax.workloads.transports.model import Route, RouteProcess
from tlstax.workloads.transports.namespaces import scratch
from tlstax.workloads.transports.network import Link
from tlstax.workloads.transports.processes import await_listening, version, written_bytes

LOOPBACK: Final = "127.0.0.1"
KEY: Final = KeyKind("rsa", "2048")
COMMON: Final = """\
foreground = yes
pid =
syslog = no
debug = warning
socket = l:TCP_NODELAY=1
socket = r:TCP_NODELAY=1
[server]
"""


class Stunnel(Linked):
    """See above."""

    name = "stunnel"
    programs = (("stunnel", "stunnel4"),)

    @contextmanager
    def through(self, link: Link, server: PrivateServer) -> Iterator[Route]:
        """One stunnel in each namespace."""
        directory = scratch(self.resources, "stunnel")
        keys = generate(directory / "certificates", KEY)
        cipher = self.option("cipher", "TLS_AES_256_GCM_SHA384")
        outer, local = free_port(), free_port()
        choice = f"sslVersion = TLSv1.3\nciphersuites = {cipher}\n"
        server_options = (
            f"accept = {link.server_address}:{outer}\nconnect = {LOOPBACK}:{server.port}\n"
            f"cert = {keys.server}\nkey = {keys.server_key}\n{choice}"
        )
        client_options = (
            f"client = yes\naccept = {LOOPBACK}:{local}\n"
            f"connect = {link.server_address}:{outer}\n"
            f"CAfile = {keys.ca}\nverifyChain = yes\n{choice}"
        )
        with (
            self._stunnel(directory / "server", link.server, server_options, outer) as far,
            self._stunnel(directory / "client", link.client, client_options, local) as near,
        ):
            yield Route(
                Endpoint(host=LOOPBACK, port=local, namespace=link.client),
                (
                    RouteProcess(near.pid, "stunnel client", "tunnel"),
                    RouteProcess(far.pid, "stunnel server", "tunnel"),
                ),
                written_bytes([near.pid]),
                link.round_trip.median_ns,
                link.facts
                | {
                    "cipher": cipher,
                    "key": str(KEY),
                    "stunnel": version(str(find_program("stunnel", "stunnel4")), "-version"),
                },
            )

    @contextmanager
    def _stunnel(
        self, path: Path, namespace: str, service: str, port: int
    ) -> Iterator["subprocess.Popen[bytes]"]:
        configuration, log = path.with_suffix(".conf"), path.with_suffix(".log")
        write_private(configuration, (COMMON + service).encode())
        program = str(find_program("stunnel", "stunnel4"))
        process = self.resources.start([program, str(configuration)], namespace=namespace, log=log)
        try:
            await_listening(process, port, log)
            yield process
        finally:
            self.resources.stop(process)
