# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax watch` for hours, of a MariaDB whose load changes: its cost, its memory, its sums.

`make soak-watch HOURS=3` runs it. The server lives four times (two restarts and an upgrade to
another build), each time idle, then with a steady load, then saturated, each for a third of that
life; or saturated for SATURATED seconds, and the others for half of the rest. Own CPU time is that
of the processes by the kernel's clock, not what the watch says of itself. Growth of memory is
judged after a warm-up, see memory_curve.py. Exit status 1 if the rollups do not add up to the raw
windows; costs and memory are only printed.
"""

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Final

from tlstax import TlstaxError
from tlstax.analysis.fleet import columns
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Handshake, Ledger
from tlstax.tests.bench.watch import memory_curve
from tlstax.tests.bench.watch.memory_curve import Curve, Settled
from tlstax.tests.bench.watching import resident_bytes
from tlstax.tests.e2e.recording.watch_runs import copied_server, handshakes, rows_of, server_of
from tlstax.tests.e2e.recording.watch_runs import upgrade as make_upgrade
from tlstax.tests.processes import process_cpu_ns
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.mariadb import PrivateServer

LIVES: Final = ("first", "restarted", "restarted again", "upgraded")
STEADY_PER_S: Final = 20.0
THREADS: Final = 2
LOADS: Final = ("idle", "steady", "saturated")
LEAST_S: Final = 5
PATIENCE_S: Final = 300.0
COST_MOST, GROWTH_MOST_BYTES, ONE_CPU, RESTS = 0.005, 1_000_000, 0.9, 0.01


@dataclass(frozen=True)
class Stretch:
    """One load of one life."""

    life: str
    load: str
    seconds: float
    server_cpu_s: float
    own_cpu_s: float
    failed_count: int
    memory: Settled

    @property
    def cost(self) -> str:
        """Own CPU time as a share of the server's; of a server that rests, nothing."""
        is_at_work = self.server_cpu_s > RESTS * self.seconds
        return f"{self.own_cpu_s / self.server_cpu_s:.2%}" if is_at_work else ""


def family(pid: int) -> Iterator[int]:
    """A process and its descendants that live."""
    yield pid
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        texts = [task.joinpath("children").read_text() for task in tasks]
    except OSError:  # it has ended
        return
    for child in itertools.chain.from_iterable(text.split() for text in texts):
        yield from family(int(child))


def own_cpu_s(pid: int) -> float:
    """CPU time of a process and all its children, those that ended as well."""
    ticks = 0
    for number, one in enumerate(family(pid)):
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile, and its parent has its time next time
            continue
        ticks += sum(int(field) for field in fields[11 : 15 if number == 0 else 13])
    return ticks / os.sysconf("SC_CLK_TCK")


def own_bytes(pid: int) -> int:
    """Resident memory of a process and its children."""
    total = 0
    for one in family(pid):
        try:
            total += resident_bytes(one)
        except OSError:
            continue
    return total


def await_said(said: Path, text: str, count: int, watch: "Popen[bytes]") -> None:
    """Until the watch has said something so often."""
    end = time.monotonic() + PATIENCE_S
    while said.read_text().count(text) < count:
        if watch.poll() is not None or time.monotonic() > end:
            raise SystemExit(f"the watch did not say {text!r}:\n{said.read_text()}")
        time.sleep(0.5)


def drive(server: PrivateServer, load: str, seconds: int) -> int:
    """Connections over TLS for some seconds, or none; how often the client failed.

    On a host that has no time for it a connection is refused after the server's connect_timeout,
    and sysbench ends: that is counted, and it goes on.
    """
    if load == "idle":
        time.sleep(seconds)
        return 0
    rate = STEADY_PER_S if load == "steady" else None
    driver = Sysbench.of_server(server, table_rows=10)
    end, failed_count = time.monotonic() + seconds, 0
    while (left_s := round(end - time.monotonic())) > 0:
        try:
            driver.run(Load(SCENARIOS["connect"], THREADS, left_s, rate_per_s=rate), "tls")
        except TlstaxError as error:
            failed_count += 1
            print(f"the client failed: {error.why}", file=sys.stderr, flush=True)
            time.sleep(1)
    return failed_count


def lengths(hours: float, saturated_s: int) -> dict[str, int]:
    """How many seconds each load of a life lasts; `saturated_s` of 0: all as long."""
    life_s = hours * 3600 / len(LIVES)
    last_s = saturated_s or life_s / len(LOADS)
    others_s = (life_s - last_s) / (len(LOADS) - 1)
    wanted = {load: last_s if load == LOADS[-1] else others_s for load in LOADS}
    return {load: max(LEAST_S, round(seconds)) for load, seconds in wanted.items()}


def stretches(
    server: PrivateServer, watch: "Popen[bytes]", life: str, lasting: dict[str, int], curve: Curve
) -> Iterator[Stretch]:
    """Each load of a life, measured."""
    for load, seconds in lasting.items():
        start_s = curve.now_s
        before = time.monotonic(), process_cpu_ns(server.pid), own_cpu_s(watch.pid)
        failed_count = drive(server, load, seconds)
        yield Stretch(
            life,
            load,
            time.monotonic() - before[0],
            (process_cpu_ns(server.pid) - before[1]) / 1e9,
            own_cpu_s(watch.pid) - before[2],
            failed_count,
            Settled(life, load, start_s, curve.median_since(start_s)),
        )


@contextmanager
def watched(data: Path, name: str, said: Path, *more: str) -> Iterator["Popen[bytes]"]:
    """A watch of processes of that name, which ends in order."""
    command = [sys.executable, "-m", "tlstax", "watch", "--name", name, "--output", str(data)]
    with said.open("wb") as errors:
        process = Popen([*command, "--host", "soak", "--raw", "8G", *more], stderr=errors)
    try:
        yield process
    finally:
        process.terminate()
        if process.wait(PATIENCE_S):
            raise SystemExit(f"the watch ended with {process.returncode}:\n{said.read_text()}")


def sums(data: Path) -> dict[str, tuple[int, int]]:
    """CPU time of the ledger in ns, and handshakes: of the raw windows, and of each tier."""
    cpu_ns = shakes = 0
    for path in sorted(data.glob("raw/soak/**/*.tlstax")):
        with CaptureReader.open(path) as reader:
            cpu_ns += sum(row.time_ns for row in reader.rows(Ledger) if row.state == "on_cpu")
            shakes += sum(row.outcome == "success" for row in reader.rows(Handshake))
    found = {"raw windows": (cpu_ns, shakes)}
    for tier in ("10s", "1m", "1h"):
        ledger = rows_of(data, columns.Ledger, tier)
        if ledger:
            cpu_ns = sum(row["on_cpu_ns"] for row in ledger)
            found[f"rollups of {tier}"] = (cpu_ns, handshakes(data, tier))
    return found


def report(done: list[Stretch], found: dict[str, tuple[int, int]]) -> int:
    """Print everything; 1 if sums differ."""
    print("| server | load | time | server's CPU | own CPU | own / server's | memory |")
    print("|---|---|---|---|---|---|---|")
    for one in done:
        print(
            f"| {one.life} | {one.load} | {one.seconds:.0f} s | {one.server_cpu_s:.2f} s "
            f"| {one.own_cpu_s:.2f} s | {one.cost} | {one.memory.resident_bytes / 1e6:.1f} MB |"
        )
    failed_count = sum(one.failed_count for one in done)
    if failed_count:
        print(f"\nThe client failed {failed_count} times, and was started again: see above.")
    busy = [one for one in done if one.server_cpu_s > ONE_CPU * one.seconds]
    if busy:
        cost = sum(one.own_cpu_s for one in busy) / sum(one.server_cpu_s for one in busy)
        goal = "within" if cost <= COST_MOST else "above"
        print(f"\nOwn CPU time where the server used a CPU: {cost:.2%}, {goal} {COST_MOST:.1%}.")
    else:
        print("\nThe server never used a whole CPU: its own cost is not judged.")
    print(memory_curve.verdict([one.memory for one in done], GROWTH_MOST_BYTES), end="\n\n")
    for name, (cpu_ns, shakes) in found.items():
        print(f"{name}: {cpu_ns / 1e9:.6f} s of CPU time in the ledger, {shakes:,} handshakes")
    is_equal = len(set(found.values())) == 1 and len(found) > 1 and min(found["raw windows"]) > 0
    print("The sums are equal." if is_equal else "The sums differ, or there are none.")
    return 0 if is_equal else 1


def main() -> int:
    """Run all lives and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=3.0)
    parser.add_argument(
        "--saturated", type=int, default=0, metavar="SECONDS", help="of each life (a third of it)"
    )
    parser.add_argument("--every", choices=("10s", "60s"), default="60s")
    parser.add_argument("--budget", default="0.5%", help="as of tlstax watch")
    options = parser.parse_args()
    lasting = lengths(options.hours, options.saturated)
    done: list[Stretch] = []
    with tempfile.TemporaryDirectory(prefix="tlstax-soak-") as name:
        folder = Path(name)
        folder.chmod(0o711)  # the server's user passes through it
        program = copied_server(folder, f"soak{os.getpid()}")
        data, said = folder / "data", folder / "said"
        more = ("--every", options.every, "--budget", options.budget)
        with (
            watched(data, program.name, said, *more) as watch,
            Curve(lambda: own_bytes(watch.pid)).drawn() as curve,
        ):
            for number, life in enumerate(LIVES, start=1):
                if life == "upgraded":
                    make_upgrade(program)
                with server_of(program) as server:
                    await_said(said, "recording process", number, watch)
                    for one in stretches(server, watch, life, lasting, curve):
                        done.append(one)
                        print(f"{life}, {one.load}: done", file=sys.stderr, flush=True)
                await_said(said, "is no longer recorded", number, watch)
        found = sums(data)
        hosts = {row["build_id"] for row in rows_of(data, columns.Host)}
    print("Memory over time:", *curve.lines(), sep="\n", end="\n\n")
    code = report(done, found)
    print(f"Builds in the table host: {len(hosts)} (2 expected).")
    return code if len(hosts) == 2 else 1


if __name__ == "__main__":
    sys.exit(main())
