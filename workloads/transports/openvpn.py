# SPDX-License-Identifier: GPL-2.0-only
"""OpenVPN over UDP, point to point, with certificates made for it alone; packets in user space.

Options: `cipher` of the data channel as OpenVPN calls it; CBC is with HMAC-SHA1, its default.
"""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.certs.generate import KeyKind, generate, write_private
from tlstax.workloads.endpoint import Endpoint
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.programs import find_program
from tlstax.workloads.servers.server_directory import free_port
from tlstax.workloads.transports.linked import Linked
from tlstax.workloads.transports.model import Route, RouteProcess
from tlstax.workloads.transports.namespaces import interface_bytes, scratch
from tlstax.workloads.transports.network import Link, await_line, measure_round_trip
from tlstax.workloads.transports.processes import version

INNER_CLIENT, INNER_SERVER = "10.214.{}.1", "10.214.{}.2"  # within the tunnel, by link
INTERFACE: Final = "vpn{}"
KEY: Final = KeyKind("rsa", "2048")
READY: Final = b"Initialization Sequence Completed"
AGREED: Final = re.compile(rb"Data Channel: cipher '([\w-]+)'(?:, auth '(\w+)')?")


class OpenVpn(Linked):
    """See above."""

    name = "openvpn"
    programs = (("openvpn", "openvpn"),)

    @contextmanager
    def through(self, link: Link, server: PrivateServer) -> Iterator[Route]:
        """One OpenVPN in each namespace; the server's address is that within the tunnel."""
        directory = scratch(self.resources, "openvpn")
        keys = generate(directory / "certificates", KEY)
        port = free_port()
        client, target = INNER_CLIENT.format(link.subnet), INNER_SERVER.format(link.subnet)
        server_options = (
            f"local {link.server_address}\nport {port}\nifconfig {target} {client}\ntls-server\n"
            f"cert {keys.server}\nkey {keys.server_key}\ndh none\n"
        )
        client_options = (
            f"remote {link.server_address} {port}\nnobind\nifconfig {client} {target}\n"
            f"tls-client\ncert {keys.client}\nkey {keys.client_key}\n"
        )
        ends = {"server": (link.server, server_options), "client": (link.client, client_options)}
        common = self._common(link, keys.ca)
        with (
            self._openvpn(directory / "server", ends["server"][0], common + server_options) as far,
            self._openvpn(directory / "client", ends["client"][0], common + client_options) as near,
        ):
            said = await_line(near, directory / "client.log", READY)
            await_line(far, directory / "server.log", READY)
            inner = measure_round_trip(link.client, target)
            interface = INTERFACE.format(link.subnet)
            yield Route(
                Endpoint(host=target, port=server.port, namespace=link.client),
                (
                    RouteProcess(near.pid, "openvpn client", "tunnel"),
                    RouteProcess(far.pid, "openvpn server", "tunnel"),
                ),
                lambda: interface_bytes(link.client, interface),
                inner.median_ns,
                link.facts | {"round trip in the tunnel": str(inner)} | self._facts(said),
            )

    @property
    def _cipher(self) -> str:
        return self.option("cipher", "AES-256-GCM")

    def _common(self, link: Link, ca: Path) -> str:
        return f"""\
dev {INTERFACE.format(link.subnet)}
dev-type tun
proto udp
ca {ca}
data-ciphers {self._cipher}
cipher {self._cipher}
verb 4
disable-dco
"""

    @contextmanager
    def _openvpn(
        self, path: Path, namespace: str, text: str
    ) -> Iterator["subprocess.Popen[bytes]"]:
        configuration = path.with_suffix(".conf")
        write_private(configuration, text.encode())
        process = self.resources.start(
            [str(find_program("openvpn", "openvpn")), "--config", str(configuration)],
            namespace=namespace,
            log=path.with_suffix(".log"),
        )
        try:
            yield process
        finally:
            self.resources.stop(process)

    def _facts(self, said: bytes) -> dict[str, str]:
        agreed = AGREED.findall(said)
        if not agreed or agreed[-1][0].decode() != self._cipher:
            raise TlstaxError(
                "the OpenVPN tunnel uses another cipher",
                f"it reported {agreed}",
                "Use a version of OpenVPN that has it",
                ExitCode.FAILED,
            )
        cipher, digest = (part.decode() for part in agreed[-1])
        return {
            "cipher": cipher,
            "mac": f"HMAC-{digest}" if digest else "implicit in the cipher",
            "key": str(KEY),
            "openvpn": version(str(find_program("openvpn", "openvpn")), "--version"),
        }
