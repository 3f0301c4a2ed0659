# SPDX-License-Identifier: GPL-2.0-only
"""What the probes of a new TLS connection cost a server, measured and as tlstax would say.

    connects.py [--turns N] [--level LEVEL] [--rate R]    (make bench-connects)

A private MariaDB takes connections over TLS. In stretches of 0.8 s the probes of a level that are
on all the time are attached and not attached, in turn; programs are loaded outside of a stretch.
Measured: the server's CPU time for each connection that its own counter has, with the probes less
without, median of the turns with a 95 % interval. Said: hits for a connection, by their price in a
loop times what a trap counts in a server, and the run time of their programs, which the kernel
takes in stretches of its own. Samples and the recorder are in neither. Always exits 0.
"""

import argparse
import os
import sys
import time
from dataclasses import dataclass
from typing import Final

from tlstax.collectors.placement.model import Plan
from tlstax.collectors.placement.planning import plan_in_child
from tlstax.probes.model import Level
from tlstax.tests.background_load import in_background
from tlstax.tests.bench.watching import TABLE_ROWS, interval, progress
from tlstax.tests.loader.loaded import enable_statistics
from tlstax.tests.loader.native import Engine, Options
from tlstax.tests.processes import process_cpu_ns
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.status import StatusSession

SETTLE_S: Final = 0.1
IN_SITU: Final = 3.0  # as in collectors/recorder/metering.h
ACCEPTED: Final = "Ssl_finished_accepts"
"""The server's counter of handshakes."""


@dataclass(frozen=True)
class Stretch:
    """Connections of a stretch and the server's CPU time."""

    connects: int
    cpu_us: float  # for each


def stretch(pid: int, status: StatusSession, seconds: float) -> Stretch:
    """Let the server work."""
    time.sleep(SETTLE_S)
    count, cpu_ns = status.read()[ACCEPTED], process_cpu_ns(pid)
    time.sleep(seconds)
    cpu_ns, count = process_cpu_ns(pid) - cpu_ns, status.read()[ACCEPTED] - count
    return Stretch(int(count), cpu_ns / max(1, count) / 1e3)


def said_us(plan: Plan, engine: Engine, pid: int, status: StatusSession, seconds: float) -> float:
    """What tlstax would count for a connection, by one stretch in which programs are timed."""
    programs = ("on_enter", "on_leave")
    statistics = enable_statistics()
    try:
        hits, runs = engine.site_hits(), engine.program_times()
        connects = max(1, stretch(pid, status, seconds).connects)
        hits = [b - a for a, b in zip(hits, engine.site_hits(), strict=True)]
        run_ns = sum(engine.program_times()[name][0] - runs[name][0] for name in programs)
    finally:
        os.close(statistics)
    traps_ns = sum(n * site.cost_ns for n, site in zip(hits, plan.sites, strict=True))
    return (traps_ns * IN_SITU + run_ns) / connects / 1e3


def main() -> int:
    """Print both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=0.8, help="of each stretch")
    parser.add_argument("--threads", type=int, default=2, help="of the client")
    parser.add_argument("--rate", type=float, help="connections a second (as fast as they can)")
    parser.add_argument("--level", default="handshake")
    options = parser.parse_args()
    alone: list[float] = []
    ratios: list[float] = []
    added: list[float] = []
    with PrivateServer() as server:
        driver = Sysbench.of_server(server, table_rows=TABLE_ROWS)
        driver.prepare()
        load = Load(SCENARIOS["connect"], options.threads, 7200, rate_per_s=options.rate)
        with in_background(driver, load, "tls"), server.open_status() as status:
            time.sleep(2)
            _, plan = plan_in_child(server.pid, Level[options.level.upper()])
            said: list[float] = []
            for number in range(options.turns):
                progress(f"turn {number + 1} of {options.turns}")
                off = stretch(server.pid, status, options.seconds)
                engine = Engine(server.pid, plan, Options(sample_hz=0))
                engine.attach(dense=False)
                on = stretch(server.pid, status, options.seconds)
                if number % 6 == 0:
                    said.append(said_us(plan, engine, server.pid, status, options.seconds))
                engine.close()
                alone.append(off.cpu_us)
                ratios.append(on.cpu_us / off.cpu_us)
                added.append(on.cpu_us - off.cpu_us)
    low, high = min(said), max(said)
    print(
        f"level {options.level}, {options.turns} turns: a connection takes "
        f"{interval(alone)[0]:.0f} us of the server's CPU time; with the probes "
        "{:.3f} ({:.3f}..{:.3f}) times as much, ".format(*interval(ratios))
        + "{:.0f} us ({:.0f}..{:.0f}) more; ".format(*interval(added))
        + f"said: {interval(said)[0]:.0f} us ({low:.0f}..{high:.0f})"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
