# SPDX-License-Identifier: GPL-2.0-only
"""Memory of `tlstax watch` over a day of short hours (short_hours.py) with restarts of the server.

`make soak-watch-day` runs it: an hour is two minutes, the server is started again every LIFE_HOURS,
and each hour has connections over TLS in its first half and queries in its second. Lives begin
and end at the same time of an hour, so memory is compared at equal points of the cycle: the last
sixth of each hour. A life is a unit: the slope is over lives, without the first one.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from subprocess import Popen
from typing import Any, Final, NamedTuple

from tlstax import TlstaxError
from tlstax.analysis.statistics.shares import t_quantile
from tlstax.tests.bench.watch.short_hours import HOUR_S
from tlstax.tests.bench.watch.soak import await_said
from tlstax.tests.e2e.recording.watch_runs import copied_server, server_of
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.mariadb import PrivateServer

LIFE_HOURS: Final = 2
END_S: Final = 6
"""Before the end of its last hour a server ends, so that the next one begins with an hour."""
JUDGED_S: Final = HOUR_S // 6
THREADS, CONNECTS_PER_S, QUERIES_PER_S = 2, 20.0, 200.0
UNITS_LEAST: Final = 8
SHOWN: Final = (
    "resident_bytes", "anonymous_bytes", "file_bytes", "malloc_used_bytes", "malloc_free_bytes",
    "python_blocks_count", "arrow_bytes", "recorder_bytes", "files_count", "mappings_count",
    "threads_count",
)  # fmt: skip


class Slope(NamedTuple):
    """Growth per life, and half its interval; None: too few lives."""

    per_life: float
    half: float | None


def slope(values: Sequence[float]) -> Slope:
    """Of one value for each life: least squares, and the interval of Student's t at 95 %."""
    count = len(values)
    middle, mean = (count - 1) / 2, statistics.fmean(values)
    spread = sum((at - middle) ** 2 for at in range(count))
    rise = sum((at - middle) * (value - mean) for at, value in enumerate(values)) / spread
    if count < UNITS_LEAST:
        return Slope(rise, None)
    rest = sum((value - mean - rise * (at - middle)) ** 2 for at, value in enumerate(values)) / (
        count - 2
    )
    return Slope(rise, t_quantile(count - 2) * float((rest / spread) ** 0.5))


def by_life(
    points: Sequence[dict[str, float]], begun_hours: Sequence[int]
) -> dict[int, dict[int, dict[str, float]]]:
    """Medians of the last part of each hour: by life, by the hour of the life."""
    found: dict[tuple[int, int], list[dict[str, float]]] = defaultdict(list)
    for point in points:
        hour, since_s = divmod(point["wall_s"], HOUR_S)
        at_s = since_s - (HOUR_S - END_S - JUDGED_S)
        for life, begun in enumerate(begun_hours):
            if 0 <= hour - begun < LIFE_HOURS and 0 <= at_s < JUDGED_S:
                found[life, int(hour) - begun].append(point)
    made: dict[int, dict[int, dict[str, float]]] = defaultdict(dict)
    for (life, at), some in sorted(found.items()):
        made[life][at] = {name: statistics.median(one[name] for one in some) for name in some[0]}
    return made


def await_hour() -> int:
    """Until an hour begins; its number."""
    hour = int(time.time() // HOUR_S) + 1
    time.sleep(max(0.0, hour * HOUR_S - time.time()))
    return hour


def drive(server: PrivateServer, end_wall_s: float) -> None:
    """Connections in the first half of each hour, queries in the second, until then."""
    driver = Sysbench.of_server(server, table_rows=1000)
    while (left_s := end_wall_s - time.time()) >= 2:
        since_s = time.time() % HOUR_S
        is_first = since_s < HOUR_S / 2
        until_s = (HOUR_S / 2 if is_first else HOUR_S) - since_s
        name, rate = ("connect", CONNECTS_PER_S) if is_first else ("point_select", QUERIES_PER_S)
        seconds = max(1, int(min(left_s - 1, until_s)))
        try:
            driver.run(Load(SCENARIOS[name], THREADS, seconds, rate_per_s=rate), "tls")
        except TlstaxError as error:  # a busy host
            print(f"the client failed: {error.why}", file=sys.stderr, flush=True)
            time.sleep(1)


def run(folder: Path, hours: int, trace: bool) -> tuple[list[dict[str, float]], list[int]]:
    """What the watch wrote down, and the hour in which each life began."""
    program = copied_server(folder, f"short{os.getpid()}")
    account, said = folder / "account", folder / "said"
    arguments = ["--name", program.name, "--output", str(folder / "data"), "--host", "short"]
    code = (
        "import sys; from tlstax.tests.bench.watch import short_hours; "
        f"sys.exit(short_hours.watch({str(account)!r}, {trace}, {arguments!r}))"
    )
    with said.open("wb") as errors:
        watch = Popen([sys.executable, "-c", code], stderr=errors)
    begun: list[int] = []
    try:
        for life in range(hours // LIFE_HOURS):
            begun.append(await_hour())
            with server_of(program) as server:
                Sysbench.of_server(server, table_rows=1000).prepare()
                await_said(said, "recording process", life + 1, watch)
                drive(server, (begun[-1] + LIFE_HOURS) * HOUR_S - END_S)
                if trace:
                    account.with_suffix(".ask").touch()
                    time.sleep(4)
            await_said(said, "is no longer recorded", life + 1, watch)
            print(f"life {life + 1}: done", file=sys.stderr, flush=True)
    finally:
        watch.terminate()
        watch.wait(300)
    if watch.returncode:
        raise SystemExit(f"the watch ended with {watch.returncode}:\n{said.read_text()}")
    return [json.loads(line) for line in account.read_text().splitlines()], begun


def report(found: dict[int, dict[int, dict[str, float]]]) -> None:
    """Print medians by life, and slopes."""
    whole = [life for life, hours in found.items() if len(hours) == LIFE_HOURS]
    print("| | " + " | ".join(f"life {life + 1}" for life in whole) + " | slope per life |")
    print("|---|" + "---|" * (len(whole) + 1))
    for name in SHOWN:
        unit = 1024 if name.endswith("_bytes") else 1
        by_hour = [[found[life][at][name] / unit for life in whole] for at in range(LIFE_HOURS)]
        rows = {"all hours": [statistics.fmean(values) for values in zip(*by_hour, strict=True)]}
        if name == SHOWN[0]:
            rows |= {f"hour {at + 1}": values for at, values in enumerate(by_hour)}
        for which, values in rows.items():
            text = " | ".join(f"{value:,.0f}" for value in values)
            print(f"| {label(name)}, {which} | {text} | {told(values[1:])} |")


def label(name: str) -> str:
    """For people."""
    words = name.rpartition("_")
    return f"{words[0].replace('_', ' ')}{' (KB)' if words[2] == 'bytes' else ''}"


def told(values: Sequence[float]) -> str:
    """A slope; the first life is left out."""
    if len(values) < 3:
        return ""
    rise, half = slope(values)
    return f"{rise:+,.1f}" + (f" ± {half:,.1f}" if half is not None else f" ({len(values)} lives)")


def main() -> int:
    """Run it and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=int, default=24, help="of two minutes each")
    parser.add_argument("--trace", action="store_true", help="keep snapshots of tracemalloc")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="work there, and leave it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tlstax-short-day-") as name:
        folder = options.keep or Path(name)
        folder.mkdir(exist_ok=True)
        folder.chmod(0o711)  # the server's user passes through it
        points, begun = run(folder, options.hours, options.trace)
        if options.keep:
            kept: dict[str, Any] = {"points": points, "begun": begun}
            (folder / "run.json").write_text(json.dumps(kept))
    report(by_life(points, begun))
    return 0


if __name__ == "__main__":
    sys.exit(main())
