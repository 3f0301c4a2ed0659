# SPDX-License-Identifier: GPL-2.0-only
"""Levels `flow` and `record` on eight servers and five loads over TLS (make check-levels).

    measure.py [SERVER ...] --rows FILE    compare the levels on these servers (default: all eight)
    measure.py --rows FILE --page FILE     write the tables from what was measured

Of each load first both levels see the same run: counts and cells. Then level `flow` splits commands
by calibration stretches, while the load goes on; probes tell the parts alone, without any other
engine, before and after it: their mean is taken for the truth, and half of their difference for its
error. Every load is one line of JSON in FILE. Always exits 0 when all could be measured.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from tlstax import TlstaxError
from tlstax.analysis.document.explain import explain
from tlstax.analysis.rows.tables import load
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.host.clock import monotonic_ns
from tlstax.collectors.placement.planning import plan_in_child
from tlstax.collectors.recording.by_recorder.recorder import Recorder
from tlstax.collectors.recording.request import Request
from tlstax.probes.model import Level
from tlstax.tests.background_load import in_background
from tlstax.tests.e2e.levels.both_levels import AGREEMENT, FIXED_NS, LARGE_SHARE, Both, Watcher
from tlstax.tests.e2e.levels.both_levels import watched as both_watched
from tlstax.tests.loader.native import Engine, Options
from tlstax.tests.safe_programs import safe_programs
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.catalogue import find_kind
from tlstax.workloads.servers.lab_server import open_server
from tlstax.workloads.servers.mariadb import PrivateServer

SERVERS: Final = ("mysql56", "mysql57", "mysql80", "mysql97", "mariadb102", "mariadb1011",
                  "mariadb", "mariadb118")  # fmt: skip
YASSL: Final = ("mysql56", "mysql57", "mariadb102")
CLOSED: Final = "SHOW GLOBAL STATUS LIKE 'Com_stmt_close'"
LOADS: Final = {
    "point_select": 2000,
    "read_only": 100,
    "read_write": 60,
    "bulk_result": 30,
    "connect": 20,
}
"""Operations of the run that both levels see."""
PARTS: Final = ("record_read", "command", "record_write")
TABLE_ROWS, THREADS = 1000, 2
ALONE_S, STRETCHES_S, OFTEN_S, LOAD_MOST_S = 2.5, 9.0, 0.4, 300
WIDTH_MOST: Final = 0.10
BEGIN, END = "<!-- levels: begin -->", "<!-- levels: end -->"
Row = dict[str, Any]


@dataclass(frozen=True)
class Session:
    """One server and its driver."""

    name: str
    server: PrivateServer
    driver: Sysbench

    def closed_count(self) -> int:
        """Statements closed without an answer."""
        with self.server.open_status() as session:
            ((_, count),) = session.query(CLOSED)
        return int(count)


# ---- the same run at both levels ----


def same_run(session: Session, scenario: str) -> Row:
    """Counts and cells of one run."""
    wanted = Load(SCENARIOS[scenario], THREADS, 0, LOADS[scenario])
    with both_watched(session.server.pid) as observe:
        before = session.closed_count()
        both = observe(partial(session.driver.run, wanted, "tls", time.sleep))
        closed_count = session.closed_count() - before
    merged_count = closed_count if session.name in YASSL else 0
    both.record.counts["command"] -= merged_count
    return {
        "commands": both.flow.counts["command"],
        "merged": merged_count,
        "counts_equal": both.flow.told == both.record.told
        and both.flow.latencies["command"].total() == both.flow.counts["command"]
        and both.flow.handshakes_count == both.record.handshakes_count,
        **_cells(both),
    }


def _cells(both: Both) -> Row:
    """Cells of at least 1 % of the time, and how far the two levels are apart in them."""
    total_ns = both.record.cells.total()
    apart = []
    for key in both.record.cells.keys() | both.flow.cells.keys():
        one, other = both.record.cells[key], both.flow.cells[key]
        if (larger := max(one, other)) >= LARGE_SHARE * total_ns:
            apart.append((abs(one - other) / larger, abs(one - other), "/".join(key)))
    within = sum(share <= AGREEMENT for share, _, _ in apart)
    fixed = sum(share <= AGREEMENT or ns <= FIXED_NS for share, ns, _ in apart)
    share, ns, name = max(apart)
    return {"cells": len(apart), "within_share": within, "within": fixed,
            "worst": name, "worst_share": share, "worst_ns": ns}  # fmt: skip


# ---- the split ----


def shares(engine: Engine) -> dict[str, float]:
    """Each part's share of the commands' CPU time, by probes alone."""
    engine.attach_dense()
    time.sleep(0.2)  # every connection has begun another command
    probes = Watcher(engine)
    probes.begin(monotonic_ns())
    time.sleep(ALONE_S)
    seen = probes.end(monotonic_ns(), probes.serving(), {})
    engine.detach_dense()
    on_cpu = {part: seen.cells[part, "on_cpu"] for part in PARTS}
    return {part: ns / max(1, sum(on_cpu.values())) for part, ns in on_cpu.items()}


def split(session: Session, scenario: str, capture: Path) -> Row:
    """The estimate by stretches, between two looks by probes alone."""
    _, plan = plan_in_child(session.server.pid, Level.RECORD)
    with ExitStack() as stack:
        options = Options(sample_hz=0, programs=safe_programs())
        engine = Engine(session.server.pid, plan, options)
        stack.callback(engine.close)
        engine.attach(dense=False)
        wanted = Load(SCENARIOS[scenario], THREADS, LOAD_MOST_S)
        stack.enter_context(in_background(session.driver, wanted, "tls"))
        time.sleep(1)
        before = shares(engine)
        request = Request(
            session.server.pid, capture, level=Level.FLOW, calibration_s=OFTEN_S, overwrite=True
        )
        try:
            with Recorder(request) as recorder:
                recorder.poll(STRETCHES_S)
            found = estimated(capture)
        except TlstaxError as error:  # a host so busy that the recorder's watchdog ended it
            found = {"refusal": str(error), "stretches": 0, "samples": 0, "lines": {}}
        after = shares(engine)
    return {"before": before, "after": after, **found}


def estimated(capture: Path) -> Row:
    """What the report says of the parts."""
    with CaptureReader.open(capture) as reader:
        (found,) = explain(load(reader)).splits
    lines = {
        line.phase: {
            "share": line.share,
            "low": (line.time.low_ns or 0.0) / found.on_cpu_ns,
            "high": (line.time.high_ns or 0.0) / found.on_cpu_ns,
            "exact_share": line.exact_share,
            "sampled_share": line.sampled_share,
        }
        for line in found.lines
    }
    return {"refusal": found.refusal, "stretches": found.stretch_count,
            "samples": found.sample_count, "lines": lines}  # fmt: skip


def measured(names: Sequence[str], scenarios: Sequence[str]) -> Iterator[Row]:
    """One row for each load of each server."""
    with tempfile.TemporaryDirectory(prefix="tlstax-levels-") as folder:
        for name in names:
            with open_server(find_kind(name)) as server:
                driver = Sysbench.of_server(server, table_rows=TABLE_ROWS)
                driver.prepare()
                session = Session(name, server, driver)
                for scenario in scenarios:
                    yield {
                        "server": name,
                        "load": scenario,
                        "host_load": round(os.getloadavg()[0], 1),
                        "same_run": same_run(session, scenario),
                        "split": split(session, scenario, Path(folder) / "capture"),
                    }


# ---- the page ----


@dataclass(frozen=True)
class Judged:
    """Reading and answering together, of one load: shares of the commands' CPU time."""

    truth: float
    error: float  # half of what the two looks differ by
    share: float
    low: float
    high: float

    @property
    def holds(self) -> bool:
        """The interval reaches the truth, which is known to its error."""
        return self.low - self.error <= self.truth <= self.high + self.error

    @property
    def width(self) -> float:
        """Half of the interval's, as a share of reading and answering."""
        return (self.high - self.low) / 2 / self.share if self.share else 0.0


def judge(found: Row) -> Judged | None:
    """None where nothing was estimated."""
    if found["refusal"]:
        return None
    looks = [1 - found[look]["command"] for look in ("before", "after")]
    rest = found["lines"]["command"]
    return Judged(
        sum(looks) / 2, abs(looks[0] - looks[1]) / 2,
        1 - rest["share"], 1 - rest["high"], 1 - rest["low"],
    )  # fmt: skip


def table(rows: Sequence[Row]) -> list[str]:
    """What was found, in Markdown."""
    judged = [one for row in rows if (one := judge(row["split"]))]
    runs = [row["same_run"] for row in rows]
    loads = [row["host_load"] for row in rows]
    equal, held = sum(run["counts_equal"] for run in runs), sum(one.holds for one in judged)
    narrow = sum(one.width <= WIDTH_MOST for one in judged)
    cells, within, fixed = (
        sum(r[key] for r in runs) for key in ("cells", "within_share", "within")
    )
    said = (
        f"Counts were equal in {equal} of {len(runs)} runs. Of {cells} cells of at least 1 % of "
        f"the time {within} agree within 2 %, {fixed} within 2 % or 1 ms. The interval of reading "
        f"and answering together holds in {held} of {len(judged)}, and is at most ±10 % of them "
        f"in {narrow}. Load of the host: {min(loads)} to {max(loads)}."
    )
    heads = "server | load | commands | equal | cells | within 2 % | or 1 ms | worst"
    heads += " | probes alone, before and after | estimate | holds | ± of it | stretches, samples"
    lines = [_line(row) for row in rows]
    return [said, "", f"| {heads} |", f"|{'---|' * heads.count('|')}---|", *lines]


def _line(row: Row) -> str:
    run, found, judged = row["same_run"], row["split"], judge(row["split"])
    looks = [f"{1 - found[look]['command']:.1%}" for look in ("before", "after")]
    cells = [
        row["server"],
        row["load"],
        str(run["commands"]),
        "yes" if run["counts_equal"] else "**no**",
    ]
    cells += [str(run[key]) for key in ("cells", "within_share", "within")]
    cells += [f"{run['worst']} {run['worst_share']:.1%}, {run['worst_ns'] / 1e6:.2f} ms"]
    cells += [", ".join(looks)]
    if judged:
        cells += [f"{judged.share:.1%} ({judged.low:.1%}..{judged.high:.1%})",
                  "yes" if judged.holds else "**no**", f"{judged.width:.0%}"]  # fmt: skip
    else:
        cells += ["none", "", ""]
    cells += [f"{found['stretches']}, {found['samples']}"]
    return f"| {' | '.join(cells)} |"


def read(path: Path) -> list[Row]:
    """What a file holds."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def main() -> int:
    """Measure, or write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("servers", nargs="*", default=SERVERS, metavar="SERVER")
    parser.add_argument("--rows", type=Path, required=True, help="loads, one a line")
    parser.add_argument("--loads", nargs="+", default=list(LOADS), choices=LOADS)
    parser.add_argument("--page", type=Path, help="write the tables of --rows between its marks")
    options = parser.parse_args()
    if options.page:
        head, _, rest = options.page.read_text(encoding="utf-8").partition(BEGIN)
        _, _, tail = rest.partition(END)
        text = "\n".join([BEGIN, *table(read(options.rows)), END])
        options.page.write_text(head + text + tail, encoding="utf-8")
        return 0
    with options.rows.open("a", encoding="utf-8") as file:
        for row in measured(options.servers, options.loads):
            print(_line(row), flush=True)
            file.write(json.dumps(row) + "\n")
            file.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
