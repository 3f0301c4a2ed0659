# SPDX-License-Identifier: GPL-2.0-only
"""A tunnel's processes: whether they listen, what they have written, which version they are."""

import re
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tlstax.workloads.transports.network import READY_PATIENCE_S, not_ready

LISTENING = "0A"  # as /proc/net/tcp writes it
LOOK_S: Final = 0.01
VERSION_PATIENCE_S: Final = 10.0
END_PATIENCE_S: Final = 15.0


def await_listening(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    """Wait until somebody listens on a TCP port in the process's own network namespace."""
    deadline = time.monotonic() + READY_PATIENCE_S
    while not listens(process.pid, port):
        if process.poll() is not None or time.monotonic() > deadline:
            raise not_ready(process, log)
        time.sleep(LOOK_S)


def listens(pid: int, port: int) -> bool:
    """Whether a TCP port is listened on in the network namespace of a process."""
    wanted = f":{port:04X}"
    for name in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
        except OSError:  # it ended
            return False
        fields = (line.split() for line in lines)
        if any(field[1].endswith(wanted) and field[3] == LISTENING for field in fields):
            return True
    return False


def await_end(pid: int) -> None:
    """Wait until a process that is not our child has ended, with a limit."""
    deadline = time.monotonic() + END_PATIENCE_S
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(LOOK_S)


def written_bytes(pids: Sequence[int]) -> Callable[[], int]:
    """Counts what processes wrote since now, to sockets as well: all that they passed on."""

    def written() -> int:
        lines = (Path(f"/proc/{pid}/io").read_text().splitlines() for pid in pids)
        return sum(int(line.split()[1]) for text in lines for line in text if "wchar" in line)

    before = written()
    return lambda: written() - before


def version(program: str, option: str) -> str:
    """The first line with a number of what a program says about its version, '' without one."""
    done = subprocess.run(
        [program, option],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=VERSION_PATIENCE_S,
        check=False,
    )
    lines = done.stdout.decode(errors="replace").splitlines()
    return next((line.strip() for line in lines if re.search(r"\d\.\d", line)), "")
