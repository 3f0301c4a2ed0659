# SPDX-License-Identifier: GPL-2.0-only
"""A lightly loaded server recorded with default options: what is recorded, said and measured.

    light_load.py [--rounds N] [--rate R] [--selects S] [--keep DIR] [-- OPTIONS]
    (make bench-light)

A private MariaDB takes R new TLS connections a second (60), and S point selects a second on an open
one. A second server, its twin, has the same load and is never recorded. Each round is `tlstax
attach` for 20 s, with OPTIONS, between stretches without tlstax. Printed for each: how many of the
server's handshakes of 13 s, by its own counter, have a record; the share of the time with
handshakes; what the recording says that it cost, as a share of the server's CPU time, which counts
as a tenth of a CPU at least. Measured: the server's CPU time for a connection as a multiple of its
twin's in the same seconds, while it is recorded against the mean of the stretches next to it, and
the CPU time of tlstax. What a connection costs changes with the hour by more than recording does;
most of that the twin shares. What tlstax's programs cost at the twin's own events, less than 0.1 us
each, is in the twin's figure and so not in what is measured. Also printed: the same without the
twin. Always exits 0.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import fmean
from typing import Final, NamedTuple

from tlstax.analysis.rows.coverage import HANDSHAKE_LEVELS
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Effect, Handshake, System, Window
from tlstax.tests.background_load import in_background
from tlstax.tests.bench.watching import TABLE_ROWS, interval
from tlstax.tests.processes import process_cpu_ns
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


class Pair(NamedTuple):
    """The same seconds of the server and of its twin."""

    server: Stretch
    twin: Stretch

    @property
    def ratio(self) -> float:
        """What a connection costs, as a multiple of the twin's."""
        return self.server.each_us / self.twin.each_us


class Measured:
    """Of all rounds."""

    def __init__(self) -> None:
        self._ratios: list[float] = []
        self._totals: list[float] = []

    def add(self, ratio: float, base_cpus: float, alone_cpus: float, own_share: float) -> None:
        """A round: cost of a connection against nothing recorded; CPUs counted and used."""
        self._ratios.append(ratio)
        self._totals.append((ratio - 1) * alone_cpus / base_cpus + own_share)

    def show(self, words: str) -> None:
        """One line."""
        ratio = "{:.4f} ({:.4f}..{:.4f})".format(*interval(self._ratios))
        total = "{:.2%} ({:.2%}..{:.2%})".format(*interval(self._totals))
        print(
            f"measured {words}: {ratio} times the CPU time of a connection; "
            f"with tlstax {total} of the server's"
        )


class Said(NamedTuple):
    """What a recording has and says."""

    ends_ns: list[int]  # of the handshakes
    seen_share: float
    cost_share: float
    own_share: float  # the part of it for tlstax


def stretch(servers: Sequence[tuple[int, StatusSession]]) -> Pair:
    """Let both work."""
    begin = [(status.read(), process_cpu_ns(pid)) for pid, status in servers]
    time.sleep(MEASURED_S)
    found = []
    for (pid, status), (before, cpu_ns) in zip(servers, begin, strict=True):
        after, cpu_ns = status.read(), process_cpu_ns(pid) - cpu_ns
        elapsed_s = (after.time_ns - before.time_ns) / 1e9
        connects = int(after[ACCEPTED] - before[ACCEPTED])
        cpus = cpu_ns / elapsed_s / 1e9
        found.append(Stretch(before.time_ns, after.time_ns, connects, cpus))
    return Pair(*found)


@contextmanager
def loaded(server: PrivateServer, options: argparse.Namespace) -> Iterator[StatusSession]:
    """The clients of one server, and its counters."""
    driver = Sysbench.of_server(server, table_rows=TABLE_ROWS)
    driver.prepare()
    load = Load(SCENARIOS["connect"], 1, 7200, rate_per_s=options.rate)
    with ExitStack() as stack:
        stack.enter_context(in_background(driver, load, "tls"))
        if options.selects:
            load = Load(SCENARIOS["point_select"], 1, 7200, rate_per_s=options.selects)
            stack.enter_context(in_background(driver, load, "tls"))
        yield stack.enter_context(server.open_status())


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
    cost_ns = own_ns + sum(sum(row.costs_ns) for row in effects)
    return Said(ends_ns, seen_ns / length_ns, cost_ns / cpu_ns, own_ns / cpu_ns)


def main() -> int:
    """Print each round, then what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--rate", type=float, default=60, help="connections a second")
    parser.add_argument("--selects", type=float, default=0, help="point selects a second beside")
    parser.add_argument("--keep", type=Path, help="a folder for the recordings")
    parser.add_argument("options", nargs="*", help="of tlstax attach")
    options = parser.parse_args()
    by_twin, by_itself = Measured(), Measured()
    with ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server, twin = (stack.enter_context(PrivateServer()) for _ in range(2))
        both = [(one.pid, stack.enter_context(loaded(one, options))) for one in (server, twin)]
        time.sleep(2)
        before = stretch(both)
        for number in range(options.rounds):
            capture = folder / f"{number}"
            command = [sys.executable, "-m", "tlstax", "attach", str(server.pid), "--quiet"]
            command += ["-o", str(capture), "--for", f"{RECORDED_S}s", *options.options]
            with subprocess.Popen(command, stderr=subprocess.PIPE) as recorder:
                time.sleep(ATTACHED_S)
                recorded = stretch(both)
                said_text = recorder.communicate()[1].decode()
            after = stretch(both)
            alone_us = fmean((before.server.each_us, after.server.each_us))
            alone_cpus = fmean((before.server.cpus, after.server.cpus))
            ratio = recorded.ratio / fmean((before.ratio, after.ratio))
            before = after
            if recorder.returncode:
                print(said_text.splitlines()[-1], flush=True)  # a host that is too busy
                continue
            found = said(capture)
            here = recorded.server
            count = sum(here.begin_ns <= one < here.end_ns for one in found.ends_ns)
            base = max(FLOOR_CPUS, alone_cpus)
            by_twin.add(ratio, base, alone_cpus, found.own_share)
            by_itself.add(here.each_us / alone_us, base, alone_cpus, found.own_share)
            print(
                f"{count} of {here.connects} handshakes ({count / here.connects:.3f}), with "
                f"handshakes {found.seen_share:.3f} of the time, said {found.cost_share:.2%}, of "
                f"it tlstax {found.own_share:.2%}; alone {alone_us:.0f} us a connection, "
                f"{alone_cpus:.3f} CPUs, recorded {ratio:.3f} times (by itself "
                f"{here.each_us / alone_us:.3f}), load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    by_twin.show("by the twin")
    by_itself.show("by itself")
    return 0


if __name__ == "__main__":
    sys.exit(main())
