# SPDX-License-Identifier: GPL-2.0-only
"""Attach to a server in a storm of connects, again and again, and kill recorders at any moment.

    python tests/truth/storm.py [--minutes 20] [--kills 200]     (make check-storm)

Two MariaDB servers take new TLS connections as fast as two clients each open them. One of them is
recorded with `--budget none`, attached and detached every 2 s; then its recorders are killed with
SIGKILL, each at a random moment of its first 2 s. Exits with 1 if a recording failed, a connection
was aborted, the server's log has a line that is not there without tlstax, an object of BPF or a
process stayed, the server's memory grew by 2 MB more than its twin's, or the kernel's log has a new
line.

One line of the kernel's is expected and counted: a recorder that is killed while the kernel puts
probes in place may leave some of their breakpoints in the server's code ("leaking uprobe"). They
are counted in the server's memory, and must be gone after one more recording that ends in order.
"""

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Handshake
from tlstax.collectors.placement.planning import plan_in_child
from tlstax.collectors.process.mappings import open_mapped
from tlstax.probes.model import Level
from tlstax.tests.background_load import in_background
from tlstax.tests.bpf_objects import watch_leftovers
from tlstax.tests.processes import children_of
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.status import Status

THREADS: Final = 2
ATTACHED_S: Final = 2.0
WARM_S: Final = 20.0
"""Until the server's caches and arenas have grown to what the load needs."""
PATIENCE_S: Final = 180.0
GROWTH_MOST_BYTES: Final = 2 << 20
RECORDER: Final = "tlstax-recorder"
LEAKED: Final = "failed to unregister, leaking uprobe"
PROBED_LEVELS: Final = (Level.FLOW, Level.RECORD)
_STAMP: Final = re.compile(r"^\d{4}-\d\d-\d\d +\d+:\d\d:\d\d \d+ ")


@dataclass
class Seen:
    """What was counted while tlstax came and went."""

    recordings: int = 0
    handshakes: int = 0
    kills: int = 0
    leaked: int = 0  # lines of the kernel's log
    breakpoints: int = 0  # that killed recorders left
    faults: list[str] = field(default_factory=list)


class KernelLog:
    """What the kernel says from now on."""

    def __init__(self) -> None:
        self._fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(self._fd, 0, os.SEEK_END)

    def lines(self) -> list[str]:
        """Those since the last call."""
        found = []
        while True:
            try:
                found.append(os.read(self._fd, 8192).decode(errors="replace").strip())
            except BlockingIOError:
                return found


def attach(server: PrivateServer, capture: Path, *more: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tlstax", "attach", str(server.pid), "--budget", "none"]
    return subprocess.Popen(
        [*command, "--quiet", "--force", "-o", str(capture), *more],
        stderr=subprocess.PIPE,
        text=True,
    )


def record(server: PrivateServer, capture: Path, seen: Seen) -> None:
    """One recording from beginning to end."""
    with attach(server, capture, "--for", f"{ATTACHED_S:g}s") as process:
        try:
            _, said = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            where = [waiting_in(pid) for pid in (process.pid, *children_of(process.pid))]
            process.kill()
            raise SystemExit(f"it had not ended after {PATIENCE_S} s; it is in {where}") from None
    if process.returncode:
        raise SystemExit(f"tlstax attach ended with {process.returncode}: {said}")
    with CaptureReader.open(capture) as reader:
        count = sum(1 for _ in reader.rows(Handshake))
    if not count:
        raise SystemExit(f"a recording of {ATTACHED_S} s of the storm has no handshake: {said}")
    seen.recordings += 1
    seen.handshakes += count


def waiting_in(pid: int) -> str:
    """A process, its state and where it sleeps in the kernel."""
    folder = Path(f"/proc/{pid}")
    try:
        text = (folder / "stat").read_text().partition("(")[2]
        return f"{text[:40]} {(folder / 'wchan').read_text()}"
    except OSError as error:
        return str(error)


def kill(server: PrivateServer, capture: Path, moment_s: float, seen: Seen) -> None:
    """A recorder that is killed so long after it has started."""
    with attach(server, capture) as process:
        end_s = time.monotonic() + PATIENCE_S
        while not (found := [p for p, n in children_of(process.pid).items() if n == RECORDER]):
            if process.poll() is not None or time.monotonic() > end_s:
                raise SystemExit(f"no recorder was started: {process.communicate()[1]}")
            time.sleep(0.001)
        time.sleep(moment_s)
        os.kill(found[0], signal.SIGKILL)
        process.communicate(timeout=PATIENCE_S)
    seen.kills += 1


def probed_places(server: PrivateServer) -> dict[int, bytes]:
    """The addresses that a recording may probe, and the file's first byte of code at each."""
    places = {}
    for level in PROBED_LEVELS:
        for site in plan_in_child(server.pid, level)[1].sites:
            file = open_mapped(site.object)
            try:
                code = os.pread(file, 1, site.file_offset)
            finally:
                os.close(file)
            if address := site.object.address_of(site.file_offset):
                places[address] = code
    return places


def breakpoints(server: PrivateServer, places: dict[int, bytes]) -> int:
    """At how many places the server's code is not what its file has."""
    memory = os.open(f"/proc/{server.pid}/mem", os.O_RDONLY)
    try:
        return sum(os.pread(memory, 1, address) != code for address, code in places.items())
    finally:
        os.close(memory)


def resident_bytes(server: PrivateServer) -> int:
    (kib,) = re.findall(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{server.pid}/status").read_text(), re.M)
    return int(kib) << 10


def log_lines(server: PrivateServer) -> list[str]:
    """The server's log, without times and thread numbers."""
    text = server.directory.log.read_text(errors="replace")
    return [_STAMP.sub("", line) for line in text.splitlines()]


def status(server: PrivateServer) -> Status:
    with server.open_administrator() as session:
        return session.read()


def storm(
    servers: tuple[PrivateServer, PrivateServer], options: argparse.Namespace, capture: Path
) -> Seen:
    """All recordings and kills, and what is wrong after them."""
    minutes, kills = options.minutes, options.kills
    chance = random.Random(kills)
    server, seen = servers[0], Seen()
    places = probed_places(server)
    leftover, kernel = watch_leftovers(), KernelLog()
    lines_before, before = len(log_lines(server)), [status(one) for one in servers]
    load = Load(SCENARIOS["connect"], THREADS, int(WARM_S + minutes * 60 + kills * PATIENCE_S))
    drivers = [Sysbench.of_server(one, table_rows=1) for one in servers]
    with in_background(drivers[0], load), in_background(drivers[1], load):
        time.sleep(WARM_S)
        resident = [resident_bytes(one) for one in servers]
        end_s = time.monotonic() + minutes * 60
        while time.monotonic() < end_s:
            record(server, capture, seen)
        for _ in range(kills):
            kill(server, capture, chance.uniform(0, options.within), seen)
        seen.breakpoints = breakpoints(server, places)
        record(server, capture, seen)
        growth = [resident_bytes(one) - was for one, was in zip(servers, resident, strict=True)]
        counted = [status(one) for one in servers]
        said = log_lines(server)[lines_before:]  # before the load is cut off
    said_by_kernel = kernel.lines()
    seen.leaked = sum(LEAKED in line for line in said_by_kernel)
    print(describe(seen, growth, before, counted))
    judge(seen, growth, counted[0], before[0])
    _expect(seen, not said, "the server's log", said)
    said = [line for line in said_by_kernel if LEAKED not in line]
    _expect(seen, not said, "the kernel's log", said)
    left = breakpoints(server, places)
    _expect(seen, not left, "breakpoints that stayed after a recording that ended in order", left)
    _expect(seen, not (objects := leftover()), "BPF objects that stayed", sorted(objects))
    return seen


def describe(seen: Seen, growth: list[int], before: list[Status], after: list[Status]) -> str:
    """The figures in one line."""
    accepted = [
        now.since(then, "Ssl_finished_accepts") for now, then in zip(after, before, strict=True)
    ]
    return (
        f"{seen.recordings:,} recordings with {seen.handshakes:,} handshakes, "
        f"{seen.kills:,} kills, {seen.leaked} lines of the kernel that a probe leaks, "
        f"{seen.breakpoints} breakpoints left by them; TLS connections {accepted[0]:,}, of the "
        f"twin {accepted[1]:,}; "
        f"resident memory {growth[0] / 2**20:+.2f} MiB, of the twin {growth[1] / 2**20:+.2f} MiB; "
        f"load of the host {os.getloadavg()[0]:.1f}"
    )


def judge(seen: Seen, growth: list[int], after: Status, before: Status) -> None:
    """What the counters of the servers say."""
    more = growth[0] - growth[1]
    _expect(seen, more <= GROWTH_MOST_BYTES, "bytes that the server grew more than its twin", more)
    for name in ("Aborted_connects", "Aborted_clients"):
        _expect(seen, not (count := after.since(before, name)), name, count)


def _expect(seen: Seen, is_so: bool, what: str, found: object) -> None:
    if not is_so:
        seen.faults.append(f"{what}: {found}")


def main() -> int:
    """The storm."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--within", type=float, default=ATTACHED_S, help="s from start to kill")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="tlstax-storm-") as folder,
        PrivateServer() as server,
        PrivateServer() as twin,
    ):
        seen = storm((server, twin), options, Path(folder) / "x.tlstax")
    for fault in seen.faults:
        print(f"wrong: {fault}"[:2000])
    return int(bool(seen.faults))


if __name__ == "__main__":
    sys.exit(main())
