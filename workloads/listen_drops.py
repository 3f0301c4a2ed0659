# SPDX-License-Identifier: GPL-2.0-only
"""Connections that the kernel refused because a listening socket's queue was full.

The count is of a network namespace, all of its listening sockets together.
"""

from pathlib import Path

from tlstax.workloads.transports.model import Route

COUNTER = "ListenOverflows"


def read(server_pid: int, route: Route) -> dict[str, int]:
    """So far, in the server's namespace and, where it has one of its own, in the client's.

    A proxy stands on the client's side of a route; the name says whose clients are refused.
    """
    found = {"server": overflows(server_pid)}
    for process in route.processes:
        if process.role == "proxy" and not _same_namespace(server_pid, process.pid):
            found["proxy"] = overflows(process.pid)
    return found


def overflows(pid: int) -> int:
    """Those of the namespace of a process; 0 where the kernel does not count them."""
    lines = Path(f"/proc/{pid}/net/netstat").read_text(encoding="ascii").splitlines()
    for names, values in zip(lines[::2], lines[1::2], strict=True):
        counts = dict(zip(names.split(), values.split(), strict=True))
        if COUNTER in counts:
            return int(counts[COUNTER])
    return 0


def _same_namespace(one: int, other: int) -> bool:
    places = [Path(f"/proc/{pid}/ns/net").stat() for pid in (one, other)]
    return places[0].st_ino == places[1].st_ino
