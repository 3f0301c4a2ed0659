# SPDX-License-Identifier: GPL-2.0-only
"""Walk the stacks of a busy server, and compare with libdw, frame pointers and perf.

    measure.py [--server NAME] [--seconds N] [--hz N] [--page FILE]

Each load runs twice, one after the other: once for the walks, each of which libdw repeats from the
same registers and stack, and once under `perf record --call-graph dwarf,16384`. Exits with 1 if
fewer than 99.5 % of the samples have the same stack as libdw.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tlstax.tests.truth.stacks.samples import StackCheck, Verdict
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.catalogue import find_kind
from tlstax.workloads.servers.lab_server import open_server

LOADS: Final = {
    "TLS connects": ("connect", 2),
    "TLS point selects": ("point_select", 2),
    "TLS large results": ("bulk_result", 2),
    "switches": ("point_select", 2),
}
SWITCHES: Final = "switches"
"""The load whose stacks are those of threads that leave the CPU; perf's are of running ones."""
EQUAL_LEAST: Final = 0.995
PAGE: Final = 4096
TABLE_ROWS: Final = 1000
IP: Final = re.compile(r"^\s+([0-9a-f]+)\s")


@dataclass
class Outcome:
    """One load."""

    name: str
    verdict: Verdict
    perf_samples: int
    perf_whole: int


class PerfRun:
    """`perf record --call-graph dwarf,16384` of a process."""

    def __init__(self, pid: int, hz: int, path: Path, starts: Counter[int]) -> None:
        self._path, self._starts = path, starts
        command = ["perf", "record", "-q", "-e", "cpu-clock:u", "-F", str(hz), "--call-graph"]
        self._process = subprocess.Popen(
            [*command, "dwarf,16384", "-p", str(pid), "-o", str(path)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def end(self) -> tuple[int, int]:
        """Samples, and those whose outermost address is one of a thread's start."""
        self._process.send_signal(2)
        self._process.wait(60)
        command = ["perf", "script", "--no-inline", "-F", "ip,sym", "-i", str(self._path)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        samples = whole = 0
        starts = {address % PAGE for address in self._starts}
        for block in text.split("\n\n"):
            addresses = [
                int(found[1], 16) for line in block.splitlines() if (found := IP.match(line))
            ]
            if addresses:
                samples += 1
                # perf prints addresses of the file, less 1: equal to ours within a page.
                whole += (addresses[-1] + 1) % PAGE in starts or addresses[-1] % PAGE in starts
        return samples, whole


def measure(server_name: str, seconds: int, hz: int, loads: list[str]) -> list[Outcome]:
    """All loads on one server."""
    outcomes = []
    with (
        tempfile.TemporaryDirectory(prefix="tlstax-stacks-") as folder,
        open_server(find_kind(server_name)) as server,
    ):
        driver = Sysbench.of_server(server, table_rows=TABLE_ROWS)
        driver.prepare()
        for name in loads:
            scenario, threads = LOADS[name]
            wanted = Load(SCENARIOS[scenario], threads, seconds)
            check = StackCheck(server.pid, hz, switches=name == SWITCHES)

            def wait(_seconds: float, check: StackCheck = check) -> None:
                check.poll()

            try:
                driver.run(wanted, "tls", wait)
            finally:
                check.close()
            if name == SWITCHES:
                outcomes.append(Outcome(name, check.verdict, 0, 0))
                continue
            perf = PerfRun(server.pid, hz, Path(folder) / "perf.data", check.verdict.starts)
            try:
                driver.run(wanted, "tls")
            finally:
                counts = perf.end()
            outcomes.append(Outcome(name, check.verdict, *counts))
    return outcomes


# ---- the page ----


def share(part: int, whole: int) -> str:
    return f"{part / whole:.2%}" if whole else ""


def perf_share(each: Outcome) -> str:
    samples = each.perf_samples
    return f"{share(each.perf_whole, samples)} of {samples:,}" if samples else ""


def page(outcomes: list[Outcome], server: str) -> str:
    """The tables of the page."""
    lines = [
        f"Server: {server}. A stack is whole if it ends in a function that threads begin with.",
        "*Guessed*: the two differ, and the file says nothing about the interrupted code.",
        "",
        "| load | samples | equal to libdw | guessed | copy short | by tables | pointers | perf |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for each in outcomes:
        v = each.verdict
        lines.append(
            f"| {each.name} | {v.samples:,} | {share(v.equal, v.comparable)} | {v.guessed} | "
            f"{v.incomparable} | {share(v.ends['complete'], v.samples)} | "
            f"{share(v.by_pointers.total(), v.samples)} | "
            f"{perf_share(each)} |"
        )
    lines += ["", "By the file of the interrupted instruction:", ""]
    lines += [
        "| load | file | samples | whole by tables | by frame pointers |",
        "|---|---|---|---|---|",
    ]
    for each in outcomes:
        v = each.verdict
        for name, count in v.by_file.most_common(6):
            lines.append(
                f"| {each.name} | {name} | {count:,} | {share(v.by_tables[name], count)} | "
                f"{share(v.by_pointers[name], count)} |"
            )
    lines += ["", "Ends of walks, and the time of a walk where it was the first of the two:", ""]
    lines += ["| load | ends | frames | by tables, median | by frame pointers, median |"]
    lines += ["|---|---|---|---|---|"]
    for each in outcomes:
        v = each.verdict
        ends = ", ".join(f"{name} {count:,}" for name, count in v.ends.most_common())
        lines.append(
            f"| {each.name} | {ends} | {statistics.median(v.frames):.0f} | "
            f"{statistics.median(v.tables_ns) / 1000:.1f} µs | "
            f"{statistics.median(v.pointers_ns) / 1000:.1f} µs |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--server", default="mariadb", help="a server of the catalogue")
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--hz", type=int, default=199)
    parser.add_argument("--load", action="append", choices=tuple(LOADS), default=[])
    parser.add_argument("--page", type=Path, help="write the figures below its heading")
    options = parser.parse_args()
    loads = options.load or list(LOADS)
    outcomes = measure(options.server, options.seconds, options.hz, loads)
    text = page(outcomes, options.server)
    print(text)
    for each in outcomes:
        for line in each.verdict.differences:
            print(f"{each.name}: {line}", file=sys.stderr)
    if options.page:
        head, mark, _ = options.page.read_text(encoding="utf-8").partition("## Result\n")
        options.page.write_text(f"{head}{mark}\n{text}", encoding="utf-8")
    equal = sum(each.verdict.equal for each in outcomes)
    judged = sum(each.verdict.comparable for each in outcomes)
    print(f"load of the host: {os.getloadavg()[0]:.1f}")
    return 0 if judged and equal >= EQUAL_LEAST * judged else 1


if __name__ == "__main__":
    sys.exit(main())
