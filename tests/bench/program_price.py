# SPDX-License-Identifier: GPL-2.0-only
"""What the programs of level `flow` take for a query: builds of them compared on one server.

A private MariaDB answers TLS point selects. In short stretches that take turns each build is
attached alone, while the kernel times its programs (kernel.bpf_stats_enabled). How many events a
query has depends on what else the host does, so a build's price is the time of a run of each
program, times its runs for each command over all stretches of all builds. Other work on the host
makes runs longer and never shorter: the table gives the lower quartile of the stretches, and the
median ratio to the first build in the same turn with its 95 % interval. Give one build twice, too:
two copies of it may differ by a percent or two (docs/measurements/flow.md).

    make bpf; cp probes/bpf/ledger.bpf.o /tmp/before.bpf.o    # and after a change:
    python tests/bench/program_price.py /tmp/before.bpf.o probes/bpf/ledger.bpf.o

Always exits 0 when every stretch could be made: it is a report.
"""

import argparse
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles

from tlstax.collectors.capture.vocabulary import PHASES
from tlstax.collectors.placement.planning import plan_in_child
from tlstax.probes.model import Level
from tlstax.tests.background_load import in_background
from tlstax.tests.bench.watching import TABLE_ROWS, interval
from tlstax.tests.loader.loaded import enable_statistics
from tlstax.tests.loader.native import Engine, Options
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.mariadb import PrivateServer

_STRETCH_S = 0.6
_COMMAND = PHASES.index("command")
_THREADS = 2
_LOAD_MOST_S = 3600
_SELDOM = 0.05  # runs of a program for a query that are not counted


class Build:
    """One build of the programs, loaded, and what it took in its stretches."""

    def __init__(self, pid: int, programs: Path, level: Level) -> None:
        self.name = programs.name
        _, plan = plan_in_child(pid, level)
        self.engine = Engine(pid, plan, Options(sample_hz=0, slots_count=1024, programs=programs))
        self.engine.attach(dense=False)
        self.runs_ns: list[dict[str, float]] = []
        self.runs: list[dict[str, float]] = []

    def stretch(self) -> None:
        """Attach it for a while, and keep how long each program's runs were, and how many."""
        self.engine.attach_dense()
        before, count = self.engine.program_times(), self._count()
        time.sleep(_STRETCH_S)
        after, commands = self.engine.program_times(), self._count() - count
        self.engine.detach_dense()
        spent = {name: after[name][0] - ns for name, (ns, _) in before.items()}
        runs = {name: after[name][1] - number for name, (_, number) in before.items()}
        self.runs_ns.append({name: spent[name] / runs[name] for name in runs if runs[name]})
        self.runs.append({name: number / max(1, commands) for name, number in runs.items()})

    def prices_ns(self, runs: Mapping[str, float]) -> list[float]:
        """Of a query with so many runs of each program, by each stretch."""
        return [sum(n * one.get(name, 0.0) for name, n in runs.items()) for one in self.runs_ns]

    def _count(self) -> int:
        return sum(slot.counts[_COMMAND] for slot in self.engine.maps.slots())


def low_quartile(values: list[float]) -> float:
    """A quarter of the values is below it."""
    return quantiles(values, n=4)[0]


def show(builds: list[Build]) -> None:
    """The table, in Markdown."""
    seen = [one for build in builds for one in build.runs]
    runs = {name: median(one[name] for one in seen) for name in seen[0]}
    runs = {name: number for name, number in runs.items() if number >= _SELDOM}
    firsts = builds[0].prices_ns(runs)
    heads = [f"{name}, {number:.1f} runs" for name, number in runs.items()]
    print(f"\n| build | stretches | ns a query | ratio | {' | '.join(heads)} |")
    print(f"|{'---|' * (4 + len(heads))}")
    for build in builds:
        prices = build.prices_ns(runs)
        pairs = zip(prices, firsts, strict=True)
        ratio, low, high = interval([mine / first for mine, first in pairs])
        each = " | ".join(
            f"{low_quartile([one[name] for one in build.runs_ns]):.0f}" for name in runs
        )
        print(
            f"| {build.name} | {len(prices)} | {low_quartile(prices):.0f} | "
            f"{ratio:.3f} ({low:.3f}..{high:.3f}) | {each} |"
        )


def main() -> int:
    """Every build in turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("builds", nargs="+", type=Path)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--level", choices=("flow", "record"), default="flow")
    options = parser.parse_args()
    with PrivateServer() as server, ExitStack() as stack:
        driver = Sysbench.of_server(server, table_rows=TABLE_ROWS)
        driver.prepare()
        builds = []
        for path in options.builds:
            builds.append(Build(server.pid, path, Level[options.level.upper()]))
            stack.callback(builds[-1].engine.close)
        statistics = enable_statistics()
        with in_background(driver, Load(SCENARIOS["point_select"], _THREADS, _LOAD_MOST_S)):
            time.sleep(1)
            for turn in range(options.turns):
                at = turn % len(builds)
                for build in (*builds[at:], *builds[:at]):
                    build.stretch()
        assert statistics >= 0
        show(builds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
