# SPDX-License-Identifier: GPL-2.0-only
"""A server at work and a tool that watches it: what the benches of being watched share."""

import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from tlstax.analysis.statistics import medians
from tlstax.analysis.statistics.units import rounds
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Effect, Probe, System
from tlstax.collectors.host.tracefs import prepare_tool
from tlstax.tests.background_load import in_background
from tlstax.tests.processes import process_cpu_ns
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.status import StatusSession

Result = TypeVar("Result")

ATTACH_PATIENCE_S: Final = 30
TABLE_ROWS: Final = 10_000
LOAD_MOST_S: Final = 7200
SETTLE_S: Final = 0.5
COUNTERS: Final = {"point_select": "Questions", "connect": "Connections"}
SERVERS: Final = ("mysql56", "mariadb", "mysql97")


@dataclass(frozen=True)
class Tool:
    """How a tool is started on a process, and how it says that it is attached."""

    name: str
    command: Callable[[Path], list[str]]  # gets a directory of its own
    ready: str  # in a line of its output; "" when it says nothing and two seconds must do
    budget: float | None = None  # share of the server's CPU time that it is to keep to


def tlstax(name: str, pid: int, *options: str, budget: float | None = None) -> Tool:
    """`tlstax attach` on a process."""
    base = [sys.executable, "-m", "tlstax", "attach", str(pid), "--quiet", *options]

    def command(directory: Path) -> list[str]:
        return [*base, "-o", str(directory / "capture")]

    return Tool(name, command, "attached to", budget)


def clients_cpu_ns() -> int:
    """CPU time of the drivers that this process has started and that run."""
    used_ns, parents = 0, [os.getpid()]
    while parents:
        pid = parents.pop()
        with suppress(OSError):  # it has ended
            for file in Path(f"/proc/{pid}/task").glob("*/children"):
                parents += map(int, file.read_text().split())
            if Path(f"/proc/{pid}/comm").read_text().strip() == "sysbench":
                used_ns += process_cpu_ns(pid)
    return used_ns


def ended_children_cpu_ns() -> int:
    """CPU time of this process's children that have ended, and theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return int((used.ru_utime + used.ru_stime) * 1e9)


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
class Own:
    """What a tool needed itself, and what tlstax says of its cost."""

    cpu_ns: int  # while it was measured, without its child processes
    whole_cpu_ns: int  # from its start to its end, with them
    rss_bytes: int
    hits_count: int  # of tlstax's probes
    said_share: float | None
    said_elsewhere_share: float | None  # the part of it for tlstax itself
    said_neighbour_share: float | None  # the part of it at events of other processes
    hit_words: str  # where it has the cost of a hit from


def watched(tool: Tool, measure: Callable[[], Result]) -> tuple[Result, Own]:
    """Measure while the tool is at work, and end it.

    One that keeps to a budget is not waited for: what it costs to begin counts. Raises SystemExit
    with what it said when it fails.
    """
    with tempfile.TemporaryDirectory(prefix="tlstax-overhead-") as name:
        directory = Path(name)
        log = directory / "log"
        ended_ns = ended_children_cpu_ns()
        with log.open("wb") as output:
            process = subprocess.Popen(
                tool.command(directory),
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=prepare_tool,
            )
        try:
            if tool.budget is None:
                await_attached(tool, process, log)
            began_ns = process_cpu_ns(process.pid)
            result = measure()
            if process.poll() is not None:
                raise SystemExit(f"{tool.name} ended: {log.read_text(errors='replace')}")
            cpu_ns = process_cpu_ns(process.pid) - began_ns
            rss_bytes = resident_bytes(process.pid)
            process.send_signal(signal.SIGINT)
            process.wait(ATTACH_PATIENCE_S)
            if tool.budget is not None and process.returncode:
                raise SystemExit(f"{tool.name}: {log.read_text(errors='replace')}")
        except subprocess.TimeoutExpired:
            raise SystemExit(f"{tool.name} does not end") from None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        whole_ns = ended_children_cpu_ns() - ended_ns
        return result, Own(cpu_ns, whole_ns, rss_bytes, *told(directory / "capture"))


def told(capture: Path) -> tuple[int, float | None, float | None, float | None, str]:
    """Hits of the user-space probes, and the share of CPU time that tlstax counts as its cost.

    Then the parts of it that are in no server's CPU time, for tlstax itself and at events of other
    processes, and where it has what recording costs from.
    """
    if not capture.exists():
        return 0, None, None, None, ""
    with CaptureReader.open(capture) as reader:
        hits = sum(row.hits_count for row in reader.rows(Probe) if row.kind.startswith("u"))
        effects = list(reader.rows(Effect))
        own_ns = sum(row.engine_cpu_ns for row in reader.rows(System))
        meta = reader.meta()
    cpu_ns = sum(row.target_cpu_ns or 0 for row in effects)
    cost_ns = own_ns + sum(sum(row.costs_ns) for row in effects)
    words = meta.get("hit_cost_source", "")
    for cost in ("hit_cost", "send_cost", "send_host_cost"):
        if f"{cost}_ns" in meta:
            ends = (float(meta[f"{cost}_{end}ns"]) / 1e3 for end in ("", "low_", "high_"))
            words += " {} {:.2f} us ({:.2f}..{:.2f})".format(cost, *ends)
    neighbours_ns = sum(row.neighbour_ns or 0 for row in effects)
    said, own, neighbours = (
        ns / cpu_ns if cpu_ns else None for ns in (cost_ns, own_ns, neighbours_ns)
    )
    return hits, said, own, neighbours, words


def interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Median, and its 95 % interval; of fewer than eight rounds their range."""
    found = medians.of_values(ratios, rounds(len(ratios)))
    low, high = (found.value if end is None else end for end in (found.low, found.high))
    return found.value, low, high


def bounds_name(count: int) -> str:
    """What the bounds of so many rounds are, for people."""
    return "95 % intervals" if rounds(count).have_interval else "their range"


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
    said_elsewhere_share: float | None = None  # the part of it for tlstax itself
    said_neighbour_share: float | None = None  # the part of it at events of other processes
    clients_cpu_ns_per_operation: float = 0.0
    hit_words: str = ""  # where it has the cost of a hit from


class Look(NamedTuple):
    """What a server has done by now."""

    time_ns: int
    operation_count: int
    cpu_ns: int
    clients_cpu_ns: int

    def until(self, later: "Look") -> Stretch:
        """What it did from then on."""
        count = max(1, later.operation_count - self.operation_count)
        elapsed_s = (later.time_ns - self.time_ns) / 1e9
        return Stretch(
            count / elapsed_s,
            (later.cpu_ns - self.cpu_ns) / count,
            count,
            clients_cpu_ns_per_operation=(later.clients_cpu_ns - self.clients_cpu_ns) / count,
        )


@dataclass(frozen=True)
class Bench:
    """A server at work, and how to read its counters."""

    server: PrivateServer
    status: StatusSession
    counter: str

    def look(self) -> Look:
        """Its counters now."""
        status = self.status.read()
        server_ns, clients_ns = process_cpu_ns(self.server.pid), clients_cpu_ns()
        return Look(status.time_ns, status[self.counter], server_ns, clients_ns)

    def stretch(self, seconds: float) -> Stretch:
        """Some seconds with nothing attached, or with what is attached already."""
        before = self.look()
        time.sleep(seconds)
        return before.until(self.look())


@contextmanager
def driven(server: PrivateServer, scenario: str, threads: int) -> Iterator[None]:
    """The driver at work in the background for as long as the block lasts."""
    driver = Sysbench.of_server(server, table_rows=TABLE_ROWS)
    with in_background(driver, Load(SCENARIOS[scenario], threads, LOAD_MOST_S)):
        time.sleep(1.5)
        yield


def progress(text: str) -> None:
    """One line that is rewritten."""
    print(f"\r{text:<100}", end="", file=sys.stderr, flush=True)
