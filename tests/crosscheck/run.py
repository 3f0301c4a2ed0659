# SPDX-License-Identifier: GPL-2.0-only
"""Hold the engines against each other: native, bpftrace, bcc and perf on the same TLS load.

On MariaDB (OpenSSL) and on MySQL 5.6 (yaSSL): first all engines record one load together, twice,
and what they say of it is compared (agreement.py says how); then each of them alone, in turn with
nothing attached, to see what it costs the server, what it takes itself and what it loses. Every
load lies inside of its recording. Printed are tables of agreement and of cost for each server.

Exit status: 0 if they agree; 1 if they do not, or if a recording failed; what is wrong is marked.
docs/measurements/engines.md says why an engine can be. Run by `make crosscheck`, in less than six
minutes on an idle machine with two CPUs; on a busy one costs mean nothing, agreement does.
"""

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

from tlstax.tests.crosscheck.agreement import (
    ENGINES,
    Line,
    Seen,
    compare_counts,
    compare_shares,
    compare_times,
    read,
)
from tlstax.tests.crosscheck.recording import Bench, Cost, Drive, Driven
from tlstax.workloads.servers.catalogue import find_kind
from tlstax.workloads.servers.lab_server import open_server

COUNTERS = {"mariadb": "Ssl_finished_accepts", "mysql56": "Connections"}
"""The server's own count; yaSSL counts no handshakes, so its connections stand for them."""
NO_TIMES = ("perf",)
"""Engines that only sample."""
NAMED = ("mysql56",)
"""Servers whose TLS library has names for all that it does."""
TELL_NAMELESS = ("native", "perf")
"""Engines that look at the instructions of functions without a name."""
TELL_SYSCALLS = ("native", "perf", "bpftrace")
"""Engines that know the system call of a sample in the kernel, also where its stack does not."""
TOGETHER, ALONE = Drive(300, 4), Drive(80, 2)
PACED = Drive(300, 4, 1000)
"""Waits that are long against what it takes to switch threads, about which engines differ."""
SAMPLE_HZ = "199"
ROUNDS_S = 120
"""What all rounds of a server may take; a round is not begun when half of it is gone."""


def progress(text: str) -> None:
    """One line that is rewritten."""
    print(f"\r{text:<78}", end="", file=sys.stderr, flush=True)


def together(bench: Bench, name: str, folder: Path, options: list[str]) -> bool:
    """All engines on one load, twice; whether they agree and the recordings are whole.

    Once without a thread cache and at a given pace, so that every wait begins and ends in the
    recording and few are so short that the microsecond about which engines differ counts; once
    with a cache, because perf samples thread by thread, and one that computes for less than a
    period never. perf is in the second one only: it has neither handshakes nor waits to compare.
    """
    agree = True
    for keep in (False, True):
        title = f"{name}: one load, engines together, "
        title += "threads serve many connections" if keep else "a thread for each connection"
        progress(title)
        bench.keep_threads(keep)
        capture = folder / f"together-{keep}.tlstax"
        count = bench.counted()
        hz = ["--sample-hz", SAMPLE_HZ]
        engines = [engine for engine in ENGINES if keep or engine not in NO_TIMES]
        what = TOGETHER if keep else PACED
        driven, _, failed = bench.record(engines, capture, what, [*hz, *options])
        seen = read(capture)
        for engine, one in seen.items():
            one.tells_nameless = engine in TELL_NAMELESS or name in NAMED
            one.tells_syscalls = engine in TELL_SYSCALLS
        lines = [compare_counts(seen, driven.handshake_count, bench.counted() - count)]
        lines += compare_times(seen, waits=not keep)
        lines += compare_shares(seen) if keep else []
        show(title, lines)
        show_losses(seen)
        missing = [f"{engine} recorded nothing" for engine in engines if engine not in seen]
        for text in [failed.strip(), *missing]:
            if text:
                print(text)
        agree = agree and not (failed or missing or any(line.disagree for line in lines))
    return agree


def in_turn(
    bench: Bench, name: str, folder: Path, rounds: int, options: list[str]
) -> tuple[list[Line], dict[str, list[tuple[float, float, Cost]]], dict[str, dict[str, int]]]:
    """Each engine alone: its counts, its cost as ratios to nothing attached, and its losses."""
    lines: list[Line] = []
    costs: dict[str, list[tuple[float, float, Cost]]] = defaultdict(list)
    losses: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    before = bench.drive(ALONE)
    began = time.monotonic()
    for number in range(rounds):
        if number and time.monotonic() - began > ROUNDS_S / 2:
            print(f"\n{name}: round {number + 1} is left out, because the machine is busy")
            break
        turn = number % len(ENGINES)
        for engine in (*ENGINES[turn:], *ENGINES[:turn]):
            progress(f"{name}: round {number + 1} of {rounds}, {engine} alone")
            capture = folder / f"{engine}-{number}.tlstax"
            under, cost, failed = bench.record([engine], capture, ALONE, options)
            after = bench.drive(ALONE)
            seen = read(capture).get(engine, Seen())
            wrong = (engine,) if failed else ()
            if seen.handshake_count not in (None, under.handshake_count):
                wrong = (engine,)
            count = "not counted" if seen.handshake_count is None else str(seen.handshake_count)
            said = {"driver": str(under.handshake_count), engine: "fails" if failed else count}
            lines.append(Line(f"{engine} alone, round {number + 1}", said, wrong))
            costs[engine].append((*ratios(before, under, after), cost))
            for kind, count_lost in seen.losses.items():
                losses[engine][kind] += count_lost
            before = after
    return lines, costs, losses


def ratios(before: Driven, under: Driven, after: Driven) -> tuple[float, float]:
    """The server's CPU time per connect and per select, over its mean before and after."""
    return (
        under.connect_cpu_ns / fmean((before.connect_cpu_ns, after.connect_cpu_ns)),
        under.select_cpu_ns / fmean((before.select_cpu_ns, after.select_cpu_ns)),
    )


def show(title: str, lines: list[Line]) -> None:
    """A table: what is compared, what each says, who disagrees."""
    columns = ["driver", "server", *ENGINES]
    used = [name for name in columns if any(name in line.said for line in lines)]
    widths = {
        name: max(len(name), *(len(line.said.get(name, "-")) for line in lines)) for name in used
    }
    first = max(len(line.what) for line in lines)
    print(f"\n{title}")
    print(f"{'':<{first}}  {'  '.join(f'{name:>{widths[name]}}' for name in used)}")
    for line in lines:
        cells = "  ".join(f"{line.said.get(name, '-'):>{widths[name]}}" for name in used)
        verdict = f"DISAGREES: {', '.join(line.disagree)}" if line.disagree else "agree"
        print(f"{line.what:<{first}}  {cells}  {verdict}")


def show_costs(
    name: str,
    costs: dict[str, list[tuple[float, float, Cost]]],
    losses: dict[str, dict[str, int]],
) -> None:
    """What each engine costs the server, takes itself and loses."""
    print(f"\n{name}: each engine alone; the server's CPU time as ratios to nothing attached")
    print(f"{'':<9} {'per connect':>16} {'per select':>16} {'own CPU':>8} {'MB':>5}  losses")
    for engine, rounds in costs.items():
        connect = " ".join(f"{one:.2f}" for one, _, _ in rounds)
        select = " ".join(f"{one:.2f}" for _, one, _ in rounds)
        own = fmean(cost.cpu_share for _, _, cost in rounds)
        rss = max(cost.rss_bytes for _, _, cost in rounds) / 1e6
        lost = said_losses(losses.get(engine, {}))
        print(f"{engine:<9} {connect:>16} {select:>16} {own:>8.1%} {rss:>5.0f}  {lost}")


def show_losses(seen: dict[str, Seen]) -> None:
    """What was lost while all of them recorded."""
    lost = (f"{engine}: {said_losses(one.losses)}" for engine, one in seen.items())
    print(f"lost: {'; '.join(lost)}")


def said_losses(losses: Mapping[str, int]) -> str:
    """In words."""
    found = [f"{kind} {count}" for kind, count in losses.items() if count]
    return ", ".join(found) or "none"


def check(name: str, rounds: int, options: list[str]) -> bool:
    """One server; whether the engines agree."""
    with (
        tempfile.TemporaryDirectory(prefix="tlstax-crosscheck-") as folder,
        open_server(find_kind(name)) as server,
        server.open_status() as status,
    ):
        bench = Bench(server, status, COUNTERS[name])
        bench.prepare()
        agree = together(bench, name, Path(folder), options)
        turns, costs, losses = in_turn(bench, name, Path(folder), rounds, options)
        print(file=sys.stderr)
        show(f"{name}: handshakes of loads that one engine recorded alone", turns)
        show_costs(name, costs, losses)
    return agree and not any(line.disagree for line in turns)


def main() -> int:
    """Both servers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--servers", type=lambda text: text.split(","), default=list(COUNTERS))
    parser.add_argument("--rounds", type=int, default=2, help="of each engine alone (2)")
    parser.add_argument("--bcc-directory", help="where bcc's tools are looked for first")
    parser.add_argument(
        "--bcc-tools", default="offcputime,profile,funclatency", help="(%(default)s)"
    )
    options = parser.parse_args()
    more = ["--bcc-tools", options.bcc_tools]
    more += ["--bcc-directory", options.bcc_directory] if options.bcc_directory else []
    began = time.monotonic()
    agree = [check(name, options.rounds, more) for name in options.servers]
    print(f"\n{'The engines agree.' if all(agree) else 'The engines DISAGREE, or one failed.'}")
    print(f"It took {time.monotonic() - began:.0f} s.", file=sys.stderr)
    return 0 if all(agree) else 1


if __name__ == "__main__":
    sys.exit(main())
