# SPDX-License-Identifier: GPL-2.0-only
"""What being watched costs a server: tlstax, with and without a budget, and its peers.

A private server answers TLS point selects on open connections, then a storm of TLS connects. One
driver runs for a whole round; while it does, each tool is attached for some seconds, in an order
that rotates, and nothing is before, after and in between. A tool's ratio in a round is its figure
over the mean of the two stretches without any tool next to it; the tables give the median over the
rounds with its 95 % interval (bootstrap). Operations a second are what clients see, and on a shared
host are noisy; the server's CPU time per operation (by the scheduler, probes included) is steadier.

For the budget rounds go on, up to --most-rounds, until the interval decides whether the budget
holds: upper bound <= 1 + budget, or lower bound above it. The trial of each attachment is in it.

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
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median

from tlstax import TlstaxError
from tlstax.collectors.attach_command import DEFAULT_BUDGET
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Effect, Probe, System
from tlstax.collectors.planning import plan_in_child
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.catalogue import find_kind
from tlstax.workloads.servers.lab_server import open_server
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.status import StatusSession

RESAMPLES = 2000
ATTACH_PATIENCE_S = 30
TABLE_ROWS = 10_000
SETTLE_S = 0.5
NOTHING = "nothing"
SSLLATENCY = ("/usr/sbin/ssllatency.bt", "/usr/share/bpftrace/tools/ssllatency.bt")
COUNTERS = {"point_select": "Questions", "connect": "Connections"}
SERVERS = ("mysql56", "mariadb", "mysql97")
PEERS = ("perf-dwarf", "ssllatency", "sslsniff-like", "funclatency", "offcputime")
ARMS = ("full", "default", "budget", *PEERS)


@dataclass(frozen=True)
class Tool:
    """How a tool is started on a process, and how it says that it is attached."""

    name: str
    command: Callable[[Path], list[str]]  # gets a directory of its own
    ready: str  # in a line of its output; "" when it says nothing and two seconds must do
    budget: float | None = None  # share of the server's CPU time that it is to keep to


@dataclass(frozen=True)
class Stretch:
    """Some seconds of a server at work."""

    per_second: float
    cpu_ns_per_operation: float
    operation_count: int
    tool_cpu_share: float = 0.0  # of one CPU
    tool_rss_bytes: int = 0
    hits_count: int = 0  # of tlstax's probes
    said_share: float | None = None  # what tlstax itself says that it cost


@dataclass
class Figures:
    """All rounds of one tool: the stretch under it, and the mean of its two neighbours."""

    under: list[Stretch] = field(default_factory=list)
    beside: list[Stretch] = field(default_factory=list)

    def add(self, before: Stretch, under: Stretch, after: Stretch) -> None:
        """One more round."""
        self.under.append(under)
        self.beside.append(
            Stretch(
                fmean((before.per_second, after.per_second)),
                fmean((before.cpu_ns_per_operation, after.cpu_ns_per_operation)),
                before.operation_count + after.operation_count,
            )
        )

    def speed(self) -> tuple[float, float, float]:
        """Ratio of the throughput: median and interval."""
        pairs = zip(self.under, self.beside, strict=True)
        return interval([one.per_second / other.per_second for one, other in pairs])

    def cost(self) -> tuple[float, float, float]:
        """Ratio of the CPU time per operation: median and interval."""
        pairs = zip(self.under, self.beside, strict=True)
        return interval(
            [one.cpu_ns_per_operation / other.cpu_ns_per_operation for one, other in pairs]
        )


def tlstax(name: str, pid: int, *options: str, budget: float | None = None) -> Tool:
    """`tlstax attach` on a process."""
    base = [sys.executable, "-m", "tlstax", "attach", str(pid), "--quiet", *options]

    def command(directory: Path) -> list[str]:
        return [*base, "-o", str(directory / "capture")]

    return Tool(name, command, "attached to", budget)


def tools(pid: int, arms: Sequence[str], budget: str) -> list[Tool]:
    """Those that can be had here; a line for each that cannot."""
    found = []
    for arm in arms:
        if arm == "full":
            found.append(tlstax("tlstax --budget none", pid, "--budget", "none"))
        elif arm == "default":
            found.append(tlstax("tlstax", pid, budget=DEFAULT_BUDGET))
        elif arm == "budget":
            share = float(budget.rstrip("%")) / 100
            found.append(tlstax(f"tlstax --budget {budget}", pid, "--budget", budget, budget=share))
        elif isinstance(tool := PEER_MAKERS[arm](pid), Tool):
            found.append(tool)
        else:
            print(f"{arm}: left out, {tool}")
    return found


def perf_dwarf(pid: int) -> Tool | str:
    """Perf with DWARF stacks, or why not."""
    if not (perf := shutil.which("perf")):
        return "perf is not installed (Debian: linux-perf)"
    command = [perf, "record", "-q", "-e", "cpu-clock", "-F", "99", "--call-graph", "dwarf"]
    return Tool(
        "perf record --call-graph dwarf -F 99",
        lambda directory: [*command, "-p", str(pid), "-o", str(directory / "perf")],
        "",
    )


def ssllatency(pid: int) -> Tool | str:
    """Bpftrace's own tool, which watches the host's libssl, whoever uses it."""
    script = next((path for path in SSLLATENCY if Path(path).exists()), None)
    bpftrace = shutil.which("bpftrace")
    if not script or not bpftrace:
        return "bpftrace or its ssllatency.bt is not installed"
    rows = [line.split() for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    libssl = [(row[4], row[5]) for row in rows if "/libssl.so" in row[-1]]
    if not libssl:
        return "it knows libssl only, and this server has its TLS library inside"
    hosts = {str(path.stat().st_ino) for path in Path("/usr/lib").glob("*/libssl.so*")}
    if not hosts.intersection(inode for inode, _ in libssl):
        return "it watches the host's libssl, and this server has another one"
    return Tool("bpftrace ssllatency.bt", lambda _: [bpftrace, "-B", "line", script], "Hit Ctrl-C")


def record_functions(pid: int) -> list[str]:
    """The TLS library's read and write, as bpftrace names their probes; none if unknown."""
    _, plan = plan_in_child(pid)
    library = plan.library("tls")
    names = {"yassl": ("yaSSL_read", "yaSSL_write"), "wolfssl": ("wolfSSL_read", "wolfSSL_write")}
    if library is None:
        return []
    read, write = names.get(library.id, ("SSL_read", "SSL_write"))
    paths = sorted(entry.open_path for entry in library.objects)
    path = next((one for one in paths if "libssl" in one), paths[0])
    return [f"{path}:{function}" for function in (read, write)]


def script_tool(pid: int, name: str, lines: str) -> Tool | str:
    """A bpftrace program over the library's read and write."""
    bpftrace = shutil.which("bpftrace")
    if not bpftrace:
        return "bpftrace is not installed"
    if not (places := record_functions(pid)):
        return "the functions that read and write records are not known"
    script = 'BEGIN { printf("watching\\n"); } '
    script += " ".join(lines.replace("PLACE", place) for place in places)
    return Tool(name, lambda _: [bpftrace, "-B", "line", "-e", script], "watching")


def sslsniff_like(pid: int) -> Tool | str:
    """Bcc's sslsniff needs kernel headers; this does what it does, and prints sizes only."""
    return script_tool(
        pid,
        "each read and write printed (as sslsniff)",
        "uprobe:PLACE { @from[tid] = nsecs; } uretprobe:PLACE /@from[tid]/ "
        '{ printf("%d %d %d\\n", tid, (int32)retval, nsecs - @from[tid]); delete(@from[tid]); }',
    )


def funclatency(pid: int) -> Tool | str:
    """libbpf-tools' funclatency where it is installed, else bpftrace's histogram."""
    program = shutil.which("funclatency-libbpf")
    if program and (places := record_functions(pid)):
        return Tool(
            "funclatency (libbpf-tools), writes",
            lambda _: [program, "-u", "-p", str(pid), places[1]],
            "Tracing",
        )
    return script_tool(
        pid,
        "histogram of reads and writes (bpftrace)",
        "uprobe:PLACE { @from[tid] = nsecs; } uretprobe:PLACE /@from[tid]/ "
        "{ @us = hist((nsecs - @from[tid]) / 1000); delete(@from[tid]); }",
    )


def offcputime(pid: int) -> Tool | str:
    """libbpf-tools' offcputime."""
    program = shutil.which("offcputime-libbpf") or shutil.which("offcputime")
    if not program:
        return "libbpf-tools are not installed (not in this Debian), and bcc needs kernel headers"
    return Tool("offcputime (libbpf-tools)", lambda _: [program, "-p", str(pid)], "")


PEER_MAKERS: dict[str, Callable[[int], Tool | str]] = {
    "perf-dwarf": perf_dwarf,
    "ssllatency": ssllatency,
    "sslsniff-like": sslsniff_like,
    "funclatency": funclatency,
    "offcputime": offcputime,
}


def process_cpu_ns(pid: int) -> int:
    """CPU time of a process and all its threads, those that ended too, by the scheduler."""
    clock = (~pid << 3) | 2  # CPUCLOCK_SCHED of a process (clock_getcpuclockid(3))
    return time.clock_gettime_ns(clock)


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
    time.sleep(SETTLE_S if tool.ready else 2)
    if process.poll() is not None:
        raise SystemExit(f"{tool.name} ended: {log.read_text(errors='replace')}")


@dataclass(frozen=True)
class Bench:
    """A server at work, and how to read its counters."""

    server: PrivateServer
    status: StatusSession
    counter: str

    def stretch(self, seconds: float) -> Stretch:
        """Some seconds with nothing attached, or with what is attached already."""
        began_ns, began, spent_ns = self._look()
        time.sleep(seconds)
        ended_ns, ended, now_ns = self._look()
        count = max(1, ended - began)
        elapsed_s = (ended_ns - began_ns) / 1e9
        return Stretch(count / elapsed_s, (now_ns - spent_ns) / count, count)

    def _look(self) -> tuple[int, int, int]:
        status = self.status.read()
        return status.time_ns, status[self.counter], process_cpu_ns(self.server.pid)

    def under(self, tool: Tool, seconds: float) -> Stretch:
        """Some seconds under a tool. tlstax's trial, at its start, is part of them."""
        with tempfile.TemporaryDirectory(prefix="tlstax-overhead-") as name:
            directory = Path(name)
            log = directory / "log"
            with log.open("wb") as output:
                process = subprocess.Popen(
                    tool.command(directory), stdout=output, stderr=subprocess.STDOUT
                )
            try:
                if tool.budget is None:
                    await_attached(tool, process, log)
                began_ns = process_cpu_ns(process.pid)
                seen = self.stretch(seconds)
                used_ns = process_cpu_ns(process.pid) - began_ns
                memory = resident_bytes(process.pid)
                process.send_signal(signal.SIGINT)
                process.wait(ATTACH_PATIENCE_S)
                if tool.budget is not None and process.returncode:
                    raise SystemExit(f"{tool.name}: {log.read_text(errors='replace')}")
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
            hits, said = told(directory / "capture")
        return Stretch(
            seen.per_second, seen.cpu_ns_per_operation, seen.operation_count,
            used_ns / seconds / 1e9, memory, hits, said,
        )  # fmt: skip


def told(capture: Path) -> tuple[int, float | None]:
    """Hits of the user-space probes, and the share of CPU time that tlstax counts as its cost."""
    if not capture.exists():
        return 0, None
    with CaptureReader.open(capture) as reader:
        hits = sum(row.hits_count for row in reader.rows(Probe) if row.kind.startswith("u"))
        effects = list(reader.rows(Effect))
        own_ns = sum(row.engine_cpu_ns for row in reader.rows(System))
    cpu_ns = sum(row.target_cpu_ns or 0 for row in effects)
    cost_ns = own_ns + sum(
        (row.probe_ns or 0) + (row.scheduler_ns or 0) + (row.sample_ns or 0) for row in effects
    )
    return hits, cost_ns / cpu_ns if cpu_ns else None


def interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Median, and its 95 % interval by resampling the rounds."""
    draw = random.Random(1)  # the same figures give the same interval
    drawn = sorted(median(draw.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return median(ratios), drawn[int(0.025 * RESAMPLES)], drawn[int(0.975 * RESAMPLES)]


@contextmanager
def driven(server: PrivateServer, scenario: str, threads: int, seconds: float) -> Iterator[None]:
    """The driver at work in the background for at least this long."""
    driver = Sysbench.of_server(server, table_rows=TABLE_ROWS)
    load = Load(SCENARIOS[scenario], threads, int(seconds) + 1)
    errors: list[TlstaxError] = []

    def run() -> None:
        try:
            driver.run(load, "tls")
        except TlstaxError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        time.sleep(1.5)
        yield
    finally:
        thread.join()
        for error in errors:
            raise error


def rounds_of(
    bench: Bench, scenario: str, chosen: Sequence[Tool], options: argparse.Namespace
) -> dict[str, Figures]:
    """Every tool in turn, `--rounds` times."""
    figures = {tool.name: Figures() for tool in chosen}
    length_s = options.seconds + (len(chosen)) * (options.seconds + 6 + options.seconds)
    for number in range(options.rounds):
        turn = number % len(chosen)
        with driven(bench.server, scenario, options.threads, length_s):
            before = bench.stretch(options.seconds)
            for tool in (*chosen[turn:], *chosen[:turn]):
                progress(f"{scenario}: round {number + 1} of {options.rounds}, {tool.name}")
                under = bench.under(tool, options.seconds)
                after = bench.stretch(options.seconds)
                figures[tool.name].add(before, under, after)
                before = after
    return figures


def decide(bench: Bench, scenario: str, tool: Tool, options: argparse.Namespace) -> Figures:
    """Rounds of a budget until its interval decides, or there were enough."""
    assert tool.budget is not None
    limit = 1 + tool.budget
    figures = Figures()
    seconds = options.budget_seconds
    while len(figures.under) < options.most_rounds:
        with driven(bench.server, scenario, options.threads, 3 * seconds + 3):
            before = bench.stretch(seconds)
            under = bench.under(tool, seconds)
            figures.add(before, under, bench.stretch(seconds))
        cost, low, high = figures.cost()
        count = len(figures.under)
        progress(f"{scenario}: {tool.name}, round {count}: {cost:.4f} ({low:.4f}..{high:.4f})")
        if count >= options.rounds and (high <= limit or low > limit):
            break
    return figures


def progress(text: str) -> None:
    """One line that is rewritten."""
    print(f"\r{text:<100}", end="", file=sys.stderr, flush=True)


def show(title: str, figures: dict[str, Figures]) -> None:
    """Print one table, and who wins."""
    print(f"\n{title}")
    print(
        f"{'attached':<44}{'rounds':>7}{'ops/s':>9}{'ratio':>7}{'95 %':>14}{'CPU us/op':>11}"
        f"{'ratio':>8}{'95 %':>18}{'own CPU':>9}{'MB':>5}"
    )
    for name, one in figures.items():
        speed, cost = one.speed(), one.cost()
        own = fmean(run.tool_cpu_share for run in one.under)
        print(
            f"{name:<44}{len(one.under):>7}{median(run.per_second for run in one.under):>9.0f}"
            f"{speed[0]:>7.2f}{f'{speed[1]:.2f}..{speed[2]:.2f}':>14}"
            f"{median(run.cpu_ns_per_operation for run in one.under) / 1e3:>11.2f}"
            f"{cost[0]:>8.4f}{f'{cost[1]:.4f}..{cost[2]:.4f}':>18}"
            f"{own:>9.1%}{max(run.tool_rss_bytes for run in one.under) / 1e6:>5.0f}"
        )
    by_cost = sorted(figures, key=lambda name: figures[name].cost()[0])
    by_speed = sorted(figures, key=lambda name: -figures[name].speed()[0])
    print(f"least CPU per operation: {', '.join(by_cost)}")
    print(f"most operations: {', '.join(by_speed)}")
    for name, one in figures.items():
        show_own_words(name, one)


def show_own_words(name: str, figures: Figures) -> None:
    """What tlstax says that it cost, beside what it did."""
    said = [run.said_share for run in figures.under if run.said_share is not None]
    if not said:
        return
    hits = sum(run.hits_count for run in figures.under)
    operations = sum(run.operation_count for run in figures.under)
    cost = figures.cost()[0] - 1
    print(
        f"{name}: {hits / operations:.3f} probe hits per operation; it says that it cost "
        f"{median(said):.2%}, with its own CPU time; the server's CPU time per operation rose by "
        f"{cost:.2%}"
    )


def bench_server(name: str, options: argparse.Namespace) -> None:
    """Both loads on one server; a line if it cannot be had."""
    try:
        ready = open_server(find_kind(name))
    except TlstaxError as error:
        print(f"{name}: left out, {error}")
        return
    with ready as server:
        Sysbench.of_server(server, table_rows=TABLE_ROWS).prepare()
        chosen = tools(server.pid, options.arms, options.budget)
        apart = [tool for tool in chosen if tool.budget is not None]
        together = [tool for tool in chosen if tool not in apart]
        for scenario in options.scenario:
            with server.open_status() as status:
                bench = Bench(server, status, COUNTERS[scenario])
                figures = rounds_of(bench, scenario, together, options) if together else {}
                for tool in apart:
                    figures[tool.name] = decide(bench, scenario, tool, options)
            print(file=sys.stderr)
            show(f"{name}, {scenario} over TLS, {options.threads} threads", figures)


def main() -> int:
    """Every server, load and tool that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8, help="of each tool")
    parser.add_argument("--seconds", type=float, default=4, help="of each stretch")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--scenario", action="append", choices=list(COUNTERS))
    parser.add_argument("--servers", type=lambda text: text.split(","), default=list(SERVERS))
    parser.add_argument("--arms", type=lambda text: text.split(","), default=list(ARMS))
    parser.add_argument("--budget", default="1%")
    parser.add_argument("--budget-seconds", type=float, default=30, help="of its stretches")
    parser.add_argument("--most-rounds", type=int, default=60, help="of the budget")
    options = parser.parse_args()
    options.scenario = options.scenario or list(COUNTERS)
    if unknown := set(options.arms) - set(ARMS):
        parser.error(f"no such arm: {', '.join(sorted(unknown))}; there are {', '.join(ARMS)}")
    for name in options.servers:
        bench_server(name, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
