# SPDX-License-Identifier: GPL-2.0-only
"""What recordings say that they cost, beside what they do, by many short ones.

A server answers TLS point selects or a storm of TLS connects while the recorder is attached for a
second, again and again, with a second without it before and after. What a storm's connect costs
scatters by more than recording adds to it, in stretches of some seconds; neighbours of a second
differ by less, and there are more of them. For each load the CPU time that an operation took more
while it was recorded, of the server and of server and clients together, and what the recordings
say that it did: medians over the turns with 95 % intervals.

The two differ in whose clock shows it: a wake-up's program runs in the thread that wakes, a
switch's on the time of the thread that comes. So only both together can agree with what is said.

Run by `make bench-said`. Always exits 0 when every turn could be made: it is a report.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from tlstax.collectors.host.executable import recorder_path
from tlstax.collectors.recording.stream_recording import import_stream
from tlstax.tests.bench.overhead import Figures, show_own_words
from tlstax.tests.bench.watching import (
    COUNTERS,
    SERVERS,
    TABLE_ROWS,
    Bench,
    Stretch,
    driven,
    progress,
    told,
)
from tlstax.workloads.drivers.sysbench import Sysbench
from tlstax.workloads.servers.catalogue import find_kind
from tlstax.workloads.servers.lab_server import open_server

SETTLE_S: Final = 0.1
END_PATIENCE_S: Final = 30


def plan_of(pid: int, folder: Path) -> Path:
    """The plan of a process, in a file; the planner's memory is not this process's."""
    plan = folder / "server.plan"
    command = [sys.executable, "-m", "tlstax", "probes", "plan", str(pid), "--force"]
    command += ["--output", str(plan)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return plan


@contextmanager
def recorded(
    pid: int, plan: Path, stream: Path, window: str, measures_cost: bool
) -> Iterator[None]:
    """The recorder, attached; SystemExit with what it said when it fails."""
    command = [str(recorder_path()), "--plan", str(plan), "--pid", str(pid), "--window", window]
    command += ["--output", str(stream), *(["--measure-cost"] if measures_cost else [])]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as recorder:
        assert recorder.stderr is not None
        said = recorder.stderr.readline()
        if b"attached to" not in said:
            raise SystemExit(said.decode(errors="replace"))
        time.sleep(SETTLE_S)
        try:
            yield
        finally:
            recorder.send_signal(signal.SIGTERM)
            rest = recorder.stderr.read()
        if recorder.wait(END_PATIENCE_S):
            raise SystemExit(rest.decode(errors="replace"))


def with_words(stretch: Stretch, stream: Path, capture: Path) -> Stretch:
    """A stretch, with what its recording says."""
    with stream.open("rb") as content:
        import_stream(content, stream.name, capture, overwrite=False)
    hits, said, own, neighbours, words = told(capture)
    stream.unlink()
    capture.unlink()
    return replace(
        stretch,
        hits_count=hits,
        said_share=said,
        said_elsewhere_share=own,
        said_neighbour_share=neighbours,
        hit_words=words,
    )


def turns(bench: Bench, scenario: str, folder: Path, options: argparse.Namespace) -> Figures:
    """All stretches of a load; the streams are read after them."""
    plan = plan_of(bench.server.pid, folder)
    seen: list[Stretch] = []
    with driven(bench.server, scenario, options.threads):
        beside = [bench.stretch(options.seconds)]
        for number in range(options.turns):
            progress(f"{scenario}: turn {number + 1} of {options.turns}")
            stream = folder / f"{number}"
            with recorded(bench.server.pid, plan, stream, options.window, options.measure_cost):
                seen.append(bench.stretch(options.seconds))
            time.sleep(SETTLE_S)
            beside.append(bench.stretch(options.seconds))
    figures = Figures()
    for number, stretch in enumerate(seen):
        told_of = with_words(stretch, folder / f"{number}", folder / "capture")
        # With --measure-cost the one before is 6 s earlier, and stands for another time.
        before = beside[number + options.measure_cost]
        figures.add(before, told_of, beside[number + 1])
    return figures


def main() -> int:
    """Every server and load that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=100, help="of each load")
    parser.add_argument("--seconds", type=float, default=1, help="of each stretch")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--scenario", action="append", choices=list(COUNTERS))
    parser.add_argument("--servers", type=lambda text: text.split(","), default=list(SERVERS))
    parser.add_argument("--window", default="100ms", help="the kernel times programs in the first")
    parser.add_argument(
        "--measure-cost", action="store_true", help="in the server, first: 5 s for a turn"
    )
    options = parser.parse_args()
    for name in options.servers:
        with open_server(find_kind(name)) as server, tempfile.TemporaryDirectory() as folder:
            Sysbench.of_server(server, table_rows=TABLE_ROWS).prepare()
            for scenario in options.scenario or list(COUNTERS):
                with server.open_status() as status:
                    bench = Bench(server, status, COUNTERS[scenario])
                    figures = turns(bench, scenario, Path(folder), options)
                load = f"load {os.getloadavg()[0]:.1f}"
                print(f"\n{name}, {scenario} over TLS, {options.turns} turns, {load}")
                speed, cost = figures.speed(), figures.cost()
                print("operations a second, ratio: {:.3f} ({:.3f}..{:.3f})".format(*speed))
                print("CPU time for one, ratio: {:.3f} ({:.3f}..{:.3f})".format(*cost))
                show_own_words("tlstax", figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
