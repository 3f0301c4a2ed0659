# SPDX-License-Identifier: GPL-2.0-only
"""A lightly loaded server recorded with default options: what is recorded, said and measured.

    light_load.py [--rounds N] [--rate R] [-- OPTIONS]    (make bench-light)

A private MariaDB takes R new TLS connections a second (60). Each round is a stretch without
tlstax, then `tlstax attach` for 20 s, with OPTIONS. Printed for each: how many of the server's
handshakes of 13 s, by its own counter, have a record; the share of the time with handshakes; what
the recording says that it cost, as a share of the server's CPU time, which counts as a tenth of a
CPU at least. Measured: the server's CPU time for a connection while it is recorded against that in
the stretch before, and the CPU time of tlstax. Always exits 0.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

from tlstax.analysis.rows.coverage import HANDSHAKE_LEVELS
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Effect, Handshake, System, Window
from tlstax.tests.background_load import in_background
from tlstax.tests.bench.watching import TABLE_ROWS, interval, process_cpu_ns
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.status import StatusSession

RECORDED_S: Final = 20
ATTACHED_S: Final = 5  # until it records, at most
MEASURED_S: Final = 13  # of it, and of the stretch before it
FLOOR_CPUS: Final = 0.1
ACCEPTED: Final = "Ssl_finished_accepts"


class Stretch(NamedTuple):
    """Connections of a stretch and the server's CPU time."""

    begin_ns: int
    end_ns: int
    connects: int
    cpus: float

    @property
    def per_s(self) -> float:
        """Connections a second."""
        return self.connects / (self.end_ns - self.begin_ns) * 1e9

    @property
    def each_us(self) -> float:
        """CPU time of one."""
        return self.cpus / self.per_s * 1e6


class Said(NamedTuple):
    """What a recording has and says."""

    ends_ns: list[int]  # of the handshakes
    seen_share: float
    cost_share: float
    own_share: float  # the part of it for tlstax


def stretch(pid: int, status: StatusSession) -> Stretch:
    """Let the server work."""
    before, cpu_ns = status.read(), process_cpu_ns(pid)
    time.sleep(MEASURED_S)
    cpu_ns, after = process_cpu_ns(pid) - cpu_ns, status.read()
    elapsed_s = (after.time_ns - before.time_ns) / 1e9
    connects = int(after[ACCEPTED] - before[ACCEPTED])
    return Stretch(before.time_ns, after.time_ns, connects, cpu_ns / elapsed_s / 1e9)


def said(capture: Path) -> Said:
    """Read a recording."""
    with CaptureReader.open(capture) as reader:
        windows = sorted(reader.rows(Window), key=lambda one: one.start_ns)
        effects = list(reader.rows(Effect))
        own_ns = sum(row.engine_cpu_ns for row in reader.rows(System))
        ends_ns = [row.end_ns for row in reader.rows(Handshake)]
    length_ns = windows[-1].end_ns - windows[0].start_ns
    seen_ns = sum(w.end_ns - w.start_ns for w in windows if w.level in HANDSHAKE_LEVELS)
    cpu_ns = max(FLOOR_CPUS * length_ns, sum(row.target_cpu_ns or 0 for row in effects))
    cost_ns = own_ns + sum(
        (row.probe_ns or 0) + (row.scheduler_ns or 0) + (row.sample_ns or 0) for row in effects
    )
    return Said(ends_ns, seen_ns / length_ns, cost_ns / cpu_ns, own_ns / cpu_ns)


def main() -> int:
    """Print each round, then what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--rate", type=float, default=60, help="connections a second")
    parser.add_argument("options", nargs="*", help="of tlstax attach")
    options = parser.parse_args()
    ratios: list[float] = []
    added: list[float] = []
    totals: list[float] = []
    with PrivateServer() as server, tempfile.TemporaryDirectory() as name:
        driver = Sysbench.of_server(server, table_rows=TABLE_ROWS)
        driver.prepare()
        load = Load(SCENARIOS["connect"], 1, 7200, rate_per_s=options.rate)
        with in_background(driver, load, "tls"), server.open_status() as status:
            time.sleep(2)
            for number in range(options.rounds):
                alone = stretch(server.pid, status)
                capture = Path(name) / f"{number}"
                command = [sys.executable, "-m", "tlstax", "attach", str(server.pid), "--quiet"]
                command += ["-o", str(capture), "--for", f"{RECORDED_S}s", *options.options]
                with subprocess.Popen(command, stderr=subprocess.PIPE) as recorder:
                    time.sleep(ATTACHED_S)
                    recorded = stretch(server.pid, status)
                    said_text = recorder.communicate()[1].decode()
                if recorder.returncode:
                    print(said_text.splitlines()[-1], flush=True)  # a host that is too busy
                    continue
                found = said(capture)
                begin_ns, end_ns = recorded.begin_ns, recorded.end_ns
                count = sum(begin_ns <= one < end_ns for one in found.ends_ns)
                more_us = recorded.each_us - alone.each_us
                ratios.append(recorded.each_us / alone.each_us)
                added.append(more_us)
                base = max(FLOOR_CPUS, alone.cpus)
                totals.append(more_us * 1e-6 * recorded.per_s / base + found.own_share)
                print(
                    f"{count} of {recorded.connects} handshakes "
                    f"({count / recorded.connects:.3f}), with handshakes "
                    f"{found.seen_share:.3f} of the time, said {found.cost_share:.2%}; "
                    f"alone {alone.each_us:.0f} us a connection at {alone.cpus:.3f} CPUs, "
                    f"recorded {more_us:+.0f} us, tlstax {found.own_share:.2%}, "
                    f"load {os.getloadavg()[0]:.1f}",
                    flush=True,
                )
    print(
        "measured: {:.3f} ({:.3f}..{:.3f}) times the CPU time of a connection, ".format(
            *interval(ratios)
        )
        + "{:+.0f} us ({:.0f}..{:.0f}); ".format(*interval(added))
        + "with tlstax {:.2%} ({:.2%}..{:.2%}) of the server's".format(*interval(totals))
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
