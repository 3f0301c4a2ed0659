# SPDX-License-Identifier: GPL-2.0-only
"""Run tlstax on mutated inputs and report every fault with the number that makes it again.

    python tests/fuzz/driver.py captures --count 1000
    python tests/fuzz/driver.py captures --first 417 --count 1 --keep DIR     one mutant again

Each command must end with exit status 0 or with one error of tlstax, in 10 s of CPU time, 5 min
and 1 GiB of memory, without a traceback, and nothing that it prints or writes may steer a terminal.
Workers take slices of the numbers; one that dies is replaced by one that continues with the next
number. Exit status 1 if there was a fault.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tlstax.tests.fuzz import kinds

WORKER: Final = Path(__file__).with_name("worker.py")


@dataclass(frozen=True)
class Fault:
    """A command that did not end as it should."""

    number: int
    command: int
    what: str
    mutant: str

    def __str__(self) -> str:
        return f"mutant {self.number}, command {self.command}: {self.what}\n    {self.mutant[:300]}"


@dataclass(frozen=True)
class Outcome:
    """What a run of mutants came to."""

    faults: list[Fault]
    command_count: int
    refused_count: int
    """Commands that ended with an error of tlstax."""


def tell(fault: Fault) -> None:
    """Show a fault as soon as it is found; some hunts take hours."""
    print(fault, flush=True)


def hunt(kind: str, first: int, count: int, folder: Path, *, is_short: bool) -> Outcome:
    """Run the commands on these mutants, in a process of their own."""
    faults: list[Fault] = []
    commands = refused = 0
    kinds.prepare(folder)
    at = first
    while at < first + count:
        last = ["", "0", "0"]
        mutant = ""
        command = [sys.executable, str(WORKER), kind, str(folder), str(at),
                   str(first + count - at), str(int(is_short))]  # fmt: skip
        with (folder / "stderr").open("w+b") as said:
            with subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=said, text=True
            ) as worker:
                assert worker.stdout is not None
                for line in worker.stdout:
                    words = line.rstrip("\n").split(" ", 4)
                    if words[0] == "mutant":
                        mutant = line.partition(" ")[2].partition(" ")[2].rstrip("\n")
                        continue
                    last = words
                    if words[0] == "fault":
                        faults.append(Fault(int(words[1]), int(words[2]), words[4], mutant))
                        tell(faults[-1])
                    commands += words[0] != "begin"
                    refused += words[0] == "end" and words[3] != "0"
            if worker.returncode == 0 and last[0] != "begin":
                break
            said.seek(0)
            faults.append(_death(worker.returncode, last, mutant, said.read().decode()))
            tell(faults[-1])
        at = int(last[1]) + 1
    return Outcome(faults, commands, refused)


def _death(status: int, last: list[str], mutant: str, said: str) -> Fault:
    lines = said.strip().splitlines()
    what = " | ".join(line.strip() for line in lines[-4:])
    if status == 0:
        what = "the process ended without a word"
    if status < 0:
        what = f"killed by {signal.Signals(-status).name} {what}"
    return Fault(int(last[1]), int(last[2]), what, mutant)


def hunt_all(
    kind: str, first: int, count: int, workers: int, folder: Path, *, is_short: bool
) -> Outcome:
    """The same, divided among workers."""
    size = -(-count // workers)
    starts = range(first, first + count, size)
    with ThreadPoolExecutor(workers) as pool:
        made = list(
            pool.map(
                lambda at: hunt(
                    kind, at, min(size, first + count - at), folder / str(at), is_short=is_short
                ),
                starts,
            )
        )
    return Outcome(
        [fault for one in made for fault in one.faults],
        sum(one.command_count for one in made),
        sum(one.refused_count for one in made),
    )


def main() -> int:
    """Hunt, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=kinds.KINDS, nargs="?", help="default: each of them")
    parser.add_argument("--first", type=int, default=0, help="number of the first mutant")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--short", action="store_true", help="a few commands for each, as the tests"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the last mutant there")
    options = parser.parse_args()
    found = 0
    for kind in [options.kind] if options.kind else kinds.KINDS:
        with scratch(options.keep) as folder:
            outcome = hunt_all(kind, options.first, options.count, options.workers, folder,
                               is_short=options.short)  # fmt: skip
        found += len(outcome.faults)
        print(
            f"{kind}: {options.count} mutants from {options.first}, {outcome.command_count} "
            f"commands, {outcome.refused_count} refused, {len(outcome.faults)} faults"
        )
    return min(found, 1)


@contextmanager
def scratch(kept: Path | None) -> Iterator[Path]:
    """A folder for mutants and outputs, removed at the end unless it is wanted."""
    if kept is not None:
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="tlstax-fuzz-") as name:
        yield Path(name)


if __name__ == "__main__":
    sys.exit(main())
