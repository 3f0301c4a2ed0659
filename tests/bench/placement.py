# SPDX-License-Identifier: GPL-2.0-only
"""What the placement of probes is worth: planned sites against the start of the same functions.

A private MariaDB server answers TLS point selects. In every round each arm is attached once, in an
order that rotates: nothing; the probes of tlstax's plan; probes on the first instruction of the
plan's functions, with return probes for exits; and the same two for SSL_read and SSL_write, which
is where most tools look. All arms run the same program, which counts hits, on one uprobe_multi
link for each file and kind, so that nothing but the place differs.

Printed are queries a second, their ratio to nothing attached, and planned against start: medians
over the rounds with their bounds. Run by `make bench-placement`.
"""

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from statistics import median

from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.host import bpf
from tlstax.collectors.host.trial_code import count_program, counter_map, kept
from tlstax.collectors.placement.model import Site
from tlstax.collectors.placement.placement import points_of
from tlstax.collectors.placement.planning import plan_in_child
from tlstax.collectors.process.mappings import MappedObject
from tlstax.tests.bench.watching import bounds_name, interval
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.request import ServerRequest

TABLE_ROWS = 10_000
NAMELESS = re.compile(r"\[.*\+(0x[0-9a-f]+)\]")
NOTHING, PLAN, PLAN_START = "nothing", "tlstax's plan", "the same functions, at their start"
TLS, TLS_START = "SSL_read and SSL_write, planned", "SSL_read and SSL_write, at their start"
PAIRS = ((PLAN, PLAN_START), (TLS, TLS_START), (PLAN, TLS_START))


@dataclass(frozen=True)
class Place:
    """One probe of an arm."""

    path: str
    offset_bytes: int
    is_return: bool


@dataclass(frozen=True)
class Run:
    """One run under one arm."""

    per_second: float
    hits_per_operation: float


def planned(sites: Iterable[Site]) -> list[Place]:
    """Where the plan puts them."""
    return [Place(s.object.open_path, s.file_offset, s.kind == "uretprobe") for s in sites]


def at_start(sites: Iterable[Site]) -> list[Place]:
    """On the first instruction of the same functions; every exit is a return probe."""
    places = set()
    for site in sites:
        with Elf(site.object.open_path) as elf:
            nameless = NAMELESS.fullmatch(site.function)
            found = elf.find(re.compile(re.escape(site.function)))
            address = int(nameless[1], 16) if nameless else found[0].address
            offset = elf.to_offset(address)
        if offset is not None:
            places.add(Place(site.object.open_path, offset, site.event == "exit"))
    return sorted(places, key=lambda place: (place.path, place.offset_bytes))


def library_sites(library: MappedObject, like: Site, names: Sequence[str]) -> list[Site]:
    """Entry and exit of named functions of a library, as the planner places them."""
    sites = []
    with Elf(library.open_path) as elf:
        for name in names:
            (symbol,) = elf.find(re.compile(name))
            for event, point in points_of(elf, symbol, ("enter", "exit")):
                offset = elf.to_offset(point.address)
                assert offset is not None
                site = replace(like, object=library, function=name, event=event, kind=point.kind)
                sites.append(replace(site, file_offset=offset, stepped=not point.emulated))
    return sites


@contextmanager
def attached(places: Iterable[Place], pid: int, counter: int) -> Iterator[None]:
    """The arm's probes on the process, each counting its hits."""
    groups: dict[tuple[str, bool], list[int]] = defaultdict(list)
    for place in places:
        groups[place.path, place.is_return].append(place.offset_bytes)
    with ExitStack() as stack:
        for (path, is_return), offsets in groups.items():
            code = count_program(counter)
            program = bpf.load_program(bpf.ProgramType.KPROBE, code, bpf.ATTACH_UPROBE_MULTI)
            kept(stack, program)
            unique = sorted(set(offsets))
            cookies = [0] * len(unique)
            kept(stack, bpf.attach_uprobe_multi(program, path, unique, cookies, pid, is_return))
        yield


def ratio_text(ratios: Sequence[float]) -> str:
    """Median, and its bounds."""
    return "{:.2f} ({:.2f} .. {:.2f})".format(*interval(ratios))


def show(runs: dict[str, list[Run]], rounds: int) -> None:
    """Print the arms, then the pairs."""
    bare = [run.per_second for run in runs[NOTHING]]
    print(f"\nTLS point selects, {rounds} rounds; medians with {bounds_name(rounds)}")
    print(f"{'probes':40}{'queries/s':>10}{'hits/query':>12}  of nothing attached")
    for name, under in runs.items():
        ratios = [run.per_second / other for run, other in zip(under, bare, strict=True)]
        print(
            f"{name:40}{median(run.per_second for run in under):>10.0f}"
            f"{median(run.hits_per_operation for run in under):>12.2f}  {ratio_text(ratios)}"
        )
    for one, other in PAIRS:
        pairs = zip(runs[one], runs[other], strict=True)
        ratio = ratio_text([a.per_second / b.per_second for a, b in pairs])
        print(f"{one} : {other} = {ratio}")


def main() -> int:
    """All arms, interleaved."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=int, default=3, help="of each run")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    load = Load(SCENARIOS["point_select"], options.threads, options.seconds)
    with ExitStack() as stack:
        server = stack.enter_context(PrivateServer(ServerRequest()))
        driver = Sysbench.of_server(server, table_rows=TABLE_ROWS)
        driver.prepare()
        target, plan = plan_in_child(server.pid)
        library = next(o for o in target.tls_objects if o.name.startswith("libssl"))
        tls = library_sites(library, plan.sites[0], ("SSL_read", "SSL_write"))
        arms = {
            NOTHING: [],
            PLAN: planned(plan.sites),
            PLAN_START: at_start(plan.sites),
            TLS: planned(tls),
            TLS_START: at_start(tls),
        }
        counter = counter_map(stack)
        driver.run(Load(load.scenario, load.threads_count, 2), "tls")
        runs: dict[str, list[Run]] = {name: [] for name in arms}
        names = list(arms)
        for number in range(options.rounds):
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                before = bpf.read_counter(counter)
                with attached(arms[name], server.pid, counter):
                    result = driver.run(load, "tls")
                hits = bpf.read_counter(counter) - before
                runs[name].append(
                    Run(result.operation_count / load.seconds, hits / result.operation_count)
                )
                print(f"\rround {number + 1} of {options.rounds}, {name:42}",
                      end="", file=sys.stderr)  # fmt: skip
        print(file=sys.stderr)
    show(runs, options.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
