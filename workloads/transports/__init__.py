# SPDX-License-Identifier: GPL-2.0-only
"""How the bytes of a client get to the server: the interface, and which transports there are.

A transport is made once for each server of an experiment, opened before its first run and closed
after the last; drivers connect to `Route.endpoint`. It makes whatever it needs by way of
`Resources`, so that a killed experiment leaves nothing that `tlstax lab clean` does not find.

To add a transport, write a module in this folder and one line in TRANSPORTS.
"""

import importlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, cast

from tlstax import ExitCode, TlstaxError
from tlstax.workloads.endpoint import Endpoint
from tlstax.workloads.resources import Resources
from tlstax.workloads.servers.mariadb import PrivateServer

Value = str | int | float | bool


@dataclass(frozen=True)
class RouteProcess:
    """A process between the client and the server, whose CPU time and waits are reported, too."""

    pid: int
    name: str  # 'sshd', 'openvpn'
    role: Literal["tunnel", "proxy"]


@dataclass(frozen=True)
class Route:
    """A transport that is open."""

    endpoint: Endpoint
    processes: tuple[RouteProcess, ...] = ()
    # Bytes that the transport itself counted so far, both ways: the proof that it was used. By the
    # tunnel process, its interface, or, where nothing counts (Unix socket), None.
    carried: Callable[[], int] | None = None
    rtt_ns: int | None = None  # measured, where that means anything
    facts: Mapping[str, str] = field(default_factory=dict)  # cipher and versions, for the report
    # A transport that ends TLS itself (a proxy), or pools connections: what the server then sees is
    # not what the driver did, and is not held against it.
    ends_tls: bool = False
    pools_connections: bool = False


class Transport(Protocol):
    """One way from a client to a server."""

    name: str
    # True: the server must run in a network namespace of its own, listening on 0.0.0.0 there;
    # `server.request.namespace` then names it. A client in it has the server at 127.0.0.1.
    needs_namespace: bool

    def check(self) -> None:
        """TlstaxError (HOST) when this host cannot do it: what is missing, what to install."""

    def open(self, server: PrivateServer) -> AbstractContextManager[Route]:
        """Make the way to a running server."""


# Constructors take (resources, options): `options` is the recipe's table of the transport.
Factory = Callable[[Resources, Mapping[str, Value]], Transport]


@dataclass(frozen=True)
class TransportKind:
    """Where a transport is written, and what a recipe may say about it."""

    module: str
    factory: str
    options: Mapping[str, type] = field(default_factory=dict)  # key -> type, all may be left out
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # key -> allowed values


_PACKAGE: Final = "tlstax.workloads.transports"
_RTT: Final = {"rtt_ms": float}  # of the link; left out, or 0: not delayed
TRANSPORTS: Mapping[str, TransportKind] = {
    "tcp": TransportKind(f"{_PACKAGE}.local", "Tcp"),
    "unix": TransportKind(f"{_PACKAGE}.local", "UnixSocket"),
    "veth": TransportKind(f"{_PACKAGE}.linked", "Veth"),
    "wan": TransportKind(f"{_PACKAGE}.linked", "Wan", _RTT),
    "ssh": TransportKind(
        f"{_PACKAGE}.ssh",
        "Ssh",
        {"cipher": str, "session": bool, **_RTT},
        {
            "cipher": (
                "aes256-cbc",
                "aes256-ctr",
                "aes256-gcm@openssh.com",
                "chacha20-poly1305@openssh.com",
            )
        },
    ),
    "stunnel": TransportKind(
        f"{_PACKAGE}.stunnel",
        "Stunnel",
        {"cipher": str, **_RTT},
        {
            "cipher": (
                "TLS_AES_256_GCM_SHA384",
                "TLS_AES_128_GCM_SHA256",
                "TLS_CHACHA20_POLY1305_SHA256",
            )
        },
    ),
    "openvpn": TransportKind(
        f"{_PACKAGE}.openvpn",
        "OpenVpn",
        {"cipher": str, **_RTT},
        {"cipher": ("AES-256-CBC", "AES-256-GCM", "AES-128-GCM", "CHACHA20-POLY1305")},
    ),
    "wireguard": TransportKind(f"{_PACKAGE}.wireguard", "WireGuard", _RTT),
    "mysqlrouter": TransportKind(f"{_PACKAGE}.mysqlrouter", "MysqlRouter", _RTT),
    "proxysql": TransportKind(
        f"{_PACKAGE}.proxysql", "ProxySql", {"program": str, "socket": bool, **_RTT}
    ),
}


def make_transport(
    kind: str, resources: Resources, options: Mapping[str, Value] | None = None
) -> Transport:
    """A transport by its kind; TlstaxError (USAGE) that lists them when there is no such."""
    if kind not in TRANSPORTS:
        raise TlstaxError(
            f"there is no transport called '{kind}'",
            f"the known ones are {', '.join(TRANSPORTS)}",
            "Choose one of them",
            ExitCode.USAGE,
        )
    found = TRANSPORTS[kind]
    factory = getattr(importlib.import_module(found.module), found.factory)
    return cast(Factory, factory)(resources, options or {})
