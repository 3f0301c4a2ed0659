# SPDX-License-Identifier: GPL-2.0-only
"""How much longer than in a loop a public-key operation takes inside a server: cold caches.

A private MariaDB server meets a storm of TLS 1.3 connects while tlstax records it; in between, a
loop over the same functions of libcrypto with the same keys, group, padding and chain
(tests/testprogs/evp_cost.c) runs on the same machine. Before each flight of the loop another
process writes more than the second-level cache holds, but a server finds less in its caches still:
other code, other data, branches that nothing has trained. The difference depends on the machine, so
nothing is judged here: whether the recorded times are right is what `make check-crypto-cost`
checks, with a second clock in the same process. Medians are compared; the mean CPU time by the
ledger and `openssl speed`, where it has the operation, are printed beside.

tlstax takes nothing off for its own probes: hits fall into an operation of 40 us and are counted
with it. Their cost is measured here: every round has a storm without tlstax, and what the server's
CPU time per connect rises by with it, divided by the hits per connect, is the mean cost of a hit.
Half of a hit falls before its time stamp: a phase holds half of its own entries and exits, and the
chain check also half of those of the signature checks in it.

Run by `make bench-crypto-loop`.
"""

import argparse
import json
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from tlstax.certs.generate import Certificates, KeyKind, generate
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Handshake, Ledger, Loss, Probe
from tlstax.collectors.recording.by_recorder.recorder import Recorder
from tlstax.collectors.recording.request import Request
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.request import ServerRequest
from tlstax.workloads.tls import TlsChoice

KEYS = ("rsa:2048", "rsa:4096", "ec:p256")
OPERATIONS = ("sign", "keygen", "derive", "verify", "certificate")
GROUP = "X25519"
THREADS = 1
# Before each flight of the loop another process writes twice what the second-level cache holds, so
# that nothing is left there: in a server others run before it, too.
COLD_BYTES = 2 * (int(subprocess.check_output(["getconf", "LEVEL2_CACHE_SIZE"])) or 1 << 20)
EVP_COST = Path(__file__).parent.parent / "testprogs/bin/evp_cost"


@dataclass(frozen=True)
class Figures:
    """Time of each operation per handshake, in ns: medians, and the ledger's mean CPU time."""

    tlstax_ns: dict[str, float]
    mean_ns: dict[str, float]
    probes_ns: dict[str, float]  # cost of the probe hits within, measured
    loop_ns: dict[str, float]
    low_ns: dict[str, float]
    high_ns: dict[str, float]
    handshake_count: int
    loop_count: int
    hit_ns: float

    def differences(self, operation: str) -> tuple[float, float]:
        """How much more tlstax says than the loop, as a share; and the same less its probes."""
        loop_ns, found_ns = self.loop_ns[operation], self.tlstax_ns[operation]
        return found_ns / loop_ns - 1, (found_ns - self.probes_ns[operation]) / loop_ns - 1


def loop_rounds(made: Certificates, seconds: float) -> dict[str, dict[str, float]]:
    """One turn of the EVP loop."""
    files = (made.server_key, made.server, made.client_key, made.client, made.ca)
    command = [str(EVP_COST), *map(str, files), GROUP, str(seconds), str(COLD_BYTES)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    document: dict[str, dict[str, float]] = json.loads(result.stdout)
    return document


def measure(key: str, rounds: int, seconds: int, directory: Path) -> Figures:
    """Storm and loop take turns."""
    kind = KeyKind.parse(key)
    made = generate(directory / key.replace(":", "-"), kind)
    captures: list[Path] = []
    alone_ns: list[float] = []
    watched_ns: list[float] = []
    request = ServerRequest(key=kind, certificates=made, tls=TlsChoice("TLSv1.3", group=GROUP))
    load = Load(SCENARIOS["connect"], THREADS, seconds)
    loops = []
    with ExitStack() as stack:
        server = stack.enter_context(PrivateServer(request))
        driver = Sysbench.of_server(server, table_rows=1)
        driver.run(Load(SCENARIOS["connect"], THREADS, 1), "tls")
        for number in range(rounds):
            alone_ns.append(storm(server.pid, driver, load, time.sleep))
            captures.append(directory / f"{kind}-{number}.tlstax".replace(":", "-"))
            with Recorder(Request(server.pid, captures[-1], sample_hz=0)) as recorder:
                watched_ns.append(storm(server.pid, driver, load, recorder.poll))
                recorder.poll(0.2)
            loops.append(loop_rounds(made, seconds / 2))
    return figures(captures, loops, fmean(watched_ns) - fmean(alone_ns))


def storm(pid: int, driver: Sysbench, load: Load, wait: Callable[[float], None]) -> float:
    """Connect for a while; the server's CPU time per connection in ns."""
    clock = ~pid << 3 | 2  # clock_getcpuclockid(3): the CPU clock of another process
    before_ns = time.clock_gettime_ns(clock)
    connection_count = driver.run(load, "tls", wait).connection_count
    return (time.clock_gettime_ns(clock) - before_ns) / connection_count


def figures(
    captures: list[Path], loops: list[dict[str, dict[str, float]]], added_ns: float
) -> Figures:
    """Both opinions per handshake; `added_ns` is what tlstax adds to the CPU time of a connect."""
    spent: Counter[str] = Counter()
    hits: Counter[str] = Counter()
    handshakes: list[Handshake] = []
    for capture in captures:
        with CaptureReader.open(capture) as reader:
            for row in reader.rows(Ledger):
                if row.phase in OPERATIONS and row.state == "on_cpu":
                    spent[row.phase] += row.time_ns
            handshakes += reader.rows(Handshake)
            for probe in reader.rows(Probe):
                hits[probe.boundary] += probe.hits_count if probe.event == "enter" else 0
                hits["all"] += probe.hits_count if probe.kind.startswith("u") else 0
            lost = {row.kind: row.lost_count for row in reader.rows(Loss)}
            if any(count for kind, count in lost.items() if "handshake" in kind):
                raise SystemExit(f"handshakes were lost: {lost}")
    full = [row for row in handshakes if row.resumed == 0]
    if not full or len(full) != len(handshakes):
        raise SystemExit(f"{len(full)} of {len(handshakes)} handshakes were full")
    hit_ns = max(0.0, added_ns * len(full) / hits["all"])
    pairs = {
        name: sum(hits[boundary] for boundary in hits if boundary.split("_")[0] == name) / len(full)
        for name in OPERATIONS
    }
    # Each connect's own signature check is outside of the chain check.
    pairs["certificate"] += pairs["verify"] - 1
    return Figures(
        tlstax_ns={name: median(getattr(row, f"{name}_ns") for row in full) for name in OPERATIONS},
        mean_ns={name: spent[name] / len(full) for name in OPERATIONS},
        probes_ns={name: pairs[name] * hit_ns for name in OPERATIONS},
        loop_ns={name: fmean(loop[name]["median_ns"] for loop in loops) for name in OPERATIONS},
        low_ns={name: min(loop[name]["low_ns"] for loop in loops) for name in OPERATIONS},
        high_ns={name: max(loop[name]["high_ns"] for loop in loops) for name in OPERATIONS},
        handshake_count=len(full),
        loop_count=sum(int(loop["round_count"]) for loop in loops),  # type: ignore[call-overload]
        hit_ns=hit_ns,
    )


def openssl_speed(key: str) -> str:
    """What `openssl speed` says of the nearest operations, as text."""
    family = {"rsa:2048": "rsa2048", "rsa:4096": "rsa4096", "ec:p256": "ecdsap256"}[key]
    result = subprocess.run(
        ["openssl", "speed", "-mr", "-seconds", "1", family, "ecdhx25519"],
        capture_output=True,
        text=True,
        check=True,
    )
    said = []
    for line in result.stdout.splitlines():
        fields = line.split(":")
        if fields[0] in {"+F2", "+F4"}:
            said.append(f"sign {1e6 / float(fields[3]):.1f} us")
            said.append(f"verify {1e6 / float(fields[4]):.1f} us")
        elif fields[0] == "+F5":
            said.append(f"X25519 derive {1e6 / float(fields[3]):.1f} us")
    return ", ".join(said) or "nothing that could be read"


def show(key: str, found: Figures) -> None:
    """Print one key's table."""
    print(f"\n{key}, {GROUP}: {found.handshake_count} handshakes, {found.loop_count} loop rounds")
    print(f"one probe hit in this storm: {found.hit_ns:,.0f} ns of the server's CPU time")
    print(
        f"{'operation':<12}{'tlstax us':>11}{'mean us':>9}{'probes us':>11}{'EVP loop us':>13}"
        f"{'interval':>17}{'difference':>12}{'less probes':>13}"
    )
    for name in OPERATIONS:
        whole, less = found.differences(name)
        interval = f"{found.low_ns[name] / 1e3:.1f}..{found.high_ns[name] / 1e3:.1f}"
        print(
            f"{name:<12}{found.tlstax_ns[name] / 1e3:>11.1f}{found.mean_ns[name] / 1e3:>9.1f}"
            f"{found.probes_ns[name] / 1e3:>11.1f}"
            f"{found.loop_ns[name] / 1e3:>13.1f}"
            f"{interval:>17}{whole:>+12.1%}{less:>+13.1%}"
        )
    print(f"openssl speed: {openssl_speed(key)}")


def main() -> None:
    """Measure every key."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--key", action="append", help=f"one of {', '.join(KEYS)}; repeatable")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4, help="of each storm")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tlstax-crypto-") as directory:
        for key in options.key or KEYS:
            show(key, measure(key, options.rounds, options.seconds, Path(directory)))


if __name__ == "__main__":
    main()
