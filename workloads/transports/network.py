# SPDX-License-Identifier: GPL-2.0-only
"""Two hosts on one: network namespaces for client and server, and a link.

The link is a pair of virtual Ethernet interfaces; for a longer round trip it is delayed by
netem where the kernel has it, else by a program of ours (`delayline.c`), through which the packets
go from TUN interface to TUN interface. Everything lies within the two namespaces and goes with
them; the client's is written down in `Resources` before it is made.
"""

import json
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.workloads.resources import Resources
from tlstax.workloads.servers.programs import find_program
from tlstax.workloads.transports import round_trip
from tlstax.workloads.transports.namespaces import (
    interface_bytes,
    ip,
    ip_json,
    new_namespace,
    require_root,
    scratch,
)

NETWORK: Final = "10.213"  # links are its /30s; nothing outside of the namespaces sees them
SUBNETS_COUNT: Final = 256
CLIENT_INTERFACE, SERVER_INTERFACE = "client", "server"
ECHOES_COUNT: Final = 21
ECHO_PATIENCE_S: Final = 2.0
READY_PATIENCE_S: Final = 30.0
RTT_MIN_MS, RTT_MAX_MS = 0.2, 2000.0
NETEM_PACKETS: Final = 100_000  # that may be on the way
QUEUE_PACKETS: Final = 10_000  # that may wait for the delay line to take them
NS_PER_MS: Final = 1_000_000
COUNTERS: Final = struct.Struct("=7Q")  # struct counters of delayline.c


@dataclass(frozen=True)
class RoundTrip:
    """Measured with real packets."""

    median_ns: int
    low_ns: int
    high_ns: int
    count: int

    def __str__(self) -> str:
        low, middle, high = (
            f"{ns / NS_PER_MS:.3g}" for ns in (self.low_ns, self.median_ns, self.high_ns)
        )
        return f"{middle} ms ({low}..{high} in {self.count} echoes)"


@dataclass(frozen=True)
class Link:
    """A client's namespace and its way to the server's."""

    client: str  # namespaces
    server: str
    server_address: str
    subnet: int  # a number that no other link to this server has
    round_trip: RoundTrip
    facts: dict[str, str] = field(default_factory=dict)
    counters: Path | None = None  # of the delay line
    _seen: dict[str, int] = field(default_factory=dict, compare=False, repr=False)

    def carried_bytes(self) -> int:
        """What the client's end of the link counted so far, both ways.

        TlstaxError (FAILED) if the delay line has lost packets since this was asked last.
        """
        lost = self.lost_count()
        new, self._seen["lost"] = lost - self._seen.get("lost", 0), lost
        if new:
            raise TlstaxError(
                "the delay line lost packets",
                f"{new} packets were dropped because its queue was full, and were retransmitted",
                "Reduce the load: the delay line's queue is limited",
                ExitCode.FAILED,
            )
        return interface_bytes(self.client, CLIENT_INTERFACE)

    def lost_count(self) -> int:
        """Packets that the delay line dropped so far."""
        if self.counters is None:
            return 0
        lost: tuple[int, int] = COUNTERS.unpack(self.counters.read_bytes())[4:6]
        return sum(lost)


# ---- links ----


def check_link(rtt_ms: float | None) -> None:
    """TlstaxError when there can be no such link."""
    require_root()
    if rtt_ms is None:
        return
    if not RTT_MIN_MS <= rtt_ms <= RTT_MAX_MS:
        raise TlstaxError(
            f"cannot make a round trip of {rtt_ms} ms",
            f"it can be {RTT_MIN_MS} to {RTT_MAX_MS:.0f} ms",
            "Choose rtt_ms within",
            ExitCode.USAGE,
        )
    if not delayline().is_file() or not Path("/dev/net/tun").exists():
        raise TlstaxError(
            "cannot delay packets",
            f"{delayline()} or /dev/net/tun is missing",
            "Run `make install`; in a container, give it /dev/net/tun",
            ExitCode.HOST,
        )


def delayline() -> Path:
    """The program of delayline.c, which `make install` compiles."""
    return Path(str(files("tlstax.workloads.transports").joinpath("delayline")))


@contextmanager
def open_link(
    resources: Resources, server: str, rtt_ms: float | None = None, netem: bool | None = None
) -> Iterator[Link]:
    """A new client namespace with a link to the namespace `server`; `rtt_ms` None: not delayed.

    `netem` forces that kind of delay, or forbids it; None takes it where the kernel has it.
    """
    with new_namespace(resources, "client") as client:
        subnet = _free_subnet(server)
        if rtt_ms is None or netem or (netem is None and kernel_has_netem(client)):
            _connect_veth(client, server, subnet)
            facts = {"link": "veth"}
            if rtt_ms is not None:
                _delay_by_netem(client, server, _server_interface(subnet), rtt_ms)
                facts = {"link": f"veth, netem delay {rtt_ms / 2:g} ms each way"}
            yield _measured(client, server, subnet, facts)
            return
        with _delaying(resources, client, server, subnet, rtt_ms) as counters:
            _bring_up(client, server, subnet)
            facts = {"link": f"delay line, {rtt_ms / 2:g} ms each way"}
            yield replace(_measured(client, server, subnet, facts), counters=counters)


def _server_interface(subnet: int) -> str:
    return f"{SERVER_INTERFACE}{subnet}"


def _free_subnet(server: str) -> int:
    """The number of a subnet that the server's namespace has no address in yet."""
    used = {
        entry["local"]
        for interface in ip_json("-4", "address", namespace=server)
        for entry in interface["addr_info"]
    }
    for number in range(SUBNETS_COUNT):
        if not any(address.startswith(f"{NETWORK}.{number}.") for address in used):
            return number
    raise AssertionError("more links than subnets")


def _ends(subnet: int) -> tuple[str, str]:
    """The addresses of client and server."""
    return f"{NETWORK}.{subnet}.1", f"{NETWORK}.{subnet}.2"


def _bring_up(client: str, server: str, subnet: int) -> None:
    """Addresses for both interfaces, which are there."""
    here, there = _ends(subnet)
    for namespace, interface, own, other in (
        (client, CLIENT_INTERFACE, here, there),
        (server, _server_interface(subnet), there, here),
    ):
        ip("address", "add", own, "peer", f"{other}/32", "dev", interface, namespace=namespace)
        ip("link", "set", interface, "up", namespace=namespace)


def _connect_veth(client: str, server: str, subnet: int) -> None:
    there = ("peer", "name", _server_interface(subnet), "netns", server)
    ip("link", "add", CLIENT_INTERFACE, "type", "veth", *there, namespace=client)
    _bring_up(client, server, subnet)


def kernel_has_netem(namespace: str) -> bool:
    """Whether this kernel can delay packets, found by trying it in a namespace of ours."""
    command = ["tc", "-n", namespace, "qdisc", "replace", "dev", "lo", "root", "netem"]
    command[0] = str(find_program("tc", "iproute2"))
    tried = subprocess.run([*command, "delay", "1ms"], capture_output=True, check=False)
    if tried.returncode != 0:
        return False
    subprocess.run([*command[:4], "del", "dev", "lo", "root"], capture_output=True, check=True)
    return True


def _delay_by_netem(client: str, server: str, server_interface: str, rtt_ms: float) -> None:
    tc = str(find_program("tc", "iproute2"))
    delay = ["netem", "delay", f"{rtt_ms / 2}ms", "limit", str(NETEM_PACKETS)]
    for namespace, interface in ((client, CLIENT_INTERFACE), (server, server_interface)):
        command = [tc, "-n", namespace, "qdisc", "replace", "dev", interface, "root", *delay]
        subprocess.run(command, capture_output=True, check=True)


@contextmanager
def _delaying(
    resources: Resources, client: str, server: str, subnet: int, rtt_ms: float
) -> Iterator[Path]:
    """The delay line between the two namespaces; the file of its counters."""
    directory = scratch(resources, "delayline")
    counters, log = directory / "counters", directory / "delayline.log"
    counters.touch()
    ends = [client, CLIENT_INTERFACE, server, _server_interface(subnet)]
    delay_ns = str(round(rtt_ms * NS_PER_MS / 2))
    process = resources.start([str(delayline()), *ends, delay_ns, str(counters)], log=log)
    try:
        await_line(process, log, b"ready")
        for namespace, interface in ((client, ends[1]), (server, ends[3])):
            ip("link", "set", interface, "txqueuelen", str(QUEUE_PACKETS), namespace=namespace)
        yield counters
    finally:
        resources.stop(process)


def await_line(process: "subprocess.Popen[bytes]", log: Path, text: bytes) -> bytes:
    """Wait until a program's log has `text`; the log. TlstaxError (HOST) with its end if not."""
    deadline = time.monotonic() + READY_PATIENCE_S
    while text not in (said := log.read_bytes()):
        if process.poll() is not None or time.monotonic() > deadline:
            raise not_ready(process, log)
        time.sleep(0.01)
    return said


def not_ready(process: "subprocess.Popen[bytes]", log: Path) -> TlstaxError:
    """The error of a program that did not come up."""
    ended = process.poll() is not None
    tail = log.read_text(errors="replace").strip().splitlines()[-4:]
    return TlstaxError(
        f"{log.stem} did not become ready",
        f"it {'ended' if ended else 'printed nothing in time'}; its last lines: {' | '.join(tail)}",
        "Fix the cause named there; `tlstax lab clean` removes what a crashed run left",
        ExitCode.HOST,
    )


# ---- the round trip ----


def _measured(client: str, server: str, subnet: int, facts: dict[str, str]) -> Link:
    ends = _ends(subnet)
    trip = measure_round_trip(client, ends[1])
    return Link(client, server, ends[1], subnet, trip, facts | {"round trip": str(trip)})


def measure_round_trip(namespace: str, address: str, count: int = ECHOES_COUNT) -> RoundTrip:
    """ICMP echoes from a namespace to an address; TlstaxError (HOST) if none comes back."""
    echo = [sys.executable, "-I", "-S", round_trip.__file__, address, str(count)]
    command = [str(find_program("ip", "iproute2")), "netns", "exec", namespace, *echo]
    done = subprocess.run(
        [*command, str(ECHO_PATIENCE_S)], capture_output=True, text=True, check=False
    )
    times: list[int] = json.loads(done.stdout) if done.returncode == 0 else []
    if not times:
        raise TlstaxError(
            "the network namespaces cannot reach each other",
            f"{address} answered none of {count} echoes: {done.stderr.strip()[-200:]}",
            "Check for a firewall that applies to new network namespaces",
            ExitCode.HOST,
        )
    return RoundTrip(round(statistics.median(times)), min(times), max(times), len(times))
