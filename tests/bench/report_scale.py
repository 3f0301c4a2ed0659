# SPDX-License-Identifier: GPL-2.0-only
"""What a report costs by the size of its capture (`make bench-report`).

Writes captures of 0.1, 1 and 10 million CPU samples with 100,000 handshakes each, makes the report
of each (terminal, HTML, JSON) in a process of its own, and prints its time and memory.
Exit status 1 if the largest report takes more than 5 s or 450 MB.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tlstax.collectors.capture import schema
from tlstax.collectors.capture.writer import CaptureWriter

SIZES: Final = (100_000, 1_000_000, 10_000_000)
HANDSHAKES: Final = 100_000
MOST_S, MOST_BYTES = 5.0, 450e6
WINDOWS: Final = 300
DISTINCT: Final = 4_000
"""Different stacks of a capture: servers have thousands, whatever the number of samples."""
DEPTH: Final = 24
S: Final = 1_000_000_000
_PHASES: Final = ("handshake", "record_read", "record_write", "command")


def rows_of(sample_count: int, seed: int = 5) -> Iterator[schema.Row]:
    """The rows of a capture with so many samples."""
    generator = random.Random(seed)
    yield schema.Target(1, 9, "mariadbd", "", "mariadb", "11", "OpenSSL", "3.0.19", "shared")
    yield schema.Thread(1, 9, "one", "connection", 0, None)
    for frame in range(2_000):
        yield schema.Frame(frame, "libcrypto.so.3", "", 0, f"function_{frame}", 0, "dynsym", "")
    for stack in range(DISTINCT):
        frames = " ".join(str(generator.randrange(2_000)) for _ in range(DEPTH))
        yield schema.Stack(stack, frames)
    # As the engine does: equal samples of a window are one row with their count.
    rows = min(sample_count, WINDOWS * DISTINCT)
    for window in range(1, WINDOWS + 1):
        yield schema.Window(window, None, window * S, (window + 1) * S)
        for phase in _PHASES:
            yield schema.Ledger(window, 1, phase, "on_cpu", S // 5)
            yield schema.PhaseCount(window, phase, 1_000)
        for number in range(rows // WINDOWS):
            yield schema.SampleStack(
                window, _PHASES[number % 4], -1, number % DISTINCT, None, sample_count // rows
            )
    for number in range(HANDSHAKES):
        start_ns, wait_ns = generator.randrange(WINDOWS * S), generator.randrange(1, 3_000_000)
        yield schema.Handshake(
            number, number % WINDOWS + 1, 9, start_ns, start_ns + wait_ns + 500_000, 500_000, 0,
            wait_ns, 0, 200_000, 9, 9, 9, 9, 2, 2, "success", "TLSv1.3", "TLS_AES_256_GCM_SHA384",
            "X25519", 0,
        )  # fmt: skip


def make(path: Path, sample_count: int) -> None:
    """Write such a capture."""
    writer = CaptureWriter.create(path, True)
    batch: list[schema.Row] = []
    for row in rows_of(sample_count):
        batch.append(row)
        if len(batch) == 50_000:
            writer.add(batch)
            batch = []
    writer.add(batch)
    writer.commit()
    writer.close()


def measure(path: Path) -> tuple[float, float, float]:
    """(wall s, CPU s, peak bytes) of one report in all forms."""
    command = [
        sys.executable, "-m", "tlstax", "report", str(path), "--html", f"{path}.html",
        "--json", f"{path}.json",
    ]  # fmt: skip
    before = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"the report of {path} failed")
    wall_s = time.monotonic() - before
    return wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def main() -> int:
    """Everything; 1 if the largest report takes too long or too much memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, metavar="SAMPLES")
    sizes = parser.parse_args().sizes
    too_dear = False
    with tempfile.TemporaryDirectory() as directory:
        print(f"{'samples':>12} {'file MB':>8} {'wall s':>7} {'CPU s':>6} {'peak MB':>8}")
        for size in sizes:
            path = Path(directory) / "capture.tlstax"
            make(path, size)
            wall_s, cpu_s, peak = measure(path)
            mb = path.stat().st_size / 1e6
            print(f"{size:12,} {mb:8.1f} {wall_s:7.1f} {cpu_s:6.1f} {peak / 1e6:8.0f}", flush=True)
            too_dear = cpu_s > MOST_S or peak > MOST_BYTES
    return int(too_dear)


if __name__ == "__main__":
    sys.exit(main())
