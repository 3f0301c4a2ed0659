# SPDX-License-Identifier: GPL-2.0-only
"""WireGuard in user space (wireguard-go), one in each namespace, with keys made for it alone."""

import base64
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tlstax import ExitCode, TlstaxError
from tlstax.certs.generate import write_private
from tlstax.workloads.endpoint import Endpoint
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.programs import find_program
from tlstax.workloads.servers.server_directory import free_port
from tlstax.workloads.transports.linked import Linked
from tlstax.workloads.transports.model import Route, RouteProcess
from tlstax.workloads.transports.namespaces import interface_bytes, ip, scratch
from tlstax.workloads.transports.network import Link, await_line, measure_round_trip
from tlstax.workloads.transports.processes import version

INNER_CLIENT, INNER_SERVER = "10.215.{}.1", "10.215.{}.2"
SOCKETS: Final = Path("/run/wireguard")  # control sockets of wireguard-go
READY: Final = b"UAPI listener started"
INTERFACE_BYTES_MAX: Final = 15


@dataclass(frozen=True)
class End:
    """One of the two."""

    namespace: str
    interface: str  # its control socket has this name for all namespaces
    own: str  # addresses within the tunnel
    other: str
    key: X25519PrivateKey
    listens_on: int | None = None
    peer_at: str | None = None


class WireGuard(Linked):
    """See above."""

    name = "wireguard"
    programs = (("wireguard-go", "wireguard-go"), ("wg", "wireguard-tools"))

    @contextmanager
    def through(self, link: Link, server: PrivateServer) -> Iterator[Route]:
        """The server's address is that within the tunnel."""
        directory = scratch(self.resources, "wireguard")
        port = free_port()
        client, target = INNER_CLIENT.format(link.subnet), INNER_SERVER.format(link.subnet)
        stem = f"w{self.resources.tag}{link.subnet}"[: INTERFACE_BYTES_MAX - 1]
        keys = X25519PrivateKey.generate(), X25519PrivateKey.generate()
        near = End(
            link.client, f"{stem}c", client, target, keys[0], None, f"{link.server_address}:{port}"
        )
        far = End(link.server, f"{stem}s", target, client, keys[1], port)
        with ExitStack() as stack:
            processes = [
                stack.enter_context(self._wireguard(directory, end, peer))
                for end, peer in ((far, near), (near, far))
            ]
            inner = measure_round_trip(link.client, target)
            yield Route(
                Endpoint(host=target, port=server.port, namespace=link.client),
                tuple(
                    RouteProcess(process.pid, f"wireguard {side}", "tunnel")
                    for process, side in zip(processes[::-1], ("client", "server"), strict=True)
                ),
                lambda: interface_bytes(near.namespace, near.interface),
                inner.median_ns,
                link.facts
                | {
                    "round trip in the tunnel": str(inner),
                    "cipher": "ChaCha20-Poly1305",
                    "wireguard": version(
                        str(find_program("wireguard-go", "wireguard-go")), "--version"
                    ),
                },
            )

    @contextmanager
    def _wireguard(
        self, directory: Path, end: End, peer: End
    ) -> Iterator["subprocess.Popen[bytes]"]:
        """Start one, set its keys, and give its interface an address."""
        log = directory / f"{end.interface}.log"
        program = str(find_program("wireguard-go", "wireguard-go"))
        control = SOCKETS / f"{end.interface}.sock"
        self.resources.register("directory", str(control))
        process = self.resources.start(
            [program, "--foreground", end.interface],
            namespace=end.namespace,
            log=log,
            environment={"LOG_LEVEL": "verbose"},
        )
        try:
            await_line(process, log, READY)
            self._tell(directory, end, peer)
            address = ("address", "add", end.own, "peer", f"{end.other}/32")
            ip(*address, "dev", end.interface, namespace=end.namespace)
            ip("link", "set", end.interface, "up", namespace=end.namespace)
            yield process
        finally:
            self.resources.stop(process)
            self.resources.release("directory", str(control))

    def _tell(self, directory: Path, end: End, peer: End) -> None:
        """Its own key and its peer, by wg(8)."""
        key = directory / f"{end.interface}.key"
        write_private(key, _text(end.key.private_bytes_raw()))
        command = [str(find_program("wg", "wireguard-tools")), "set", end.interface]
        command += ["private-key", str(key)]
        if end.listens_on is not None:
            command += ["listen-port", str(end.listens_on)]
        command += ["peer", _text(peer.key.public_key().public_bytes_raw()).decode()]
        command += ["allowed-ips", f"{end.other}/32"]
        if end.peer_at is not None:
            command += ["endpoint", end.peer_at]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise TlstaxError(
                "cannot set up WireGuard",
                f"wg failed: {done.stderr.strip()}",
                "Check that the versions of wireguard-go and wireguard-tools match",
                ExitCode.HOST,
            )


def _text(key: bytes) -> bytes:
    return base64.b64encode(key)
