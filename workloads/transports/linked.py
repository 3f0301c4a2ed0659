# SPDX-License-Identifier: GPL-2.0-only
"""Transports between two network namespaces: the bare link, and what tunnels over it share.

Options of all of them: `rtt_ms`, the round trip of the link; without it the link is not delayed.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import ClassVar

from tlstax.workloads.endpoint import Endpoint
from tlstax.workloads.resources import Resources
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.programs import find_program
from tlstax.workloads.transports.model import Route, Value
from tlstax.workloads.transports.namespaces import server_namespace
from tlstax.workloads.transports.network import Link, check_link, open_link

WAN_RTT_MS = 40.0


class Linked(ABC):
    """A transport whose client is in a namespace of its own, linked to the server's."""

    name: ClassVar[str]
    needs_namespace = True
    programs: ClassVar[tuple[tuple[str, str], ...]] = ()  # that it needs, and their Debian packages

    def __init__(self, resources: Resources, options: Mapping[str, Value]) -> None:
        """Keep the recipe's options; `check` says what is unavailable."""
        self.resources = resources
        self.options = options
        rtt_ms = options.get("rtt_ms")
        self.rtt_ms = float(rtt_ms) if rtt_ms else None

    def check(self) -> None:
        """TlstaxError (HOST) naming the missing program and its package, or what else lacks."""
        check_link(self.rtt_ms)
        for program, package in self.programs:
            find_program(program, package)

    @contextmanager
    def open(self, server: PrivateServer) -> Iterator[Route]:
        """A new client namespace, its link to the server's, and what goes over it."""
        namespace = server_namespace(server)
        with (
            open_link(self.resources, namespace, self.rtt_ms) as link,
            self.through(link, server) as route,
        ):
            yield route

    @abstractmethod
    def through(self, link: Link, server: PrivateServer) -> AbstractContextManager[Route]:
        """What goes over the link."""

    def option(self, key: str, default: str) -> str:
        """One of the recipe's options."""
        return str(self.options.get(key, default))


class Veth(Linked):
    """Nothing but the link: the plain connection that tunnels are compared with."""

    name = "veth"

    @contextmanager
    def through(self, link: Link, server: PrivateServer) -> Iterator[Route]:
        """The server's own port."""
        endpoint = Endpoint(host=link.server_address, port=server.port, namespace=link.client)
        yield Route(
            endpoint,
            carried=link.carried_bytes,
            rtt_ns=link.round_trip.median_ns,
            facts=link.facts,
        )


class Wan(Veth):
    """The same with the round trip of a wide area network, 40 ms unless the recipe says other."""

    name = "wan"

    def __init__(self, resources: Resources, options: Mapping[str, Value]) -> None:
        super().__init__(resources, {"rtt_ms": WAN_RTT_MS} | dict(options))
