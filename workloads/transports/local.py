# SPDX-License-Identifier: GPL-2.0-only
"""Transports without anything in between: TCP over the loopback interface, and the Unix socket."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tlstax.workloads.endpoint import Endpoint
from tlstax.workloads.resources import Resources
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.transports.model import Route, Value

LOOPBACK = "127.0.0.1"


class Tcp:
    """127.0.0.1, in the network namespace of the server."""

    name = "tcp"
    needs_namespace = False

    def __init__(self, resources: Resources, options: Mapping[str, Value]) -> None:
        """It needs nothing."""

    def check(self) -> None:
        """Every host can do it."""

    @contextmanager
    def open(self, server: PrivateServer) -> Iterator[Route]:
        """It is there already."""
        namespace = server.request.namespace
        yield Route(Endpoint(host=LOOPBACK, port=server.port, namespace=namespace))


class UnixSocket:
    """The server's socket in the file system: no network, and no TCP/IP."""

    name = "unix"
    needs_namespace = False

    def __init__(self, resources: Resources, options: Mapping[str, Value]) -> None:
        """It needs nothing."""

    def check(self) -> None:
        """Every host can do it."""

    @contextmanager
    def open(self, server: PrivateServer) -> Iterator[Route]:
        """It is there already."""
        yield Route(Endpoint(socket=server.directory.socket))
