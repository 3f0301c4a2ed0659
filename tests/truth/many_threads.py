# SPDX-License-Identifier: GPL-2.0-only
"""Record 5,000 connections of a real server, and 20,000 threads with room for 10,000.

    python tests/truth/many_threads.py

Prints a line for each; exits with 1 if a thread of the server has no account, or if the head of the
second report does not say what is missing. (`make check-threads`)
"""

import json
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import ProcessClock, System, Window
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.results import Arm
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.request import ServerRequest

CROWD = Path(__file__).resolve().parents[1] / "testprogs/bin/crowd"
CONNECTIONS, EVENTS_PER_S, SECONDS = 5000, 600, 30
THREADS, ROOM, ROUNDS, SPIN_US = 20_000, 10_000, 5, 500
PATIENCE_S = 120
FILES_LEAST = 3 * CONNECTIONS


class PatientLoad(Load):
    """A load whose connections take long to come, and to end."""

    @property
    def limit_s(self) -> float:
        """When the driver is taken for stuck."""
        return self.seconds + PATIENCE_S


@contextmanager
def recorded(pid: int, capture: Path, *more: str) -> Iterator[None]:
    """`tlstax attach`, from when it is attached to the end of the block."""
    command = [sys.executable, "-m", "tlstax", "attach", str(pid), "--budget", "none", "--quiet"]
    with subprocess.Popen(
        [*command, "-o", str(capture), *more], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        if "attached to" not in line:
            raise SystemExit(line + process.stderr.read())
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            errors = process.stderr.read()
    if process.returncode:
        raise SystemExit(errors)


def figures(capture: Path) -> dict[str, Any]:
    """What the capture says of threads and of the recorder."""
    with CaptureReader.open(capture) as reader:
        clocks = list(reader.rows(ProcessClock))
        systems = list(reader.rows(System))
        windows = list(reader.rows(Window))
    length_ns = sum(window.end_ns - window.start_ns for window in windows)
    fullest = max(clocks, key=lambda row: row.thread_count)
    process_ns = sum(row.process_cpu_ns or 0 for row in clocks)
    return {
        "threads": fullest.thread_count,
        "accounts": fullest.account_count,
        "without room": max(row.untracked_count for row in clocks),
        "CPU time in the ledger's threads": sum(row.account_cpu_ns for row in clocks) / process_ns,
        "recorder, MiB": max(row.engine_rss_bytes for row in systems) >> 20,
        "recorder, CPUs": sum(row.engine_cpu_ns for row in systems) / length_ns,
    }


def drive(server: PrivateServer) -> None:
    """Half of the connections over TLS and half not, each with a query now and then."""
    sysbench = Sysbench.of_server(server, table_rows=1000)
    sysbench.prepare()

    def run(arm: Arm) -> None:
        load = PatientLoad(
            SCENARIOS["point_select"], CONNECTIONS // 2, SECONDS, rate_per_s=EVENTS_PER_S
        )
        sysbench.run(load, arm)

    arms: tuple[Arm, ...] = ("tls", "plaintext")
    runs = [threading.Thread(target=run, args=[arm]) for arm in arms]
    for one in runs:
        one.start()
    for one in runs:
        one.join()


def server_threads(directory: Path) -> bool:
    """Every connection of a server has an account, also those that come after tlstax."""
    options = (
        f"max_connections = {CONNECTIONS + 100}",
        "back_log = 4096",
        "connect_timeout = 300",  # all of them shake hands at once
    )
    with (
        PrivateServer(ServerRequest(options=options)) as server,
        recorded(server.pid, directory / "server"),
    ):
        drive(server)
    found = figures(directory / "server")
    print(f"server, {CONNECTIONS:,} connections: {found}", flush=True)
    return bool(found["accounts"] == found["threads"] > CONNECTIONS)


def beyond_room(directory: Path) -> bool:
    """The head of the report says what the ledger lacks."""
    with subprocess.Popen(
        [CROWD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as crowd:
        assert crowd.stdin is not None
        assert crowd.stdout is not None
        crowd.stdout.readline()
        crowd.stdin.write(f"+ {THREADS - 1}\n".encode())
        crowd.stdout.readline()
        with recorded(crowd.pid, directory / "crowd", "--max-threads", str(ROOM)):
            for _ in range(ROUNDS):
                crowd.stdin.write(f"! {SPIN_US}\n".encode())
                crowd.stdout.readline()
                time.sleep(1)
        crowd.stdin.close()
    print(f"crowd, {THREADS:,} threads: {figures(directory / 'crowd')}", flush=True)
    command = [sys.executable, "-m", "tlstax", "report", str(directory / "crowd"), "--json", "-"]
    done = subprocess.run(command, capture_output=True, check=True)
    head = json.loads(done.stdout)["health"]["warnings"][0]
    print(head)
    return bool(head.startswith(f"{THREADS - ROOM:,} of {THREADS:,} threads found no room"))


def more_files(least: int) -> None:
    """Allow as many open files as the host does."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < least:
        raise SystemExit(f"needs {least:,} open files, and the hard limit is {most:,}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main() -> int:
    """Both of them."""
    more_files(FILES_LEAST)
    with tempfile.TemporaryDirectory(prefix="tlstax-threads-") as name:
        results = [beyond_room(Path(name)), server_threads(Path(name))]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
