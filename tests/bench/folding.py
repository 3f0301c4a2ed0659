# SPDX-License-Identifier: GPL-2.0-only
"""Folding what `perf script` prints: tlstax against stackcollapse-perf.pl and inferno.

All read the same file and write folded stacks, each in processes of its own, and take turns. What
is printed are medians over the rounds of CPU time and memory, and the ratio in each round. The
samples in what they wrote must be as many, or the exit status is 1. A tool that is neither on the
PATH nor named by an option is said to be missing.

The text is that of --script. Without it, as root, perf records connects with TLS on a private
MariaDB; anywhere else it is made up of random stacks, which share no more than their functions.
Either is repeated up to --megabytes: real servers, too, have few different stacks and many of each.

tlstax does more for its time than the others: it names phases and categories and keeps a capture
(`tlstax import`), and writes the stacks of that (`tlstax export`). Both are in its figures.
Run by `make bench-report`.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.mariadb import PrivateServer

PEERS: Final = ("stackcollapse-perf.pl", "inferno-collapse-perf")
HZ: Final = 1000
NS_PER_SAMPLE: Final = 1_000_000
"""What a sample at HZ is in the folded stacks of tlstax."""
FIELDS: Final = "comm,tid,time,event,ip,sym,symoff,dso"
"""Without periods, which stackcollapse-perf.pl adds up instead of samples."""
RECORDED_S: Final = 10
RECORDED_HZ: Final = 997
DEPTH: Final = 24


@dataclass(frozen=True)
class Cost:
    """One run."""

    cpu_s: float
    peak_bytes: int


def run(command: list[str], output: Path) -> Cost:
    """Run a command, its standard output into a file. SystemExit where it fails."""
    with output.open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command[0]} failed: {' '.join(command)}")
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def by_tlstax(script: Path, folder: Path) -> tuple[Cost, int]:
    """What it costs tlstax, and how many samples its folded stacks hold."""
    tlstax = [sys.executable, "-m", "tlstax"]
    capture, folded = folder / "capture.tlstax", folder / "tlstax.folded"
    costs = [
        run([*tlstax, "import", str(script), "--hz", str(HZ), "--force", "-o", str(capture)],
            folder / "log"),
        run([*tlstax, "export", str(capture), "--format", "folded", "-o", "-"], folded),
    ]  # fmt: skip
    cost = Cost(sum(one.cpu_s for one in costs), max(one.peak_bytes for one in costs))
    return cost, round(total(folded) / NS_PER_SAMPLE)


def by_peer(program: str, script: Path, folder: Path) -> tuple[Cost, int]:
    """The same of another tool."""
    folded = folder / "peer.folded"
    # inferno uses every CPU unless told not to; CPU time is compared, not patience.
    more = ["-n", "1"] if "inferno" in Path(program).name else []
    return run([program, *more, str(script)], folded), total(folded)


def total(folded: Path) -> int:
    """Sum of the numbers at the ends of the lines."""
    with folded.open("rb") as lines:
        return sum(int(line.rpartition(b" ")[2]) for line in lines)


# ---- the text ----


def repeat(script: Path, text: bytes, megabytes: float) -> int:
    """Write the text as often as it takes; how often."""
    count = max(1, round(megabytes * 1e6 / len(text)))
    with script.open("wb") as sink:
        for _ in range(count):
            sink.write(text)
    return count


def recorded(folder: Path) -> bytes:
    """What perf saw of a server to which clients connect with TLS."""
    data = folder / "perf.data"
    with PrivateServer() as server:
        driver = Sysbench.of_server(server, table_rows=100)
        command = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(RECORDED_HZ), "-m", "64M",
                   "--call-graph", "dwarf,16384", "-p", str(server.pid), "-o", str(data),
                   "--", "sleep", str(RECORDED_S)]  # fmt: skip
        recorder = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        driver.run(Load(SCENARIOS["connect"], 2, RECORDED_S - 1), "tls", time.sleep)
        if recorder.wait():
            raise SystemExit("perf could not record")
    told = ["perf", "script", "-i", str(data), "-F", FIELDS, "--no-inline"]
    return subprocess.run(told, capture_output=True, check=True).stdout


def made_up(count: int = 4_000) -> bytes:
    """Random stacks."""
    generator = random.Random(3)
    stacks = [
        "".join(
            f"\t{0x1000 + generator.randrange(1 << 20):16x} function_{generator.randrange(2_000)}"
            f"+0x10 (/usr/lib/libcrypto.so.3)\n"
            for _ in range(DEPTH)
        )
        for _ in range(200)
    ]
    return "".join(
        f"mariadbd 9 {number // 1000}.{number % 1000:03}000: cpu-clock: \n"
        f"{generator.choice(stacks)}\n"
        for number in range(count)
    ).encode()


def make_text(options: argparse.Namespace, folder: Path) -> tuple[Path, str]:
    """The file that all read, and where it is from."""
    if options.script is not None:
        return options.script, str(options.script)
    script = folder / "script.txt"
    is_real = os.geteuid() == 0 and shutil.which("perf") is not None
    text = recorded(folder) if is_real else made_up()
    count = repeat(script, text, options.megabytes)
    origin = "perf on a private MariaDB" if is_real else "made up (no root, or no perf)"
    return script, f"{origin}, {len(text) / 1e6:.1f} MB repeated {count} times"


# ---- the comparison ----


def compare(programs: dict[str, str], script: Path, folder: Path, rounds: int) -> bool:
    """Print the table; whether all counted as many samples."""
    costs: dict[str, list[Cost]] = {name: [] for name in ("tlstax", *programs)}
    counts: dict[str, int] = {}
    for number in range(rounds):
        for name in list(costs) if number % 2 == 0 else list(costs)[::-1]:
            if name == "tlstax":
                cost, counts[name] = by_tlstax(script, folder)
            else:
                cost, counts[name] = by_peer(programs[name], script, folder)
            costs[name].append(cost)
    print(f"{'':24}{'samples':>11}{'CPU s':>8}{'peak MB':>9}   tlstax takes, by round")
    for name, found in costs.items():
        ratios = [ours.cpu_s / one.cpu_s for ours, one in zip(costs["tlstax"], found, strict=True)]
        memory = median(one.peak_bytes for one in costs["tlstax"]) / median(
            one.peak_bytes for one in found
        )
        beside = "" if name == "tlstax" else (
            f"   {median(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f}) times the CPU time, "
            f"{memory:.1f} times the memory"
        )  # fmt: skip
        print(f"{name:24}{counts[name]:11,}{median(one.cpu_s for one in found):8.2f}"
              f"{median(one.peak_bytes for one in found) / 1e6:9.0f}{beside}")  # fmt: skip
    return len(set(counts.values())) == 1


def main() -> int:
    """Fold; 1 if the tools do not agree on how many samples there are."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--script", type=Path, help="text of `perf script` to fold")
    parser.add_argument("--megabytes", type=float, default=50.0, help="size of a text without it")
    parser.add_argument("--rounds", type=int, default=3)
    for name in PEERS:
        parser.add_argument(f"--{name.partition('-')[0]}", dest=name, metavar="PATH", help=name)
    options = parser.parse_args()
    programs = {name: getattr(options, name) or shutil.which(name) for name in PEERS}
    with tempfile.TemporaryDirectory() as directory:
        script, origin = make_text(options, Path(directory))
        print(f"folding {script.stat().st_size / 1e6:.0f} MB of `perf script`: {origin}")
        for name, program in programs.items():
            if program is None:
                print(f"{name}: not on the PATH; --{name.partition('-')[0]} PATH names one")
        here = {name: program for name, program in programs.items() if program is not None}
        agree = compare(here, script, Path(directory), options.rounds)
    if not agree:
        print("the tools do not agree on the number of samples")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
