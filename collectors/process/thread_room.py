# SPDX-License-Identifier: GPL-2.0-only
"""How many threads a process may come to have: room in the ledger is made before they exist.

A server's max_connections cannot be read without a login. What can be read are the threads that it
has and the limits that the kernel sets it: tasks of its control groups, processes of its user, open
files (each connection needs one), threads of the host.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tlstax.collectors.capture.printable import whole_number

PROC: Final = Path("/proc")
CONTROL_GROUPS: Final = Path("/sys/fs/cgroup")
ROOM_MOST: Final = 1 << 16
"""More threads than this have no account, whatever the process may have."""
ROOM_LEAST: Final = 8192
"""Room where no limit is lower: a server that is idle now may be full in a minute."""
ROOM_FACTOR: Final = 4
"""Room for so many times the present threads, where that is more."""
ROOM_SPARE: Final = 256
"""Room beyond the present threads, whatever the limits are: they do not bind every process."""
_LIMIT: Final = re.compile(r"^(Max processes|Max open files) +(\d+) ", re.MULTILINE)
_CONTROL_GROUP: Final = re.compile(r"^\d+:(|(?:[^:]*,)?pids(?:,[^:]*)?):/?(.*)$", re.MULTILINE)


def thread_room(pid: int, least: int = ROOM_LEAST, proc: Path = PROC) -> int:
    """Threads of process `pid` to make room for: at least `least`, if its limits allow as many."""
    present = present_threads(pid, proc)
    wanted = max(least, ROOM_FACTOR * present)
    most = min((ROOM_MOST, *_limits(pid, present, proc)))
    return min(max(min(wanted, most), present + ROOM_SPARE), ROOM_MOST)


def present_threads(pid: int, proc: Path = PROC) -> int:
    """Threads of the process now; 0 when it has ended."""
    found = re.search(r"^Threads:\s*([0-9]{1,9})$", _text(proc / str(pid) / "status"), re.MULTILINE)
    return int(found[1]) if found else 0


def _limits(pid: int, present: int, proc: Path) -> Iterator[int]:
    process = proc / str(pid)
    limits = dict(_LIMIT.findall(_text(process / "limits")))
    user = re.search(r"^Uid:\s*\d+\s+(\d+)", _text(process / "status"), re.MULTILINE)
    if "Max processes" in limits and user and user[1] != "0":
        yield int(limits["Max processes"])
    if "Max open files" in limits:
        yield present + int(limits["Max open files"])
    for controllers, path in _CONTROL_GROUP.findall(_text(process / "cgroup")):
        root = CONTROL_GROUPS / "pids" if controllers else CONTROL_GROUPS
        group = root / path
        while group != root:
            yield from _number(group / "pids.max")
            group = group.parent
    yield from _number(proc / "sys/kernel/threads-max")
    yield from _number(proc / "sys/kernel/pid_max")


def _number(path: Path) -> Iterator[int]:
    number = whole_number(_text(path).strip())
    if number is not None:  # not "max"
        yield number


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has ended, or nothing is mounted there
        return ""
