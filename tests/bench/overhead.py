# SPDX-License-Identifier: GPL-2.0-only
"""What being watched costs a server: tlstax, with and without a budget, and its peers.

A private server answers TLS point selects on open connections, then a storm of TLS connects. One
driver runs for a whole round; while it does, each tool is attached for some seconds, in an order
that rotates, and nothing is before, after and in between. A tool's ratio in a round is its figure
over the mean of the two stretches without any tool next to it; the tables give the median over the
rounds with its 95 % interval. Operations a second are what clients see, and on a shared
host are noisy; the server's CPU time per operation (by the scheduler, probes included) is steadier.

Stretches of tlstax under its default budget are longer and begin with its start, whose trial is
part of what a recording costs. Whether a budget holds is a finer question: budget.py answers it.

Run by `make bench-overhead`. Always exits 0 when every run could be made: it is a report.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Final

from tlstax import TlstaxError
from tlstax.collectors.commands.options import DEFAULT_BUDGET
from tlstax.tests.bench.peer_tools import PEER_MAKERS
from tlstax.tests.bench.watching import (
    COUNTERS,
    SERVERS,
    TABLE_ROWS,
    Bench,
    Stretch,
    Tool,
    driven,
    interval,
    progress,
    tlstax,
    watched,
)
from tlstax.workloads.drivers.sysbench import Sysbench
from tlstax.workloads.servers.catalogue import find_kind
from tlstax.workloads.servers.lab_server import open_server

ARMS: Final = ("full", "default", *PEER_MAKERS)


@dataclass
class Figures:
    """All rounds of one tool: the stretch under it, and the mean of its two neighbours."""

    under: list[Stretch] = field(default_factory=list)
    beside: list[Stretch] = field(default_factory=list)

    def add(self, before: Stretch, under: Stretch, after: Stretch) -> None:
        """One more round."""
        self.under.append(under)
        self.beside.append(
            Stretch(
                fmean((before.per_second, after.per_second)),
                fmean((before.cpu_ns_per_operation, after.cpu_ns_per_operation)),
                before.operation_count + after.operation_count,
                clients_cpu_ns_per_operation=fmean(
                    (before.clients_cpu_ns_per_operation, after.clients_cpu_ns_per_operation)
                ),
            )
        )

    def speed(self) -> tuple[float, float, float]:
        """Ratio of the throughput: median and interval."""
        pairs = zip(self.under, self.beside, strict=True)
        return interval([one.per_second / other.per_second for one, other in pairs])

    def cost(self) -> tuple[float, float, float]:
        """Ratio of the CPU time per operation: median and interval."""
        pairs = zip(self.under, self.beside, strict=True)
        return interval(
            [one.cpu_ns_per_operation / other.cpu_ns_per_operation for one, other in pairs]
        )

    def beside_each_other(self) -> list[tuple[str, list[float], list[float]]]:
        """What tlstax says that an operation cost, and what it did, in us: what, said, measured."""
        server: tuple[list[float], list[float]] = ([], [])
        both: tuple[list[float], list[float]] = ([], [])
        for one, other in zip(self.under, self.beside, strict=True):
            own, neighbours = one.said_elsewhere_share or 0, one.said_neighbour_share or 0
            attached = (one.said_share or 0) - own
            us = one.cpu_ns_per_operation / 1e3
            more = us - other.cpu_ns_per_operation / 1e3
            clients = one.clients_cpu_ns_per_operation - other.clients_cpu_ns_per_operation
            server[0].append((attached - neighbours) * us)
            server[1].append(more)
            both[0].append(attached * us)
            both[1].append(more + clients / 1e3)
        return [("of the server", *server), ("of server and clients", *both)]


def tools(pid: int, arms: Sequence[str]) -> list[Tool]:
    """Those that can be had here; a line for each that cannot."""
    found = []
    for arm in arms:
        if arm == "full":
            found.append(tlstax("tlstax --budget none", pid, "--budget", "none"))
        elif arm == "default":
            found.append(tlstax("tlstax", pid, budget=DEFAULT_BUDGET))
        elif isinstance(tool := PEER_MAKERS[arm](pid), Tool):
            found.append(tool)
        else:
            print(f"{arm}: left out, {tool}")
    return found


def under(bench: Bench, tool: Tool, seconds: float) -> Stretch:
    """Some seconds under a tool. The trial of a budget, at its start, is part of them."""
    seen, own = watched(tool, lambda: bench.stretch(seconds))
    return replace(
        seen,
        tool_cpu_share=own.cpu_ns / seconds / 1e9,
        tool_rss_bytes=own.rss_bytes,
        hits_count=own.hits_count,
        said_share=own.said_share,
        said_elsewhere_share=own.said_elsewhere_share,
        said_neighbour_share=own.said_neighbour_share,
        hit_words=own.hit_words,
    )


def rounds_of(
    bench: Bench, scenario: str, chosen: Sequence[Tool], options: argparse.Namespace
) -> dict[str, Figures]:
    """Every tool in turn, `--rounds` times."""
    figures = {tool.name: Figures() for tool in chosen}
    lengths = [options.budget_seconds if tool.budget else options.seconds for tool in chosen]
    turns = list(zip(chosen, lengths, strict=True))
    for number in range(options.rounds):
        turn = number % len(chosen)
        with driven(bench.server, scenario, options.threads):
            before = bench.stretch(options.seconds)
            for tool, seconds in (*turns[turn:], *turns[:turn]):
                progress(f"{scenario}: round {number + 1} of {options.rounds}, {tool.name}")
                seen = under(bench, tool, seconds)
                after = bench.stretch(options.seconds)
                figures[tool.name].add(before, seen, after)
                before = after
    return figures


def show(title: str, figures: dict[str, Figures]) -> None:
    """Print one table, and who wins."""
    print(f"\n{title}")
    print(
        f"{'attached':<44}{'rounds':>7}{'ops/s':>9}{'ratio':>7}{'bounds':>14}{'CPU us/op':>11}"
        f"{'ratio':>8}{'bounds':>18}{'own CPU':>9}{'MB':>5}"
    )
    for name, one in figures.items():
        speed, cost = one.speed(), one.cost()
        own = fmean(run.tool_cpu_share for run in one.under)
        print(
            f"{name:<44}{len(one.under):>7}{median(run.per_second for run in one.under):>9.0f}"
            f"{speed[0]:>7.2f}{f'{speed[1]:.2f}..{speed[2]:.2f}':>14}"
            f"{median(run.cpu_ns_per_operation for run in one.under) / 1e3:>11.2f}"
            f"{cost[0]:>8.4f}{f'{cost[1]:.4f}..{cost[2]:.4f}':>18}"
            f"{own:>9.1%}{max(run.tool_rss_bytes for run in one.under) / 1e6:>5.0f}"
        )
    by_cost = sorted(figures, key=lambda name: figures[name].cost()[0])
    by_speed = sorted(figures, key=lambda name: -figures[name].speed()[0])
    print(f"least CPU per operation: {', '.join(by_cost)}")
    print(f"most operations: {', '.join(by_speed)}")
    for name, one in figures.items():
        show_own_words(name, one)


def show_own_words(name: str, figures: Figures) -> None:
    """What tlstax says that it cost, beside what it did."""
    if not figures.under or figures.under[0].said_share is None:
        return
    print(f"{name}: CPU time for an operation, in us")
    for what, said_us, measured_us in figures.beside_each_other():
        print(
            "  {}: said {:.2f} ({:.2f}..{:.2f}),".format(what, *interval(said_us)),
            "measured {:.2f} ({:.2f}..{:.2f}),".format(*interval(measured_us)),
            f"said / measured {median(said_us) / median(measured_us):.2f}",
        )
    for words, count in Counter(run.hit_words or "not told" for run in figures.under).items():
        print(f"  prices: {words}" + (f", {count} times" if count > 1 else ""))


def bench_server(name: str, options: argparse.Namespace) -> None:
    """Both loads on one server; a line if it is unavailable."""
    try:
        ready = open_server(find_kind(name))
    except TlstaxError as error:
        print(f"{name}: left out, {error}")
        return
    with ready as server:
        Sysbench.of_server(server, table_rows=TABLE_ROWS).prepare()
        chosen = tools(server.pid, options.arms)
        for scenario in options.scenario:
            with server.open_status() as status:
                bench = Bench(server, status, COUNTERS[scenario])
                figures = rounds_of(bench, scenario, chosen, options)
            print(file=sys.stderr)
            show(f"{name}, {scenario} over TLS, {options.threads} threads", figures)


def main() -> int:
    """Every server, load and tool that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8, help="of each tool")
    parser.add_argument("--seconds", type=float, default=4, help="of each stretch")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--scenario", action="append", choices=list(COUNTERS))
    parser.add_argument("--servers", type=lambda text: text.split(","), default=list(SERVERS))
    parser.add_argument("--arms", type=lambda text: text.split(","), default=list(ARMS))
    parser.add_argument("--budget-seconds", type=float, default=15, help="under a budget")
    options = parser.parse_args()
    options.scenario = options.scenario or list(COUNTERS)
    if unknown := set(options.arms) - set(ARMS):
        parser.error(f"no such arm: {', '.join(sorted(unknown))}; there are {', '.join(ARMS)}")
    for name in options.servers:
        bench_server(name, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
