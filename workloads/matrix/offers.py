# SPDX-License-Identifier: GPL-2.0-only
"""Whether clients offer the key shares that a TLS arm of a recipe is about."""

from dataclasses import replace

from tlstax import TlstaxError
from tlstax.workloads import client_hello
from tlstax.workloads.client_hello import ClientHello
from tlstax.workloads.drivers.model import Driver, DriveRequest, Tick
from tlstax.workloads.endpoint import Endpoint

HOST = "127.0.0.1"


def see_offer(driver: Driver, request: DriveRequest) -> ClientHello | None:
    """The ClientHello of a driver's first connection, to a listener instead of `request`'s end."""

    def connect(port: int) -> None:
        endpoint = Endpoint(host=HOST, port=port)
        once = replace(request, endpoint=endpoint, operation_count=1, threads_count=1)
        try:
            driver.run(once, Tick())
        except TlstaxError:
            return  # the listener hangs up after the ClientHello, so no run succeeds

    return client_hello.see(connect)


def objection(hello: ClientHello | None, wanted: tuple[str, ...]) -> str | None:
    """Why a client is not the one that the arm names; None if it is."""
    if hello is None:
        return f"its client sent no ClientHello, and {' '.join(wanted)} are asked for"
    if hello.key_shares == wanted:
        return None
    return f"its client's ClientHello has {hello}, and {' '.join(wanted)} are asked for"
