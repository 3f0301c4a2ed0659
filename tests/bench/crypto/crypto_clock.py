# SPDX-License-Identifier: GPL-2.0-only
"""Does tlstax time the public-key operations of a handshake correctly? Two clocks, one server.

A storm of connects with client certificates meets a server while tlstax records. A second clock
sees the same calls with the same caches: a library loaded before libcrypto (preloaded_clock.py)
where that is shared, bpftrace (traced_clock.py) where the TLS library is linked into the server.
The numbers of calls must be equal, and CPU times agree within 5 %: wall time also holds the waits
of a busy host, some of which fall between the two clocks. Traps of probes that only one of the
clocks contains are taken off in the last column; the smaller difference counts.

A recording that cannot judge is named, and measured again, at most three times. Run by
`make check-crypto-cost`; exit status 1 where an operation does not agree or was not judged.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Final

from tlstax import TlstaxError
from tlstax.certs.generate import KeyKind
from tlstax.collectors.recording.by_recorder.recorder import Recorder
from tlstax.collectors.recording.request import Request
from tlstax.tests.bench.crypto.preloaded_clock import between, inner_calls_pass, preloaded
from tlstax.tests.bench.crypto.second_clock import (
    ALLOWED,
    SUM,
    Line,
    Recording,
    compare,
    read_recording,
    why_unfit,
)
from tlstax.tests.bench.crypto.traced_clock import traced
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.catalogue import find_kind
from tlstax.workloads.servers.lab_server import open_server
from tlstax.workloads.servers.request import ServerRequest
from tlstax.workloads.tls import TlsChoice

SHARED: Final = ("mariadb", "mariadb118", "mysql97")
LINKED_IN: Final = ("mysql56", "mysql57", "mariadb102", "mariadb1011")
KEYS: Final = ("rsa:2048", "ec:p256")
TRIES: Final = 4


def measure_shared(
    name: str, key: str, seconds: int, folder: Path
) -> tuple[Recording, list[Line], str]:
    """One storm with the preloaded clock: both clocks, and a remark."""
    kind = find_kind(name)
    with preloaded(kind, folder) as clock:
        request = ServerRequest(
            key=KeyKind.parse(key), tls=TlsChoice("TLSv1.3"), environment=clock.environment
        )
        with open_server(kind, request) as server:
            passes = inner_calls_pass(server.pid)
            driver = Sysbench.of_server(server, table_rows=1)
            driver.run(Load(SCENARIOS["connect"], 1, 1), "tls")
            capture = folder / "capture.tlstax"
            with Recorder(Request(server.pid, capture, sample_hz=0, overwrite=True)) as recorder:
                before = clock.read()
                driver.run(Load(SCENARIOS["connect"], 1, seconds), "tls", recorder.poll)
                recorder.poll(0.5)
                after = clock.read()
    recording = read_recording(capture)
    remark = "" if passes else (
        f"{SUM}: calls within this libcrypto do not pass the second clock (it has no relocation for"
        " them, or is linked -Bsymbolic), which files the signature checks of a chain under the"
        " chain check: the sum of both is judged, for each chain check."
    )  # fmt: skip
    lines = compare(recording, between(before, after, recording), passes)
    return recording, lines, remark


def measure_linked_in(
    name: str, key: str, seconds: int, folder: Path
) -> tuple[Recording, list[Line], str]:
    """One storm with the traced clock: both clocks, and a remark."""
    kind = find_kind(name)
    tls = TlsChoice() if kind.start.yassl else TlsChoice("TLSv1.3")
    with open_server(kind, ServerRequest(key=KeyKind.parse(key), tls=tls)) as server:
        driver = Sysbench.of_server(server, table_rows=1)
        driver.run(Load(SCENARIOS["connect"], 1, 1), "tls")
        capture = folder / "capture.tlstax"
        with traced(server.pid, folder) as clock:
            with Recorder(Request(server.pid, capture, sample_hz=0, overwrite=True)) as recorder:
                clock.start()  # after tlstax, whose programs then run first where both have a probe
                driver.run(Load(SCENARIOS["connect"], 1, seconds), "tls", recorder.poll)
                recorder.poll(0.5)
            found = clock.finish()
    recording = read_recording(capture)
    return recording, compare(recording, found), "Second clock: bpftrace."


def show(lines: list[Line], recording: Recording, remark: str) -> None:
    """Print one table."""
    print(f"{'operation':<13}{'calls':>8}{'tlstax':>8}{'clock us':>11}{'tlstax us':>11}"
          f"{'difference':>12}{'without traps':>15}")  # fmt: skip
    for line in lines:
        shares = f"{line.difference:>+12.1%}{line.unexplained:>+15.1%}"
        if not line.judged:
            shares = f"{'part of the sum':>27}"
        print(
            f"{line.operation:<13}{line.call_count:>8}{line.own_count:>8}"
            f"{line.clock_ns / max(1, line.call_count) / 1e3:>11.1f}"
            f"{line.own_ns / max(1, line.own_count) / 1e3:>11.1f}"
            f"{shares}{'' if line.agrees else '  DOES NOT AGREE'}"
        )
    losses = ", ".join(f"{kind} {count}" for kind, count in recording.losses.items())
    print(f"CPU time against the process's clock {recording.closure_ns / 1e3:+,.0f} us;"
          f" steal {recording.steal_ns / 1e3:,.0f} us; losses: {losses or 'none'}")  # fmt: skip
    if remark:
        print(remark, flush=True)


def check(name: str, key: str, seconds: int, folder: Path) -> list[str]:
    """Measure until a recording can judge, at most TRIES times; what does not agree."""
    measure = measure_shared if name in SHARED else measure_linked_in
    why = ""
    for number in range(1, TRIES + 1):
        print(f"\n{name}, {key}, recording {number} of at most {TRIES}", flush=True)
        try:
            recording, lines, remark = measure(name, key, seconds, folder)
        except TlstaxError as error:
            why = str(error)
        else:
            show(lines, recording, remark)
            why = why_unfit(recording, lines, name in LINKED_IN)
        if not why:
            return [f"{name} {key} {line.operation}" for line in lines if not line.agrees]
        print(f"THIS RECORDING CANNOT JUDGE: {why}", flush=True)
    return [f"{name} {key} (no recording could judge: {why})"]


def keys_of(name: str) -> tuple[str, ...]:
    """The kinds of keys that the server's library knows."""
    return KEYS[:1] if find_kind(name).start.yassl else KEYS


def main() -> int:
    """Measure every server with every key; 0 where all agree."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    servers = (*SHARED, *LINKED_IN)
    parser.add_argument("--server", action="append", choices=servers, metavar="NAME",
                        help=f"one of {', '.join(servers)}")  # fmt: skip
    parser.add_argument("--key", action="append", choices=KEYS, metavar="KEY",
                        help=f"one of {', '.join(KEYS)}")  # fmt: skip
    parser.add_argument("--seconds", type=int, default=3, help="of the storm")
    options = parser.parse_args()
    bad: list[str] = []
    with tempfile.TemporaryDirectory(prefix="tlstax-clock-") as place:
        folder = Path(place)
        folder.chmod(0o755)
        for server in options.server or servers:
            for key in keys_of(server):
                if not options.key or key in options.key:
                    bad += check(server, key, options.seconds, folder)
    print(f"\nNot within {ALLOWED:.0%}: {', '.join(bad)}" if bad else "\nAll agree.")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
