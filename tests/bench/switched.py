# SPDX-License-Identifier: GPL-2.0-only
"""What a level costs a busy server, by stretches of 0.6 s with its probes on and off in turn.

A private MariaDB answers TLS point selects, as fast as its clients can or at a rate. The programs
of each level are loaded once; attaching and detaching is not part of a stretch. The clients keep
the latency of every query, so throughput, CPU time for a query (of the server, by the scheduler)
and p50, p99 and p99.9 as the client sees them come from the same stretches. Throughput and CPU
time are the medians of ratios of each stretch with probes to the one before it, with 95 %
intervals; percentiles are those of all queries of all stretches together.

It measures the probes and programs that queries cross; what a collector needs to read them is not
part of it (overhead.py has that), and samples, if any, are on all the time. A verdict needs some
200 turns on a quiet host. Always exits 0 when every stretch could be made: it is a report.
"""

import argparse
import os
import platform
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from tlstax.collectors.host.clock import monotonic_ns
from tlstax.collectors.placement.planning import plan_in_child
from tlstax.probes.model import Level
from tlstax.tests.background_load import in_background
from tlstax.tests.bench.watching import TABLE_ROWS, interval, progress
from tlstax.tests.loader.native import Engine, Options
from tlstax.tests.processes import process_cpu_ns
from tlstax.workloads.drivers.sysbench import Load, Scenario, Sysbench
from tlstax.workloads.servers.mariadb import PrivateServer

HERE: Final = Path(__file__).parent
TIMED: Final = Scenario(
    "timed", "pooled", str(HERE / "switched_latency.lua"), True, "oltp_point_select"
)
SLOT_NS: Final = 50_000_000
BUCKETS: Final = 480
PER_OCTAVE: Final = 24
_ROW_BYTES: Final = 2 * (2 + BUCKETS)
SETTLE_S: Final = 0.1
"""Of a stretch, after attaching or detaching."""
QUANTILES: Final = (0.5, 0.99, 0.999)
OFF: Final = "off"
_LOAD_MOST_S: Final = 7200

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Stretch:
    """When it was, and the server's CPU time in it."""

    start_ns: int
    end_ns: int
    cpu_ns: int


@dataclass
class Turn:
    """A stretch without probes, and the stretch with those of a level after it."""

    level: str
    off: Stretch
    on: Stretch


class Latencies:
    """What the clients' threads kept: queries by slot of time and by latency."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._threads: list[tuple[int, Counts]] = []
        for file in files:
            with file.open("rb") as stream:
                began_ns = int(stream.readline())
                content = stream.read()
            whole = len(content) // _ROW_BYTES * _ROW_BYTES  # the last one may be cut
            rows = np.frombuffer(content[:whole], np.uint16).reshape(-1, _ROW_BYTES // 2)
            slots = rows[:, 0] + (rows[:, 1].astype(np.int64) << 16)
            counts = np.zeros((int(slots[-1]) + 1, BUCKETS), np.int64)
            counts[slots] = rows[:, 2:]
            self._threads.append((began_ns, counts))

    def within(self, stretch: Stretch) -> tuple[Counts, float]:
        """Queries by latency in the slots that lie in a stretch, and how many there were a second.

        The slots of each thread begin at a time of its own.
        """
        found = np.zeros(BUCKETS, np.int64)
        per_second = 0.0
        for began_ns, counts in self._threads:
            first = -(-(stretch.start_ns - began_ns) // SLOT_NS)
            last = min((stretch.end_ns - began_ns) // SLOT_NS, len(counts))
            mine = counts[first:last].sum(axis=0)
            found += mine
            per_second += float(mine.sum()) / max(1, last - first) * 1e9 / SLOT_NS
        return found, per_second


def quantile_us(counts: Counts, q: float) -> float:
    """A quantile of a histogram: the middle of its bucket."""
    bucket = int(np.searchsorted(np.cumsum(counts), q * counts.sum()))
    return float(2.0 ** ((bucket + 0.5) / PER_OCTAVE))


@dataclass
class Figures:
    """Of one level, or of the stretches without probes."""

    counts: Counts = field(default_factory=lambda: np.zeros(BUCKETS, np.int64))
    per_second: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)

    def add(self, latencies: Latencies, stretch: Stretch) -> None:
        """One more stretch."""
        counts, per_second = latencies.within(stretch)
        self.counts += counts
        self.per_second.append(per_second)
        queries = per_second * (stretch.end_ns - stretch.start_ns) / 1e9
        self.cpu_us.append(stretch.cpu_ns / max(1.0, queries) / 1e3)


def table(turns: Sequence[Turn], latencies: Latencies) -> list[str]:
    """The lines of the table, in Markdown."""
    heads = ["level", "turns", "queries/s", "ratio", "CPU us a query", "ratio"]
    heads += [f"p{q * 100:g} us" for q in QUANTILES]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for level in dict.fromkeys(turn.level for turn in turns):
        off, on = Figures(), Figures()
        for turn in turns:
            if turn.level == level:
                off.add(latencies, turn.off)
                on.add(latencies, turn.on)
        lines += [_row(f"{OFF}, beside {level}", off, off), _row(level, on, off)]
    return lines


def _row(name: str, mine: Figures, others: Figures) -> str:
    cells = [name, str(len(mine.per_second))]
    for values, beside in (mine.per_second, others.per_second), (mine.cpu_us, others.cpu_us):
        cells.append(f"{np.median(values):.1f}")
        ratios = [one / other for one, other in zip(values, beside, strict=True) if other]
        middle, low, high = interval(ratios)
        cells.append("1" if mine is others else f"{middle:.3f} ({low:.3f}..{high:.3f})")
    cells += [f"{quantile_us(mine.counts, q):.0f}" for q in QUANTILES]
    return f"| {' | '.join(cells)} |"


def stretch(pid: int, seconds: float) -> Stretch:
    """Let the server work."""
    time.sleep(SETTLE_S)
    start_ns, cpu_ns = monotonic_ns(), process_cpu_ns(pid)
    time.sleep(seconds)
    return Stretch(start_ns, monotonic_ns(), process_cpu_ns(pid) - cpu_ns)


def switched(pid: int, options: argparse.Namespace) -> list[Turn]:
    """All stretches, the levels or builds one after the other."""
    turns = []
    arms = [(name, name, None) for name in options.levels]
    arms = [(path.name, options.levels[0], path) for path in options.programs] or arms
    with ExitStack() as stack:
        engines = []
        for arm, level, programs in arms:
            _, plan = plan_in_child(pid, Level[level.upper()])
            engine = Engine(pid, plan, Options(sample_hz=options.sample_hz, programs=programs))
            stack.callback(engine.close)
            engine.attach(dense=False)
            engines.append((arm, engine))
        for number in range(options.turns):
            progress(f"turn {number + 1} of {options.turns}")
            for arm, engine in engines:
                off = stretch(pid, options.seconds)
                engine.attach_dense()
                on = stretch(pid, options.seconds)
                engine.detach_dense()
                turns.append(Turn(arm, off, on))
    return turns


def loaded(server: PrivateServer, options: argparse.Namespace) -> list[str]:
    """The table of one server under the load."""
    driver = Sysbench.of_server(server, table_rows=TABLE_ROWS)
    driver.prepare()
    load = Load(TIMED, options.threads, _LOAD_MOST_S, rate_per_s=options.rate)
    with in_background(driver, load):
        time.sleep(2)
        turns = switched(server.pid, options)
    return table(turns, Latencies(sorted(server.client_directory.glob("latencies.*"))))


def put(page: Path, name: str, text: str) -> None:
    """Replace what stands between the marks of this name in a page."""
    begin, end = f"<!-- switched {name}: begin -->", f"<!-- switched {name}: end -->"
    before, found, rest = page.read_text().partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise SystemExit(f"switched.py: {page} has no lines {begin} and {end}")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}")


def main() -> int:
    """One table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=200, help="of each level")
    parser.add_argument("--seconds", type=float, default=0.6, help="of each stretch")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rate", type=float, help="queries a second (as fast as they can)")
    parser.add_argument("--sample-hz", type=int, default=0, help="of all stretches (none)")
    parser.add_argument("--levels", type=lambda text: text.split(","), default=["flow", "record"])
    parser.add_argument(
        "--programs",
        type=Path,
        nargs="+",
        default=[],
        help="compare these builds of the programs at the first level, not levels",
    )
    parser.add_argument("--output", type=Path, help="also append the table to this file")
    parser.add_argument(
        "--page",
        type=Path,
        help="also put it into this page, between its marks: saturated, at-RATE",
    )
    options = parser.parse_args()
    with PrivateServer() as server:
        lines = loaded(server, options)
    load = f"{options.rate:g} queries a second" if options.rate else "as fast as they can"
    text = "\n".join(["", f"TLS point selects, {options.threads} threads, {load}:", "", *lines, ""])
    print(text)
    if options.output:
        with options.output.open("a") as stream:
            stream.write(text)
    if options.page:
        name = f"at-{options.rate:g}" if options.rate else "saturated"
        when = f"Run on {date.today()}, Linux {platform.release()}, {os.cpu_count()} CPUs."
        put(options.page, name, f"{text.rstrip()}\n\n{when}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
