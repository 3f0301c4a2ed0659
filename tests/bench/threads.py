# SPDX-License-Identifier: GPL-2.0-only
"""What an event costs at level `flow`, by the number of threads, CPUs and connections.

    threads.py [--rounds N] [--page FILE]    (make bench-threads)

Threads, and CPUs that they may use: programs of 10 to 10,000 threads that wake each other, one
after the other in a ring, so that each event is one of a thread whose account was last used a whole
turn of the ring ago. Connections: a MariaDB with 10 to 1,000 of them, each asked in turn for the
same reason. All are run in rounds, in changing order, while the kernel counts the time of BPF
programs. These also run at other processes' events, which are short: the share of own runs is
given, and what such a run costs while nothing is asked is taken off the time of a query. Other work
on the host makes runs longer and never shorter, so the table has lower quartiles of the rounds.
"""

import argparse
import contextlib
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from tlstax.collectors.placement.planning import plan_in_child
from tlstax.probes.model import Level
from tlstax.tests.bench.switched import put
from tlstax.tests.bench.watching import interval
from tlstax.tests.e2e.levels.raw_client import RawClient
from tlstax.tests.loader.loaded import enable_statistics
from tlstax.tests.loader.native import Engine, Options
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.request import ServerRequest

REPOSITORY: Final = Path(__file__).resolve().parents[2]
THREADS: Final = (10, 100, 1000, 10_000)
CONNECTIONS: Final = (10, 100, 1000)
HOPS, ASKED = 20_000, 1500
HOP_EVENTS, QUERY_EVENTS = 3, 7
PINNED: Final = 100
ROOM: Final = 16_384
SCHEDULER: Final = ("on_switch", "on_wakeup")
OWN: Final = "own"
WALKED: Final = 4096  # of so many waits one has its stacks walked, as in a busy server
REST_S: Final = 0.4


@dataclass
class Crowd:
    """So many threads or connections, what they do, and what it cost."""

    count: int
    engine: Engine
    work: Callable[[], int]  # returns how many of the process's own runs there were, about
    runs_ns: list[dict[str, float]] = field(default_factory=list)  # of each program, by stretch
    spent: list[tuple[int, int, int]] = field(default_factory=list)  # ns, runs, own runs
    other_ns: list[float] = field(default_factory=list)  # a run while nothing is asked

    def measure(self) -> None:
        """One stretch at work."""
        self.engine.attach_dense()
        before = self.engine.program_times()
        own_count = self.work()
        after = self.engine.program_times()
        time.sleep(REST_S)
        rested = self.engine.program_times()
        self.engine.detach_dense()
        other_ns, others = (sum(rested[n][at] - after[n][at] for n in after) for at in (0, 1))
        self.other_ns.append(other_ns / max(1, others))
        runs = {name: after[name][1] - number for name, (_, number) in before.items()}
        spent = {name: after[name][0] - ns for name, (ns, _) in before.items()}
        self.runs_ns.append({name: spent[name] / runs[name] for name in runs if runs[name]})
        self.spent.append((sum(spent.values()), sum(runs.values()), own_count))

    @property
    def own_share(self) -> float:
        """Of all runs."""
        return min(1.0, median(own / max(1, runs) for _, runs, own in self.spent))

    def own_ns(self) -> list[float]:
        """A run at an event of its own, by stretch."""
        other_ns = median(self.other_ns)
        return [(ns - max(0, runs - own) * other_ns) / own for ns, runs, own in self.spent]

    def program_ns(self, name: str) -> list[float]:
        """A run of this program, by stretch."""
        return [one[name] for one in self.runs_ns if name in one]


def engine_on(pid: int, stack: ExitStack) -> Engine:
    """The programs of level `flow`, loaded."""
    _, plan = plan_in_child(pid, Level.FLOW, REPOSITORY / "tests/testprogs")
    engine = Engine(pid, plan, Options(sample_hz=0, slots_count=ROOM))
    stack.callback(engine.close)
    engine.walk_waits(WALKED)
    engine.attach(dense=False)
    return engine


@contextmanager
def crowds() -> Iterator[list[Crowd]]:
    """Programs of so many threads, at rest."""
    with ExitStack() as stack:
        yield [_crowd(count, stack) for count in THREADS]


@contextmanager
def pinned() -> Iterator[list[Crowd]]:
    """Programs of the same number of threads that may use so many CPUs."""
    allowed = sorted(os.sched_getaffinity(0))
    counts = [1 << bit for bit in range(len(allowed).bit_length())]
    with ExitStack() as stack:
        yield [
            replace(_crowd(PINNED, stack, allowed[:count]), count=count)
            for count in counts
            if count <= len(allowed)
        ]


def _crowd(count: int, stack: ExitStack, cpus: Sequence[int] = ()) -> Crowd:
    program = REPOSITORY / "tests/testprogs/bin/crowd"
    process = stack.enter_context(
        subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    )
    stack.callback(process.kill)
    assert process.stdout is not None
    process.stdout.readline()  # it has started
    if cpus:
        os.sched_setaffinity(process.pid, cpus)

    def order(text: str) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{text}\n".encode())
        process.stdout.readline()

    def relay() -> int:
        order(f"p {HOPS}")
        return HOPS * HOP_EVENTS

    order(f"+ {count}")
    return Crowd(count, engine_on(process.pid, stack), relay)


@contextmanager
def servers() -> Iterator[list[Crowd]]:
    """A server for each number of connections, which are open and asked one after the other."""
    with ExitStack() as stack:
        yield [_connections(count, stack) for count in CONNECTIONS]


def _connections(count: int, stack: ExitStack) -> Crowd:
    request = ServerRequest(options=(f"max_connections = {count + 50}",))
    server = stack.enter_context(PrivateServer(request))
    clients = [RawClient(server, None) for _ in range(count)]
    for client in clients:
        stack.enter_context(contextlib.closing(client))

    def ask() -> int:
        for number in range(ASKED):
            clients[number % count].ask("DO 1")
        return ASKED * QUERY_EVENTS

    return Crowd(count, engine_on(server.pid, stack), ask)


def rounds(all_of: Sequence[Crowd], rounds_count: int) -> None:
    """Each measured once a round, in another order."""
    for number in range(rounds_count):
        at = number % len(all_of)
        for crowd in (*all_of[at:], *all_of[:at]):
            crowd.measure()


def table(all_of: Sequence[Crowd], what: str, programs: Sequence[str]) -> list[str]:
    """In Markdown: lower quartiles with the range of the rounds, and ratios within rounds."""
    base = all_of[0]
    heads = [what, *(f"{name}, ns a run | ratio to {base.count}" for name in (*programs, OWN))]
    lines = [f"| {' | '.join(heads)} | own runs |", f"|{'---|' * (4 + 2 * len(programs))}"]
    for crowd in all_of:
        cells = [f"{crowd.count:,}"]
        for name in (*programs, OWN):
            mine, others = (
                c.own_ns() if name == OWN else c.program_ns(name) for c in (crowd, base)
            )
            ratio, low, high = interval([one / two for one, two in zip(mine, others, strict=True)])
            cells.append(f"{quantiles(mine, n=4)[0]:.0f} ({min(mine):.0f}..{max(mine):.0f})")
            cells.append("1" if crowd is base else f"{ratio:.2f} ({low:.2f}..{high:.2f})")
        lines.append(f"| {' | '.join(cells)} | {crowd.own_share:.0%} |")
    return lines


def main() -> int:
    """Both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--page", type=Path, help="also put them into this page, between its marks")
    options = parser.parse_args()
    lines = [f"{options.rounds} rounds on {date.today()}, Linux {platform.release()}:", ""]
    statistics_fd = enable_statistics()
    assert statistics_fd >= 0
    for made, what, programs in (
        (crowds, "threads", SCHEDULER),
        (pinned, "CPUs", SCHEDULER),
        (servers, "connections", ()),
    ):
        with made() as all_of:
            rounds(all_of, options.rounds)
        lines += [*table(all_of, what, programs), ""]
        print("\n".join(lines), flush=True)
    if options.page:
        put(options.page, "threads", "\n".join(lines).rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
