# SPDX-License-Identifier: GPL-2.0-only
"""Does tlstax time the public-key operations of a handshake right? An outside opinion.

A private MariaDB server meets a storm of TLS 1.3 connects while tlstax records it; in between, a
loop over the same functions of libcrypto with the same keys, group, padding and chain
(tests/testprogs/evp_cost.c) runs on the same machine. For each operation the mean CPU time per
handshake by tlstax must agree with the loop's within 15 %. `openssl speed` is printed beside
where it has the operation. The probes' own cost inside a phase is not taken off.

The chain check without its signature verifications (`certificate`) is printed and not judged:
it follows pointers through some 30 us, and a loop has no single figure for that. Here it takes 20
us with warm caches and 37 us with cold ones.

Run by `make check-crypto-cost`; exit status 1 when an operation does not agree.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from tlstax.certs.generate import Certificates, KeyKind, generate
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Handshake, Ledger, Loss
from tlstax.collectors.recorder import Recorder, Request
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.mariadb import PrivateServer, ServerRequest
from tlstax.workloads.tls import TlsChoice

KEYS = ("rsa:2048", "rsa:4096", "ec:p256")
OPERATIONS = ("sign", "keygen", "derive", "verify", "certificate")
JUDGED = OPERATIONS[:-1]
GROUP = "X25519"
ALLOWED = 0.15
THREADS = 1
# Before each flight of the loop another process writes twice what the second-level cache holds, so
# that nothing is left there: in a server others run before it, too.
COLD_BYTES = 2 * (int(subprocess.check_output(["getconf", "LEVEL2_CACHE_SIZE"])) or 1 << 20)
EVP_COST = Path(__file__).parent.parent / "testprogs/bin/evp_cost"


@dataclass(frozen=True)
class Figures:
    """Mean CPU time of each operation per handshake, in ns."""

    tlstax_ns: dict[str, float]
    loop_ns: dict[str, float]
    low_ns: dict[str, float]
    high_ns: dict[str, float]
    handshake_count: int
    loop_count: int

    def difference(self, operation: str) -> float:
        """How much more tlstax says than the loop, as a share."""
        return self.tlstax_ns[operation] / self.loop_ns[operation] - 1


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
    capture = directory / f"{key.replace(':', '-')}.tlstax"
    request = ServerRequest(key=kind, certificates=made, tls=TlsChoice("TLSv1.3", group=GROUP))
    load = Load(SCENARIOS["connect"], THREADS, seconds)
    loops = []
    with ExitStack() as stack:
        server = stack.enter_context(PrivateServer(request))
        driver = Sysbench(server, table_rows=1)
        driver.run(Load(SCENARIOS["connect"], THREADS, 1), "tls")
        recorder = stack.enter_context(Recorder(Request(server.pid, capture, sample_hz=0)))
        for number in range(rounds):
            recorder.begin_run(number + 1)
            driver.run(load, "tls", recorder.poll)
            recorder.poll(0.2)
            recorder.end_run()
            loops.append(loop_rounds(made, seconds / 2))
    return figures(capture, loops)


def figures(capture: Path, loops: list[dict[str, dict[str, float]]]) -> Figures:
    """Both opinions per handshake."""
    spent: Counter[str] = Counter()
    with CaptureReader.open(capture) as reader:
        for row in reader.rows(Ledger):
            if row.phase in OPERATIONS and row.state == "on_cpu":
                spent[row.phase] += row.time_ns
        full = [row for row in reader.rows(Handshake) if row.resumed == 0]
        resumed = sum(1 for row in reader.rows(Handshake) if row.resumed)
        lost = {row.kind: row.count for row in reader.rows(Loss) if "handshake" in row.kind}
    if not full or resumed or any(lost.values()):
        raise SystemExit(f"{len(full)} full and {resumed} resumed handshakes, lost: {lost}")
    return Figures(
        tlstax_ns={name: spent[name] / len(full) for name in OPERATIONS},
        loop_ns={name: fmean(loop[name]["median_ns"] for loop in loops) for name in OPERATIONS},
        low_ns={name: min(loop[name]["low_ns"] for loop in loops) for name in OPERATIONS},
        high_ns={name: max(loop[name]["high_ns"] for loop in loops) for name in OPERATIONS},
        handshake_count=len(full),
        loop_count=sum(int(loop["round_count"]) for loop in loops),  # type: ignore[call-overload]
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


def show(key: str, found: Figures) -> list[str]:
    """Print one key's table; the operations that do not agree."""
    print(f"\n{key}, {GROUP}: {found.handshake_count} handshakes, {found.loop_count} loop rounds")
    print(
        f"{'operation':<12}{'tlstax us':>11}{'EVP loop us':>13}{'interval':>17}{'difference':>12}"
    )
    bad = []
    for name in OPERATIONS:
        agrees = abs(found.difference(name)) <= ALLOWED
        verdict = "" if agrees else "  NOT WITHIN 15 %" if name in JUDGED else "  not judged"
        interval = f"{found.low_ns[name] / 1e3:.1f}..{found.high_ns[name] / 1e3:.1f}"
        print(
            f"{name:<12}{found.tlstax_ns[name] / 1e3:>11.1f}{found.loop_ns[name] / 1e3:>13.1f}"
            f"{interval:>17}{found.difference(name):>+12.1%}{verdict}"
        )
        if not agrees and name in JUDGED:
            bad.append(f"{key} {name}")
    print(f"openssl speed: {openssl_speed(key)}")
    return bad


def main() -> int:
    """Measure every key; 0 when all operations agree."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--key", action="append", help=f"one of {', '.join(KEYS)}; repeatable")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4, help="of each storm")
    options = parser.parse_args()
    bad: list[str] = []
    with tempfile.TemporaryDirectory(prefix="tlstax-crypto-") as directory:
        for key in options.key or KEYS:
            bad += show(key, measure(key, options.rounds, options.seconds, Path(directory)))
    print(f"\nNot within {ALLOWED:.0%}: {', '.join(bad)}" if bad else "\nAll agree within 15 %.")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
