# SPDX-License-Identifier: GPL-2.0-only
"""What being watched costs a server: tlstax, perf record and bpftrace against nothing attached.

A private MariaDB server answers TLS point selects on open connections, and then a storm of TLS
connects. In every round each tool is attached once, in an order that rotates, and so is none.
A tool's ratio in a round is its figure over that of nothing attached; the table gives the median
over the rounds with its 95 % interval (bootstrap). Queries a second are what clients see, and on
a shared host are noisy; the server's CPU time per query (by the scheduler, probes included) is
steadier.

Run by `make bench-overhead`. Always exits 0 when every run could be made: it is a report.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Probe
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.mariadb import PrivateServer, ServerRequest

NS_PER_S = 1_000_000_000
RESAMPLES = 2000
ATTACH_PATIENCE_S = 30
TABLE_ROWS = 10_000
SSLLATENCY = ("/usr/sbin/ssllatency.bt", "/usr/share/bpftrace/tools/ssllatency.bt")
TLSTAX_COMMAND = [sys.executable, "-m", "tlstax", "attach"]


@dataclass(frozen=True)
class Tool:
    """How a tool is started on a process, and how it says that it is attached."""

    name: str
    command: Callable[[int, Path], list[str]]
    ready: str  # in a line of its output; "" when it says nothing and two seconds must do


@dataclass(frozen=True)
class Run:
    """One run under one tool."""

    per_second: float
    cpu_ns_per_operation: float
    operation_count: int
    elapsed_s: float
    tool_cpu_share: float  # of one CPU, while the load ran
    tool_rss_bytes: int  # at its end
    hits_count: int  # of tlstax's probes


def tools() -> list[Tool]:
    """Those that are installed; nothing attached comes first."""
    found = [
        Tool("nothing", lambda pid, directory: [], ""),
        Tool(
            "tlstax",
            lambda pid, directory: [
                *TLSTAX_COMMAND, str(pid), "--quiet", "-o", str(directory / "capture")
            ],
            "attached to",
        ),
    ]  # fmt: skip
    if perf := shutil.which("perf"):
        options = [perf, "record", "-q", "-e", "cpu-clock", "-F", "99", "--call-graph", "dwarf"]
        found.append(
            Tool(
                "perf record --call-graph dwarf -F 99",
                lambda pid, directory: [*options, "-p", str(pid), "-o", str(directory / "perf")],
                "",
            )
        )
    script = next((path for path in SSLLATENCY if Path(path).exists()), None)
    if script and (bpftrace := shutil.which("bpftrace")):
        found.append(
            Tool(
                "bpftrace ssllatency.bt",
                lambda pid, directory: [bpftrace, "-B", "line", script],
                "Hit Ctrl-C",
            )
        )
    return found


def process_cpu_ns(pid: int) -> int:
    """CPU time of a process and all its threads, those that ended too, by the scheduler."""
    clock = (~pid << 3) | 2  # CPUCLOCK_SCHED of a process (clock_getcpuclockid(3))
    return time.clock_gettime_ns(clock)


@contextmanager
def attached(tool: Tool, pid: int, directory: Path) -> Iterator[int]:
    """The tool on the process; its own pid, 0 when there is none."""
    command = tool.command(pid, directory)
    if not command:
        yield 0
        return
    log = directory / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        await_attached(tool, process, log)
        yield process.pid
        process.send_signal(signal.SIGINT)
        process.wait(ATTACH_PATIENCE_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def resident_bytes(pid: int) -> int:
    """Resident memory of a process (statm counts pages)."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def await_attached(tool: Tool, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Return once the tool watches; SystemExit with what it said if it never does."""
    deadline = time.monotonic() + ATTACH_PATIENCE_S
    while tool.ready and tool.ready not in log.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"{tool.name} does not attach: {log.read_text(errors='replace')}")
        time.sleep(0.1)
    time.sleep(1 if tool.ready else 2)
    if process.poll() is not None:
        raise SystemExit(f"{tool.name} ended: {log.read_text(errors='replace')}")


def one_run(tool: Tool, server: PrivateServer, driver: Sysbench, load: Load) -> Run:
    """Drive the load with the tool attached."""
    with tempfile.TemporaryDirectory(prefix="tlstax-overhead-") as name:
        directory = Path(name)
        with attached(tool, server.pid, directory) as pid:
            before_ns = process_cpu_ns(server.pid)
            tool_before_ns = process_cpu_ns(pid) if pid else 0
            result = driver.run(load, "tls")
            spent_ns = process_cpu_ns(server.pid) - before_ns
            tool_ns = process_cpu_ns(pid) - tool_before_ns if pid else 0
            rss = resident_bytes(pid) if pid else 0
        hits = hits_of(directory / "capture") if tool.name == "tlstax" else 0
    return Run(
        per_second=result.operation_count / load.seconds,
        cpu_ns_per_operation=spent_ns / result.operation_count,
        operation_count=result.operation_count,
        elapsed_s=result.elapsed_ns / NS_PER_S,
        tool_cpu_share=tool_ns / result.elapsed_ns,
        tool_rss_bytes=rss,
        hits_count=hits,
    )


def hits_of(capture: Path) -> int:
    """Hits of the user-space probes in a capture."""
    with CaptureReader.open(capture) as reader:
        return sum(row.hits_count for row in reader.rows(Probe) if "uprobe" in row.kind
                   or "uretprobe" in row.kind)  # fmt: skip


def interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Median, and its 95 % interval by resampling the rounds."""
    draw = random.Random(1)  # the same figures give the same interval
    drawn = sorted(median(draw.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return median(ratios), drawn[int(0.025 * RESAMPLES)], drawn[int(0.975 * RESAMPLES)]


def show(load: Load, runs: dict[str, list[Run]]) -> None:
    """Print one load's table."""
    print(f"\n{load.scenario.name} over TLS, {load.threads_count} threads, {load.seconds} s a run,"
          f" {len(runs['nothing'])} rounds")  # fmt: skip
    print(
        f"{'attached':<38}{'ops/s':>9}{'ratio':>7}{'95 %':>14}{'CPU us/op':>12}{'ratio':>7}"
        f"{'95 %':>14}{'own CPU':>9}{'MB':>5}"
    )
    for name, under in runs.items():
        pairs = list(zip(under, runs["nothing"], strict=True))
        speed = interval([run.per_second / none.per_second for run, none in pairs])
        cost = interval([r.cpu_ns_per_operation / n.cpu_ns_per_operation for r, n in pairs])
        own = fmean(run.tool_cpu_share for run in under)
        print(
            f"{name:<38}{median(run.per_second for run in under):>9.0f}"
            f"{speed[0]:>7.2f}{f'{speed[1]:.2f}..{speed[2]:.2f}':>14}"
            f"{median(run.cpu_ns_per_operation for run in under) / 1e3:>12.2f}"
            f"{cost[0]:>7.2f}{f'{cost[1]:.2f}..{cost[2]:.2f}':>14}"
            f"{own:>9.1%}{max(run.tool_rss_bytes for run in under) / 1e6:>5.0f}"
        )
    show_hits(runs["tlstax"], runs["nothing"])


def show_hits(under: Sequence[Run], none: Sequence[Run]) -> None:
    """Where tlstax's cost goes: hits, and the server's CPU time that each one added."""
    hits = sum(run.hits_count for run in under)
    operations = sum(run.operation_count for run in under)
    seconds = sum(run.elapsed_s for run in under)
    added = median(
        run.cpu_ns_per_operation - other.cpu_ns_per_operation
        for run, other in zip(under, none, strict=True)
    )
    print(
        f"tlstax: {hits / seconds:,.0f} probe hits/s, {hits / operations:.2f} per operation;"
        f" {added:,.0f} ns of the server's CPU time added per operation,"
        f" {added * operations / hits if hits else 0:,.0f} ns per hit"
        " (scheduler events and samples included)"
    )


def measure(load: Load, rounds: int, chosen: list[Tool], server: PrivateServer) -> None:
    """All rounds of one load."""
    driver = Sysbench(server, table_rows=TABLE_ROWS)
    driver.run(Load(load.scenario, load.threads_count, 2), "tls")
    runs: dict[str, list[Run]] = {tool.name: [] for tool in chosen}
    for number in range(rounds):
        turn = number % len(chosen)
        for tool in chosen[turn:] + chosen[:turn]:
            runs[tool.name].append(one_run(tool, server, driver, load))
            print(f"\r{load.scenario.name}: round {number + 1} of {rounds}, {tool.name:<40}",
                  end="", file=sys.stderr)  # fmt: skip
    print(file=sys.stderr)
    show(load, runs)


def main() -> int:
    """Both loads, every tool."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=int, default=4, help="of each run")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--scenario", action="append", choices=["point_select", "connect"])
    parser.add_argument("--only-tlstax", action="store_true", help="without the other tools")
    options = parser.parse_args()
    chosen = tools()[:2] if options.only_tlstax else tools()
    with ExitStack() as stack:
        server = stack.enter_context(PrivateServer(ServerRequest()))
        Sysbench(server, table_rows=TABLE_ROWS).prepare()
        for name in options.scenario or ["point_select", "connect"]:
            load = Load(SCENARIOS[name], options.threads, options.seconds)
            measure(load, options.rounds, chosen, server)
    return 0


if __name__ == "__main__":
    sys.exit(main())
