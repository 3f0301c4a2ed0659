# SPDX-License-Identifier: GPL-2.0-only
"""Does tlstax time the public-key operations of a handshake right? A second clock in the server.

A server that links libcrypto as a shared library is started with tests/bench/interposer.c before
it, which clocks the same five functions from within the process. A storm of TLS 1.3 connects with
client certificates meets it while tlstax records. Both saw the same calls with the same caches: the
numbers of calls must be equal, and the CPU times agree within 5 %: wall time also holds the waits
of a busy host, some of which fall between the two clocks. What the interposer's own readings take
is timed in the server when it starts, and taken off. The interposer's time contains the traps of
tlstax's probes, which lie between its two readings; what they explain, by the calibrated cost of
the hits, is printed, and taken off where the difference is beyond 5 %.

Run by `make check-crypto-cost`; exit status 1 where an operation does not agree.
"""

import argparse
import shutil
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tlstax.certs.generate import KeyKind
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Ledger, Loss, PhaseCount, Probe
from tlstax.collectors.recording.recorder import Recorder
from tlstax.collectors.recording.request import Request
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.catalogue import find_kind
from tlstax.workloads.servers.installing import install, place_of
from tlstax.workloads.servers.lab_server import open_server
from tlstax.workloads.servers.request import ServerRequest
from tlstax.workloads.tls import TlsChoice

SERVERS: Final = ("mariadb", "mariadb118", "mysql97")
KEYS: Final = ("rsa:2048", "ec:p256")
OPERATIONS: Final = ("sign", "keygen", "derive", "verify", "certificate")
ALLOWED: Final = 0.05
SOURCE: Final = Path(__file__).with_name("interposer.c")
_SUM: Final = struct.Struct("3Q")  # calls, wall time, CPU time


@dataclass(frozen=True)
class Line:
    """One operation by both clocks."""

    operation: str
    call_count: int
    own_count: int
    clock_ns: float
    own_ns: float
    traps_ns: float

    @property
    def difference(self) -> float:
        """How much more tlstax says, as a share."""
        return self.own_ns / self.clock_ns - 1 if self.clock_ns else 0.0

    @property
    def unexplained(self) -> float:
        """The same without the traps that only the interposer sees."""
        return self.own_ns / max(1.0, self.clock_ns - self.traps_ns) - 1

    @property
    def agrees(self) -> bool:
        """Equal counts, and times within the limit."""
        near = min(abs(self.difference), abs(self.unexplained)) <= ALLOWED
        return self.call_count == self.own_count and near


def build(folder: Path) -> Path:
    """The interposer as a library."""
    library = folder / "interposer.so"
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, "-o", str(library), str(SOURCE)], check=True)
    return library


def read(sums: Path) -> dict[str, tuple[int, int, int]]:
    """Calls, wall time and CPU time by operation so far, without that of the readings."""
    *found, readings = _SUM.iter_unpack(sums.read_bytes())
    wall_ns, cpu_ns = (readings[i] / max(1, readings[0]) for i in (1, 2))
    return {
        name: (calls, round(wall - calls * wall_ns), round(cpu - calls * cpu_ns))
        for name, (calls, wall, cpu) in zip(OPERATIONS, found, strict=True)
    }


def measure(name: str, key: str, seconds: int, folder: Path) -> list[Line]:
    """One server with one kind of key."""
    kind = find_kind(name)
    install(kind)
    root = place_of(kind) if kind.source.client == "debian-root" else Path("/")
    inside = root / str(folder).lstrip("/")
    inside.mkdir(parents=True, exist_ok=True)
    inside.chmod(0o755)
    if inside != folder:
        shutil.copy(folder / "interposer.so", inside)
        (folder / "sums").write_bytes(bytes(_SUM.size * (len(OPERATIONS) + 1)))
    sums = inside / "sums"
    sums.write_bytes(bytes(_SUM.size * (len(OPERATIONS) + 1)))
    sums.chmod(0o666)
    environment = {"LD_PRELOAD": f"{folder}/interposer.so", "INTERPOSER_SUMS": f"{folder}/sums"}
    request = ServerRequest(
        key=KeyKind.parse(key), tls=TlsChoice("TLSv1.3"), environment=tuple(environment.items())
    )
    capture = folder / f"{name}-{key.replace(':', '-')}.tlstax"
    try:
        with open_server(kind, request) as server:
            driver = Sysbench.of_server(server, table_rows=1)
            driver.run(Load(SCENARIOS["connect"], 1, 1), "tls")
            with Recorder(Request(server.pid, capture, sample_hz=0)) as recorder:
                before = read(sums)
                driver.run(Load(SCENARIOS["connect"], 1, seconds), "tls", recorder.poll)
                recorder.poll(0.5)
                after = read(sums)
    finally:
        if inside != folder:
            shutil.rmtree(inside)
    return compare(capture, before, after)


def compare(
    capture: Path, before: dict[str, tuple[int, int, int]], after: dict[str, tuple[int, int, int]]
) -> list[Line]:
    """Both clocks, operation by operation."""
    ended: Counter[str] = Counter()
    traps_ns: Counter[str] = Counter()
    own_ns: Counter[str] = Counter()
    with CaptureReader.open(capture) as reader:
        for part in reader.rows(Ledger):
            own_ns[part.phase] += part.time_ns if part.state == "on_cpu" else 0
        for row in reader.rows(PhaseCount):
            ended[row.phase] += row.ended_count
        for probe in reader.rows(Probe):
            phase = probe.boundary.split("_")[0]
            traps_ns[phase] += round(probe.hits_count * (probe.cost_ns or 0.0))
        lost = [row for row in reader.rows(Loss) if "handshake" in row.kind and row.lost_count]
    if lost:
        raise SystemExit(f"handshakes were lost: {lost}")
    lines = []
    for name in OPERATIONS:
        calls, _, cpu_ns = (new - old for new, old in zip(after[name], before[name], strict=True))
        lines.append(Line(name, calls, ended[name], cpu_ns, own_ns[name], traps_ns[name]))
    return lines


def show(server: str, key: str, lines: list[Line]) -> list[str]:
    """Print one table; the operations that do not agree."""
    print(f"\n{server}, {key}")
    print(f"{'operation':<12}{'calls':>8}{'tlstax':>8}{'clock us':>11}{'tlstax us':>11}"
          f"{'difference':>12}{'without traps':>15}")  # fmt: skip
    for line in lines:
        count = max(1, line.call_count)
        print(
            f"{line.operation:<12}{line.call_count:>8}{line.own_count:>8}"
            f"{line.clock_ns / count / 1e3:>11.1f}{line.own_ns / count / 1e3:>11.1f}"
            f"{line.difference:>+12.1%}{line.unexplained:>+15.1%}"
            f"{'' if line.agrees else '  DOES NOT AGREE'}",
            flush=True,
        )
    return [f"{server} {key} {line.operation}" for line in lines if not line.agrees]


def main() -> int:
    """Measure every server with every key; 0 where all agree."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", action="append", help=f"one of {', '.join(SERVERS)}")
    parser.add_argument("--key", action="append", help=f"one of {', '.join(KEYS)}")
    parser.add_argument("--seconds", type=int, default=4, help="of the storm")
    options = parser.parse_args()
    bad: list[str] = []
    with tempfile.TemporaryDirectory(prefix="tlstax-clock-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        build(folder)
        for server in options.server or SERVERS:
            for key in options.key or KEYS:
                bad += show(server, key, measure(server, key, options.seconds, folder))
    print(f"\nNot within {ALLOWED:.0%}: {', '.join(bad)}" if bad else "\nAll agree.")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
