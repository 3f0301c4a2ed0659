# SPDX-License-Identifier: GPL-2.0-only
"""Walk the stacks of busy servers, and compare with libdw, frame pointers and perf.

    measure.py [--server NAME]... [--load NAME]... [--samples N] [--page FILE]

Each load runs in slices until there are enough samples. Every walk is repeated by libdw from the
same registers and stack; in the same slices `perf record --call-graph dwarf,16384` samples the same
process on its own. Exits with 1 if fewer than 99.5 % of the samples of a load have the same stack
as libdw, if shares of paths above 1 % differ from perf's by more than chance, if fewer than 99 % of
the stacks are whole, or if a load gave too few samples.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tlstax.tests.truth.stacks.page import page
from tlstax.tests.truth.stacks.paths import Functions, compare, describe
from tlstax.tests.truth.stacks.perf_run import PerfRun, PerfSeen
from tlstax.tests.truth.stacks.samples import StackCheck, Verdict
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.catalogue import find_kind
from tlstax.workloads.servers.lab_server import open_server
from tlstax.workloads.servers.mariadb import PrivateServer

LOADS: Final = {
    "TLS connects": ("connect", 2),
    "TLS point selects": ("point_select", 2),
    "TLS large results": ("bulk_result", 2),
    "switches": ("point_select", 2),
}
SWITCHES: Final = "switches"
"""The load whose stacks are those of threads that leave the CPU; perf's are of running ones."""
SERVERS: Final = ("mariadb", "mysql56", "mysql80", "mysql97")
EQUAL_LEAST, WHOLE_LEAST = 0.995, 0.99
TABLE_ROWS: Final = 1000
SLICE_S: Final = 12
PATIENCE_S: Final = 150
"""For one load."""
BROKEN_MOST: Final = 5
"""Kinds of perf's incomplete stacks that are printed."""
PERF_MORE_HZ: Final = 12
"""So that perf's clock does not keep step with the other one."""


@dataclass
class Outcome:
    """One load of one server."""

    server: str
    load: str
    verdict: Verdict = field(default_factory=Verdict)
    perf: PerfSeen = field(default_factory=PerfSeen)
    paths: int = 0  # above 1 %
    disagreements: list[str] = field(default_factory=list)

    @property
    def faults(self) -> list[str]:
        """What is not as it must be."""
        v, found = self.verdict, list(self.disagreements)
        if v.equal < EQUAL_LEAST * v.comparable or not v.comparable:
            found.append(f"{v.equal:,} of {v.comparable:,} equal to libdw")
        if self.load != SWITCHES and not (v.routes and self.perf.routes):
            found.append("no paths to compare with perf's")
        whole = v.ends["complete"]
        if whole < WHOLE_LEAST * v.samples:
            found.append(f"{whole:,} of {v.samples:,} whole")
        return found


def measure(
    name: str, loads: Sequence[str], loads_count: int, options: argparse.Namespace
) -> list[Outcome]:
    """The loads of one server; `loads_count`: of all servers, whose paths are compared."""
    outcomes = []
    with open_server(find_kind(name)) as server:
        driver = Sysbench.of_server(server, table_rows=TABLE_ROWS)
        driver.prepare()
        for load in loads:
            outcome = Outcome(name, load)
            functions = Functions(server.pid)
            end = time.monotonic() + options.patience
            while outcome.verdict.samples < options.samples and time.monotonic() < end:
                _slice(server, driver, outcome, functions, options)
                print(f"{name}, {load}: {outcome.verdict.samples:,} samples", file=sys.stderr)
            _compare_paths(outcome, functions, loads_count)
            outcomes.append(outcome)
    return outcomes


def _slice(
    server: PrivateServer,
    driver: Sysbench,
    outcome: Outcome,
    functions: Functions,
    options: argparse.Namespace,
) -> None:
    """The load for some seconds, sampled by both."""
    scenario, threads = LOADS[outcome.load]
    is_switches = outcome.load == SWITCHES
    with tempfile.TemporaryDirectory(prefix="tlstax-stacks-") as folder:
        check = StackCheck(server.pid, options.hz, outcome.verdict, functions, switches=is_switches)
        perf: PerfRun | None = None
        try:
            if not is_switches:
                perf = PerfRun(server.pid, options.hz + PERF_MORE_HZ, Path(folder) / "perf.data")
            try:
                driver.run(
                    Load(SCENARIOS[scenario], threads, options.slice_seconds),
                    "tls",
                    lambda _: check.poll(),
                )
            finally:
                if perf:
                    perf.end()
            check.finish()
        finally:
            check.close()
        if perf:
            perf.read(outcome.perf, outcome.verdict.ends_at, functions)


def _compare_paths(outcome: Outcome, functions: Functions, loads_count: int) -> None:
    mine, theirs = outcome.verdict.routes, outcome.perf.routes
    compared = compare(mine, theirs, loads_count)
    totals = mine.total(), theirs.total()
    outcome.paths = len(compared)
    outcome.disagreements = [
        describe(each, totals, functions) for each in compared if not each.agrees
    ]


def main() -> int:
    """Measure, print, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--server", action="append", default=[], help="a server of the catalogue")
    parser.add_argument("--samples", type=int, default=2000, help="of each load, at least")
    parser.add_argument("--hz", type=int, default=997)
    parser.add_argument("--slice-seconds", type=int, default=SLICE_S)
    parser.add_argument("--patience", type=int, default=PATIENCE_S, help="seconds for a load")
    parser.add_argument("--load", action="append", choices=tuple(LOADS), default=[])
    parser.add_argument("--page", type=Path, help="write the figures below its heading")
    options = parser.parse_args()
    outcomes = []
    servers, loads = options.server or SERVERS, options.load or list(LOADS)
    loads_count = len(servers) * sum(load != SWITCHES for load in loads)
    for name in servers:
        outcomes += measure(name, loads, loads_count, options)
    text = page(outcomes)
    print(text)
    for each in outcomes:
        for line in each.verdict.differences:
            print(f"{each.server}, {each.load}: {line}", file=sys.stderr)
        for (frames, name), count in each.perf.broken.most_common(BROKEN_MOST):
            text_of = f"{count} of perf's stacks end after {frames} frames in {name}"
            print(f"{each.server}, {each.load}: {text_of}", file=sys.stderr)
    if options.page:
        head, mark, _ = options.page.read_text(encoding="utf-8").partition("## Result\n")
        options.page.write_text(f"{head}{mark}\n{text}", encoding="utf-8")
    print(f"load of the host: {os.getloadavg()[0]:.1f}")
    faults = [f"{one.server}, {one.load}: {fault}" for one in outcomes for fault in one.faults]
    faults += [
        f"{one.server}, {one.load}: only {one.verdict.samples:,} samples in {options.patience} s"
        for one in outcomes
        if one.verdict.samples < options.samples
    ]
    for fault in faults:
        print(f"FAULT: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
