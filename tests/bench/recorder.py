# SPDX-License-Identifier: GPL-2.0-only
"""What the static recorder costs with many threads: start, windows, memory, detaching.

`make bench-recorder` runs it: the program of many threads (tests/testprogs/crowd.c), which rest, or
of which every second one works in each window, recorded for some seconds by the recorder.
"""

import itertools
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tlstax.collectors.host.executable import recorder_path
from tlstax.collectors.recording.stream.definition import definition
from tlstax.collectors.recording.stream.frames import Reading, read_frames, record
from tlstax.tests.kernel.recorder_runs import plan_text

REPOSITORY = Path(__file__).resolve().parents[2]
SECONDS, SPIN_US = 29, 200


def measure(threads_count: int, is_busy: bool, folder: Path) -> str:
    """One row of the table."""
    program = REPOSITORY / "tests/testprogs/bin/crowd"
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as p:
        assert p.stdin is not None
        assert p.stdout is not None
        p.stdin.write(f"+ {threads_count}\n".encode())
        p.stdout.readline()
        plan = folder / "crowd.plan"
        plan.write_text(plan_text(p.pid, REPOSITORY))
        stream = folder / f"{threads_count}.stream"
        with stream.open("wb") as out:
            began_s = time.monotonic()
            with subprocess.Popen(
                [recorder_path(), "--plan", plan, "--pid", str(p.pid), "--for", f"{SECONDS}s"],
                stdout=out,
                stderr=subprocess.PIPE,
            ) as recorder:
                assert recorder.stderr is not None
                recorder.stderr.readline()
                ready_ms = (time.monotonic() - began_s) * 1e3
                while recorder.poll() is None:
                    if is_busy:
                        p.stdin.write(f"! {SPIN_US}\n".encode())
                        p.stdout.readline()
                    time.sleep(0.5)
                said = recorder.stderr.read().decode()
        assert not recorder.returncode, said
        p.kill()
    name = f"{threads_count:,}, {'half of them work' if is_busy else 'all rest'}"
    return row(name, stream, ready_ms)


def row(name: str, stream: Path, ready_ms: float) -> str:
    """What the stream says of its recorder."""
    known = definition()
    frames = list(read_frames(stream.open("rb"), Reading()))
    start = next(record("start", f.content) for f in frames if f.type == known.number("START"))
    end = next(record("end", f.content) for f in frames if f.type == known.number("END"))
    windows = [record("window", f.content) for f in frames if f.type == known.number("WINDOW")]
    spent_ms = [
        (now.own_cpu_ns - before.own_cpu_ns) / 1e6 for before, now in itertools.pairwise(windows)
    ]
    length_s = (windows[-1].end_ns - windows[0].end_ns) / 1e9
    private_bytes = min(window.resident_bytes for window in windows) - start.slots_bytes
    cells = (
        name,
        f"{start.start_cpu_ns / 1e6:.0f} ms",
        f"{ready_ms:.0f} ms",
        f"{statistics.median(spent_ms):.2f} ({min(spent_ms):.2f}..{max(spent_ms):.2f}) ms",
        f"{sum(spent_ms) / length_s / 10:.3f} %",
        f"{private_bytes / 1e6:.1f} MB",
        f"{end.detach_ns / 1e6:.0f} ms",
        f"{stream.stat().st_size / length_s / 1e3:.0f} KB/s",
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    print("| threads | CPU until attached | ready after | CPU a window of 1 s | of a CPU | memory"
          " | detached in | stream |\n|---|---|---|---|---|---|---|---|")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        for count in map(int, sys.argv[1:] or ("100", "1000", "5000")):
            for is_busy in (False, True):
                print(measure(count, is_busy, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
