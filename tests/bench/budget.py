# SPDX-License-Identifier: GPL-2.0-only
"""Whether a budget holds: the CPU time per operation of a watched server, beside its twin's.

Two private servers of one kind answer the same load at the same time. tlstax is attached to one of
them for some seconds, then to the other. What the host's neighbours do to caches and clocks, they
do to both; and what is different between the two changes sides, so the geometric mean of a round's
two ratios, watched to unwatched, is free of it. On a shared host such rounds of 20 s scattered by
0.5 to 1.5 %; stretches of one server in turns by 1.5 to 2.6 %, were they 0.5 or 20 s long.

The start of each recording, with its trial, is in its stretch. Rounds go on, up to --most-rounds,
until the 95 % interval (of the median) decides: upper bound <= 1 + budget, or lower bound
above it. What tlstax itself needs is printed beside it, as a share of the server's CPU time: the
server does not spend it. The twin pays, too, for what tlstax does at events of any process to find
that they are not the target's; that is not in the ratio, and not measured. With --budget nothing,
nothing is attached, and the ratio must be 1.

Run by `make bench-overhead`. Always exits 0 when every run could be made: it is a report.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import sqrt
from statistics import fmean, median
from typing import Final

from tlstax import TlstaxError
from tlstax.tests.bench.watching import (
    COUNTERS,
    SERVERS,
    TABLE_ROWS,
    Bench,
    Stretch,
    driven,
    interval,
    progress,
    tlstax,
    watched,
)
from tlstax.workloads.drivers.sysbench import Sysbench
from tlstax.workloads.servers.catalogue import find_kind
from tlstax.workloads.servers.lab_server import open_server

NOTHING: Final = "nothing"
FEWEST_ROUNDS: Final = 8
START_S: Final = 6  # a recording may take so long to start or end


@dataclass(frozen=True)
class Turn:
    """Some seconds in which one twin was watched."""

    watched: Stretch
    beside: Stretch
    own_share: float = 0.0  # of the watched server's CPU time, for tlstax itself
    said_share: float | None = None


@dataclass
class Rounds:
    """Rounds of two turns, one for each twin."""

    turns: list[tuple[Turn, Turn]] = field(default_factory=list)

    def cost(self) -> tuple[float, float, float]:
        """CPU time per operation, watched to unwatched: median and interval."""
        return interval(
            [
                sqrt(
                    one.watched.cpu_ns_per_operation
                    / one.beside.cpu_ns_per_operation
                    * other.watched.cpu_ns_per_operation
                    / other.beside.cpu_ns_per_operation
                )
                for one, other in self.turns
            ]
        )

    @property
    def single(self) -> list[Turn]:
        """All turns."""
        return [turn for pair in self.turns for turn in pair]


def share_of(budget: str) -> float | None:
    """The budget as a share of the server's CPU time; None when nothing is to be attached."""
    return None if budget == NOTHING else float(budget.rstrip("%")) / 100


def turn_of(twins: Sequence[Bench], number: int, options: argparse.Namespace) -> Turn:
    """Watch one of the twins while both work."""
    watched_one, other = twins[number], twins[1 - number]

    def both() -> tuple[Stretch, Stretch]:
        before = watched_one.look(), other.look()
        time.sleep(options.seconds)
        return before[0].until(watched_one.look()), before[1].until(other.look())

    share = share_of(options.budget)
    if share is None:
        return Turn(*both())
    pid = watched_one.server.pid
    tool = tlstax(f"--budget {options.budget}", pid, "--budget", options.budget, budget=share)
    (seen, beside), own = watched(tool, both)
    used_ns = seen.cpu_ns_per_operation * seen.operation_count
    return Turn(seen, beside, own.whole_cpu_ns / used_ns, own.said_share)


def decide(twins: Sequence[Bench], scenario: str, options: argparse.Namespace) -> Rounds:
    """Rounds until the interval decides, or there were enough."""
    share = share_of(options.budget)
    rounds = Rounds()
    while len(rounds.turns) < options.most_rounds:
        with (
            driven(twins[0].server, scenario, options.threads),
            driven(twins[1].server, scenario, options.threads),
        ):
            rounds.turns.append((turn_of(twins, 0, options), turn_of(twins, 1, options)))
        cost, low, high = rounds.cost()
        count = len(rounds.turns)
        progress(f"{scenario}, {options.budget}, round {count}: {cost:.4f} ({low:.4f}..{high:.4f})")
        if share and count >= FEWEST_ROUNDS and (high <= 1 + share or low > 1 + share):
            break
    return rounds


def show(name: str, scenario: str, rounds: Rounds, options: argparse.Namespace) -> None:
    """Print what was found."""
    cost, low, high = rounds.cost()
    turns = rounds.single
    verdict = ""
    if share := share_of(options.budget):
        limit = 1 + share
        verdict = "kept: " if high <= limit else "exceeded: " if low > limit else "undecided: "
        if len(rounds.turns) < FEWEST_ROUNDS:
            verdict = "undecided, too few rounds: "
    watched_ns, beside_ns = (
        median(stretch.cpu_ns_per_operation for stretch in stretches)
        for stretches in ([turn.watched for turn in turns], [turn.beside for turn in turns])
    )
    print(
        f"{name}, {scenario} over TLS, {options.threads} threads for each of two servers, budget "
        f"{options.budget}: {verdict}CPU time per operation {watched_ns / 1e3:.2f} us, of the "
        f"twin {beside_ns / 1e3:.2f} us; ratio {cost:.4f} ({low:.4f}..{high:.4f}), "
        f"{len(rounds.turns)} rounds of 2 x {options.seconds:g} s"
    )
    said = [turn.said_share for turn in turns if turn.said_share is not None]
    if said:
        print(
            f"  tlstax used {fmean(turn.own_share for turn in turns):.2%} of the server's CPU time "
            f"for itself, start and end included, and says that it cost {median(said):.2%} in all"
        )


def bench_server(name: str, options: argparse.Namespace) -> None:
    """Every load on two servers of a kind; a line if they are unavailable."""
    with ExitStack() as stack:
        try:
            servers = [stack.enter_context(open_server(find_kind(name))) for _ in range(2)]
        except TlstaxError as error:
            print(f"{name}: left out, {error}")
            return
        for server in servers:
            Sysbench.of_server(server, table_rows=TABLE_ROWS).prepare()
        for scenario in options.scenario:
            with servers[0].open_status() as one, servers[1].open_status() as other:
                counter = COUNTERS[scenario]
                twins = [Bench(servers[0], one, counter), Bench(servers[1], other, counter)]
                rounds = decide(twins, scenario, options)
            print(file=sys.stderr)
            show(name, scenario, rounds, options)


def main() -> int:
    """Every server and load that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", default="1%", help=f"as of tlstax attach, or {NOTHING}")
    parser.add_argument("--seconds", type=float, default=20, help="of each turn")
    parser.add_argument("--threads", type=int, default=1, help="of the load of each server")
    parser.add_argument("--most-rounds", type=int, default=30)
    parser.add_argument("--scenario", action="append", choices=list(COUNTERS))
    parser.add_argument("--servers", type=lambda text: text.split(","), default=list(SERVERS))
    options = parser.parse_args()
    options.scenario = options.scenario or list(COUNTERS)
    for name in options.servers:
        bench_server(name, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
