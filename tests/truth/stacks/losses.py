# SPDX-License-Identifier: GPL-2.0-only
"""Whether a recording at a high rate keeps all of its stacks (`make check-stack-losses`).

    losses.py [--seconds N]

`tlstax attach` records a private MariaDB: the loads of the demo (TLS connects, then TLS point
selects) at 499 Hz for a minute each, and a storm of TLS connects at 999 Hz for five minutes. Exits
1 if a stack found no room, or if a recording has no samples. Cut walks are printed, but are no
fault here: `make check-stacks` judges them.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Loss, SampleStack, Stack
from tlstax.tests.background_load import in_background
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.mariadb import PrivateServer

NO_ROOM: Final = ("stack_map_full", "walk_not_sent", "stack_forgotten", "user_stack_failed")
"""Losses of stacks for want of room."""
TABLE_ROWS: Final = 1000
THREADS: Final = 2
GRACE_S: Final = 300


class Recording(NamedTuple):
    """What is recorded."""

    scenario: str
    hz: int
    share: float  # of --seconds


RECORDINGS: Final = (
    Recording("connect", 499, 0.2),
    Recording("point_select", 499, 0.2),
    Recording("connect", 999, 1.0),
)


def record(pid: int, hz: int, seconds: int, path: Path) -> None:
    """`tlstax attach` for so long."""
    command = [sys.executable, "-m", "tlstax", "attach", str(pid), "--for", f"{seconds}s"]
    command += ["--sample-hz", str(hz), "--budget", "none", "-o", str(path)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=seconds + GRACE_S)


def described(path: Path) -> tuple[str, int, int]:
    """(text, samples, stacks that found no room) of a capture."""
    with CaptureReader.open(path) as reader:
        samples = sum(row.sample_count for row in reader.rows(SampleStack))
        stacks = sum(1 for _ in reader.rows(Stack))
        losses: Counter[str] = Counter()
        for row in reader.rows(Loss):
            losses[row.kind] += row.lost_count
    no_room = sum(losses[kind] for kind in NO_ROOM)
    others = ", ".join(f"{kind} {count:,}" for kind, count in losses.most_common() if count)
    text = f"{samples:,} samples, {stacks:,} stacks, {no_room:,} without room; all losses: "
    return text + (others or "none"), samples, no_room


def main() -> int:
    """All recordings."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=int, default=300, help="of the longest recording")
    options = parser.parse_args()
    is_bad = False
    with tempfile.TemporaryDirectory(prefix="tlstax-losses-") as folder, PrivateServer() as server:
        driver = Sysbench.of_server(server, table_rows=TABLE_ROWS)
        driver.prepare()
        for number, (scenario, hz, share) in enumerate(RECORDINGS):
            seconds = max(2, round(options.seconds * share))
            path = Path(folder) / f"{number}.tlstax"
            load = Load(SCENARIOS[scenario], THREADS, seconds + GRACE_S)
            with in_background(driver, load):
                record(server.pid, hz, seconds, path)
            text, samples, no_room = described(path)
            print(f"{scenario}, {hz} Hz, {seconds} s: {text}", flush=True)
            is_bad = is_bad or no_room > 0 or not samples
    print(f"load of the host: {os.getloadavg()[0]:.1f}")
    return int(is_bad)


if __name__ == "__main__":
    sys.exit(main())
