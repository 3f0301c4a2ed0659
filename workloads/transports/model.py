# SPDX-License-Identifier: GPL-2.0-only
"""What a transport offers: a route, and the processes on it."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from tlstax.workloads.endpoint import Endpoint
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
