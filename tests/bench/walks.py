# SPDX-License-Identifier: GPL-2.0-only
"""What walking stacks by unwind tables costs more than by frame pointers (`make bench-walks`).

    walks.py [--seconds N] [--turns N] [--hz N] [--output FILE]

A walk: each sample of a busy MariaDB is walked by both, twice. The first of the two pays for cold
caches, so cold times are of samples in which it came first; hot times are of the second walks, when
both have been walked once. Medians with 95 % intervals of order statistics.

Throughput: TLS point selects in stretches that are sampled with frame pointers and with tables, in
turns; which of the two is first alternates. Exits 1 if a bound is exceeded (4 us cold, 1 us hot),
or if the interval of the throughput's ratio excludes 1. The verdicts need a quiet host.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from math import hypot
from pathlib import Path
from typing import Final

from tlstax.analysis.statistics.medians import Estimate, of_values
from tlstax.analysis.statistics.units import rounds
from tlstax.collectors.placement.planning import plan_in_child
from tlstax.probes.model import Level
from tlstax.tests.background_load import in_background
from tlstax.tests.bench.switched import TIMED, Latencies, Stretch, Turn, stretch
from tlstax.tests.bench.watching import TABLE_ROWS, interval, progress
from tlstax.tests.loader.native import Engine, Options
from tlstax.tests.truth.stacks.paths import Functions
from tlstax.tests.truth.stacks.samples import StackCheck, Verdict
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.mariadb import PrivateServer

COLD_MOST_NS, HOT_MOST_NS = 4000.0, 1000.0
LOADS: Final = {"TLS connects": "connect", "TLS point selects": "point_select"}
THREADS: Final = 2
_LOAD_MOST_S: Final = 7200


def walk_times(
    server: PrivateServer, driver: Sysbench, load: str, seconds: int, hz: int
) -> Verdict:
    """Both walks of the samples of a load."""
    verdict = Verdict()
    check = StackCheck(server.pid, hz, verdict, Functions(server.pid))
    try:
        wanted = Load(SCENARIOS[LOADS[load]], THREADS, seconds)
        driver.run(wanted, "tls", lambda _: check.poll())
        check.finish()
    finally:
        check.close()
    return verdict


def median_of(values_ns: Sequence[int]) -> Estimate:
    """The median of single walks with its interval."""
    return of_values([float(value) for value in values_ns], rounds(len(values_ns)))


def difference(tables: Estimate, pointers: Estimate) -> Estimate:
    """By how much one median is above the other, in ns; without bounds if one has none."""
    value = tables.value - pointers.value
    bounds = tables.low, tables.high, pointers.low, pointers.high
    known = [bound for bound in bounds if bound is not None]
    if len(known) < len(bounds):
        return Estimate(value)
    low, high, below, above = known
    down = hypot(tables.value - low, above - pointers.value)
    up = hypot(high - tables.value, pointers.value - below)
    return Estimate(value, value - down, value + up)


def microseconds(found: Estimate) -> str:
    """For people."""
    text = f"{found.value / 1e3:.2f}"
    if found.low is None or found.high is None:
        return text
    return f"{text} ({found.low / 1e3:.2f}..{found.high / 1e3:.2f})"


def rows_of(load: str, v: Verdict) -> tuple[list[str], list[str]]:
    """(rows of the table, bounds that are exceeded) of one load."""
    rows, faults = [], []
    cold, hot = (v.tables_ns, v.pointers_ns), (v.tables_again_ns, v.pointers_again_ns)
    for name, sides, most_ns in ("cold", cold, COLD_MOST_NS), ("hot", hot, HOT_MOST_NS):
        if not all(sides):
            faults.append(f"{load}: no {name} walk")
            continue
        tables, pointers = map(median_of, sides)
        more = difference(tables, pointers)
        counts = " and ".join(f"{len(one):,}" for one in sides)
        cells = [load, name, counts, *map(microseconds, (tables, pointers, more))]
        rows.append(f"| {' | '.join(cells)} |")
        if more.value > most_ns:
            faults.append(f"{load}, {name}: {microseconds(more)} us more")
    return rows, faults


def turns(pid: int, options: argparse.Namespace) -> list[Turn]:
    """Stretches that are sampled with frame pointers (`off` of a turn) and with tables (`on`)."""
    _, plan = plan_in_child(pid, Level.SAMPLE)
    made = []
    for number in range(options.turns):
        progress(f"turn {number + 1} of {options.turns}")
        found: dict[bool, Stretch] = {}
        for by_tables in (True, False) if number % 2 else (False, True):
            engine = Engine(pid, plan, Options(sample_hz=options.hz, unwind_tables=by_tables))
            try:
                engine.attach(dense=False)
                found[by_tables] = stretch(pid, options.stretch)
            finally:
                engine.close()
        made.append(Turn("tables", found[False], found[True]))
    return made


def throughput(server: PrivateServer, driver: Sysbench, options: argparse.Namespace) -> list[float]:
    """Queries a second with tables, as ratios to those with frame pointers."""
    with in_background(driver, Load(TIMED, THREADS, _LOAD_MOST_S)):
        made = turns(server.pid, options)
    latencies = Latencies(sorted(server.client_directory.glob("latencies.*")))
    pairs = [(latencies.within(turn.on)[1], latencies.within(turn.off)[1]) for turn in made]
    return [on / off for on, off in pairs if off]


def main() -> int:
    """Both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60, help="of each load, for single walks")
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--stretch", type=float, default=2.0, help="seconds of each")
    parser.add_argument("--hz", type=int, default=99)
    parser.add_argument("--output", type=Path, help="also append the tables to this file")
    options = parser.parse_args()
    lines = ["| load | caches | walks | by tables, us | frame pointers, us | more, us |"]
    lines.append("|---|---|---|---|---|---|")
    faults = []
    with PrivateServer() as server:
        driver = Sysbench.of_server(server, table_rows=TABLE_ROWS)
        driver.prepare()
        for load in LOADS:
            seen = walk_times(server, driver, load, options.seconds, options.hz)
            rows, exceeded = rows_of(load, seen)
            lines += rows
            faults += exceeded
        ratios = throughput(server, driver, options)
    middle, low, high = interval(ratios)
    ratio = f"{middle:.3f} ({low:.3f}..{high:.3f})"
    lines += ["", f"Throughput with tables at {options.hz} Hz, of that with frame pointers:"]
    lines += [f"{ratio} in {len(ratios)} turns of {options.stretch:g} s."]
    if not low <= 1 <= high:
        faults.append(f"throughput {ratio}")
    lines += ["", f"Load of the host: {os.getloadavg()[0]:.1f}", ""]
    text = "\n".join(lines)
    print(text)
    if options.output:
        with options.output.open("a", encoding="utf-8") as stream:
            stream.write(text)
    for fault in faults:
        print(f"FAULT: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
