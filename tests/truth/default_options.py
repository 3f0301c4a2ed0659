# SPDX-License-Identifier: GPL-2.0-only
"""Record lightly loaded servers with default options: all of the time, each handshake, its cost.

    default_options.py [--case NAME] [--rounds N]    (make check-default)

One server uses about a fifth of a CPU, for queries and for connects over TLS; the other one has
5,000 connections, half of them over TLS, with a query now and then. In rounds the server is left
alone for some seconds and recorded for some seconds. Exits with 1 if a part of the time is in no
ledger, if fewer than 99 % of the driver's handshakes have a record, or if more than 5 % of the
server's CPU time is said to have been used, or was measured (lower bound of the median of rounds).
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Handshake, Ledger, Window
from tlstax.tests.background_load import in_background
from tlstax.tests.bench.watching import Bench, Look, interval, told
from tlstax.tests.truth.many_threads import CONNECTIONS, FILES_LEAST, PatientLoad, more_files
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.results import Arm
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.request import ServerRequest

HANDSHAKES_LEAST, COST_MOST = 0.99, 0.05
OFF_S, ON_S, LOAD_MOST_S = 6.0, 12.0, 3600
TABLE_ROWS: Final = 1000
ACCEPTED: Final = "Ssl_finished_accepts"
ARMS: tuple[Arm, ...] = ("tls", "plaintext")


@dataclass(frozen=True)
class Case:
    """A server and what its clients do: rates for each second."""

    name: str
    connections: int
    queries_per_s: float
    connects_per_s: float


CASES: Final = (
    Case("a fifth of a CPU", 4, 800, 25),
    Case("5,000 connections", CONNECTIONS, 600, 2),
)


@dataclass(frozen=True)
class Round:
    """What one recording holds, and what it cost."""

    levels: str
    observed: float  # share of the recording that is in windows with a ledger
    handshakes: int
    accepted: int  # by the server's own counter, while it was recorded
    said: float
    cpus: float  # of the server, alone
    ratio: float  # its CPU time for a query: recorded to alone


@contextmanager
def driven(server: PrivateServer, case: Case) -> Iterator[None]:
    """The clients at work."""
    driver = Sysbench.of_server(server, table_rows=TABLE_ROWS)
    driver.prepare()
    with ExitStack() as stack:
        for arm in ARMS:
            each = case.connections // 2, LOAD_MOST_S
            queries = PatientLoad(
                SCENARIOS["point_select"], *each, rate_per_s=case.queries_per_s / 2
            )
            stack.enter_context(in_background(driver, queries, arm))
        storm = Load(SCENARIOS["connect"], 1, LOAD_MOST_S, rate_per_s=case.connects_per_s)
        stack.enter_context(in_background(driver, storm))
        await_connections(server, case.connections)
        yield


def await_connections(server: PrivateServer, count: int) -> None:
    """Return once they are there."""
    with server.open_status() as status:
        while status.read()["Threads_connected"] < count:
            time.sleep(0.5)
    time.sleep(2)


def recorded(bench: Bench, capture: Path) -> tuple[Look, Look, int]:
    """`tlstax attach` with default options: the server's counters at its edges, its handshakes."""
    command = [sys.executable, "-m", "tlstax", "attach", str(bench.server.pid), "-o", str(capture)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        while "attached to" not in line:
            if not line:
                raise SystemExit("tlstax does not attach")
            line = process.stderr.readline()
        rest: list[str] = []
        reader = threading.Thread(target=lambda: rest.extend(process.stderr or ()))
        reader.start()
        began, accepted = bench.look(), bench.status.read()[ACCEPTED]
        time.sleep(ON_S)
        ended = bench.look()
        accepted = bench.status.read()[ACCEPTED] - accepted
        process.send_signal(signal.SIGINT)
        process.wait()
        reader.join()
    if process.returncode:
        raise SystemExit("".join(rest))
    return began, ended, accepted


def one_round(bench: Bench, capture: Path) -> Round:
    """Alone, and recorded."""
    alone_from = bench.look()
    time.sleep(OFF_S)
    alone_to = bench.look()
    alone = alone_from.until(alone_to)
    began, ended, accepted = recorded(bench, capture)
    with CaptureReader.open(capture) as reader:
        windows = {row.window_id: row for row in reader.rows(Window)}
        with_ledger = {row.window_id for row in reader.rows(Ledger)}
        shaken = sum(
            row.outcome == "success" and began.time_ns <= row.end_ns <= ended.time_ns
            for row in reader.rows(Handshake)
        )
    said = told(capture)[1]
    first = min(row.start_ns for row in windows.values())
    last = max(row.end_ns for row in windows.values())
    observed_ns = sum(windows[one].end_ns - windows[one].start_ns for one in with_ledger)
    return Round(
        levels=" ".join(sorted({windows[one].level for one in with_ledger})),
        observed=observed_ns / (last - first),
        handshakes=shaken,
        accepted=accepted,
        said=said or 0.0,
        cpus=(alone_to.cpu_ns - alone_from.cpu_ns) / (alone_to.time_ns - alone_from.time_ns),
        ratio=began.until(ended).cpu_ns_per_operation / alone.cpu_ns_per_operation,
    )


def judged(case: Case, rounds: Sequence[Round]) -> bool:
    """Print the figures; whether they are as they must be."""
    ratio, low, high = interval([one.ratio for one in rounds])
    shaken = sum(one.handshakes for one in rounds) / max(1, sum(one.accepted for one in rounds))
    observed = min(one.observed for one in rounds)
    said = max(one.said for one in rounds)
    print(
        f"{case.name}: {len(rounds)} rounds, server {min(one.cpus for one in rounds):.2f} to "
        f"{max(one.cpus for one in rounds):.2f} CPUs, host load {os.getloadavg()[0]:.1f}; level "
        f"{' '.join(sorted({one.levels for one in rounds}))}; in the ledger {observed:.1%} "
        f"(least); handshakes {shaken:.2%} of {sum(one.accepted for one in rounds)}; cost said "
        f"{min(one.said for one in rounds):.1%} to {said:.1%}, measured {ratio - 1:+.1%} "
        f"({low - 1:+.1%}..{high - 1:+.1%})",
        flush=True,
    )
    return (
        observed > 0.999
        and shaken >= HANDSHAKES_LEAST
        and said <= COST_MOST
        and low - 1 <= COST_MOST
    )


def measured(case: Case, rounds_count: int, directory: Path) -> bool:
    """A server, and its rounds."""
    options = (f"max_connections = {case.connections + 100}", "back_log = 4096",
               "connect_timeout = 300")  # fmt: skip
    with (
        PrivateServer(ServerRequest(options=options)) as server,
        driven(server, case),
        server.open_status() as status,
    ):
        bench = Bench(server, status, "Questions")
        captures = [directory / f"capture-{number}" for number in range(rounds_count)]
        rounds = [one_round(bench, capture) for capture in captures]
    return judged(case, rounds)


def main() -> int:
    """Each case."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    names = [case.name for case in CASES]
    parser.add_argument("--case", choices=names, action="append", help="(both)")
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    more_files(FILES_LEAST)
    results = []
    for case in CASES:
        if case.name in (options.case or names):
            with tempfile.TemporaryDirectory(prefix="tlstax-default-") as name:
                results.append(measured(case, options.rounds, Path(name)))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
