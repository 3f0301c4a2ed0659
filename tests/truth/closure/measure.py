# SPDX-License-Identifier: GPL-2.0-only
"""Record healthy servers, idle to saturated: the figures of closure (make check-closure).

    measure.py [SERVER ...] --rows FILE    record each load on these servers (default: all eight)
    measure.py --rows FILE --page FILE     write the page from what was recorded

Every recording is one line of JSON in FILE. Exits with 1 if a figure was beyond its bound.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tlstax.analysis import quantities
from tlstax.analysis.document.closing import close
from tlstax.analysis.rows.closure import FIGURES, Figure
from tlstax.analysis.rows.tables import load
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.recording.by_recorder.recorder import Recorder
from tlstax.collectors.recording.request import Request
from tlstax.collectors.recording.source_set import SourceSet
from tlstax.collectors.sources.status import ServerStatus
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.catalogue import find_kind
from tlstax.workloads.servers.lab_server import open_server
from tlstax.workloads.servers.mariadb import PrivateServer

SERVERS = ("mysql56", "mysql57", "mysql80", "mysql97", "mariadb102", "mariadb1011", "mariadb",
           "mariadb118")  # fmt: skip
TABLE_ROWS = 1000
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A load and how it is recorded; no scenario: the server is idle."""

    name: str
    scenario: str = ""
    threads_count: int = 2
    rate_per_s: float | None = None
    seconds: int = 3
    arm: str = "tls"
    budget: float | None = None


CASES = (
    Case("idle"),
    Case("selects, 500 a second", "point_select", rate_per_s=500),
    Case("selects, saturated", "point_select", 4),
    Case("selects without TLS, saturated", "point_select", 2, arm="plaintext"),
    Case("reads and writes", "read_write", 2),
    Case("connects, saturated", "connect", 4),
    Case("selects, saturated, budget of 5 %", "point_select", 4, seconds=12, budget=0.05),
)


def record(server: PrivateServer, case: Case, capture: Path) -> None:
    """One recording of one load."""
    driver = Sysbench.of_server(server, table_rows=TABLE_ROWS)
    if case.scenario and case.scenario != "connect":
        driver.prepare()
    status = ServerStatus(option_file=server.directory.client / "status.cnf")
    request = Request(
        server.pid, capture, sources=SourceSet([status]), budget=case.budget, overwrite=True
    )
    with Recorder(request) as recorder:
        if not case.scenario:
            recorder.poll(case.seconds)
            return
        wanted = Load(
            SCENARIOS[case.scenario], case.threads_count, case.seconds, rate_per_s=case.rate_per_s
        )
        driver.run(wanted, "tls" if case.arm == "tls" else "plaintext", recorder.poll)


def measured(server_name: str, case: Case, capture: Path) -> Row:
    """The figures of a recording."""
    with CaptureReader.open(capture) as reader:
        closure = close(load(reader))
    return {
        "server": server_name,
        "load": case.name,
        "host_load": round(os.getloadavg()[0], 1),
        "ok": closure.ok,
        "figures": [asdict(figure) for figure in closure.figures],
    }


def recordings(names: Iterable[str], cases: Sequence[Case]) -> Iterator[Row]:
    """One row for each load on each server."""
    with tempfile.TemporaryDirectory(prefix="tlstax-closure-") as folder:
        capture = Path(folder) / "capture"
        for name in names:
            with open_server(find_kind(name)) as server:
                for case in cases:
                    record(server, case, capture)
                    yield measured(name, case, capture)


# ---- the page ----


def page(rows: Sequence[Row]) -> str:
    """The distribution of every figure, and the recordings."""
    bad = [row for row in rows if row["ok"] is False]
    loads = [row["host_load"] for row in rows]
    servers = len({row["server"] for row in rows})
    head = (
        f"{len(rows)} recordings of {servers} servers, {len(bad)} with a figure beyond its bound. "
        f"Load of the host before a recording: {min(loads)} to {max(loads)}. *Difference* is "
        "(ledger - reference) / reference of the worst stretch; *used* is the error as a share of "
        "what is allowed."
    )
    lines = [
        "| figure | allowed: of the reference | fixed | for each event |",
        "|---|---|---|---|",
        *(_bound(figure) for figure in FIGURES),
        "",
        head,
        "",
        "| figure | judged | difference: lowest | median | highest | used: median | highest | in |",
        "|---|---|---|---|---|---|---|---|",
        *(_line(figure.key, rows) for figure in FIGURES),
        "",
        "| server | load | worst figure | used | beyond its bound |",
        "|---|---|---|---|---|",
        *(_recording(row) for row in rows),
    ]
    return "\n".join(lines) + "\n"


def _bound(figure: Figure) -> str:
    bound, is_time = figure.bound, figure.unit == "ns"
    fixed, event = (
        quantities.time(value) if is_time else f"{value:g}" for value in (bound.fixed, bound.event)
    )
    return f"| `{figure.key}` | {bound.share:.1%} | {fixed} | {event} |"


def _line(key: str, rows: Iterable[Row]) -> str:
    found = [
        (figure, row)
        for row in rows
        for figure in row["figures"]
        if figure["key"] == key and figure["used_share"] is not None
    ]
    if not found:
        return f"| `{key}` | 0 | | | | | | |"
    differences = [figure["ratio"] - 1 for figure, _ in found if figure["ratio"] is not None]
    used = [figure["used_share"] for figure, _ in found]
    _, worst = max(found, key=lambda pair: pair[0]["used_share"])
    spread = ["", "", ""]
    if differences:
        parts = (min(differences), statistics.median(differences), max(differences))
        spread = [f"{part:+.3%}" for part in parts]
    return (
        f"| `{key}` | {len(found)} | {' | '.join(spread)} | {statistics.median(used):.2f} | "
        f"{max(used):.2f} | {worst['server']}, {worst['load']} |"
    )


def _recording(row: Row) -> str:
    judged = [figure for figure in row["figures"] if figure["used_share"] is not None]
    worst = max(judged, key=lambda figure: figure["used_share"], default=None)
    bad = ", ".join(figure["key"] for figure in judged if figure["verdict"] == "failed")
    name, used = (f"`{worst['key']}`", f"{worst['used_share']:.2f}") if worst else ("", "")
    return f"| {row['server']} | {row['load']} | {name} | {used} | {bad} |"


def read(path: Path) -> list[Row]:
    """The recordings that a file holds."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("servers", nargs="*", default=SERVERS, metavar="SERVER")
    parser.add_argument("--rows", type=Path, required=True, help="recordings, one a line")
    parser.add_argument("--page", type=Path, help="write the figures of --rows below its heading")
    options = parser.parse_args()
    if options.page:
        head, mark, _ = options.page.read_text(encoding="utf-8").partition("## Result\n")
        rows = read(options.rows)
        options.page.write_text(f"{head}{mark}\n{page(rows)}", encoding="utf-8")
        return 0
    failed = False
    with options.rows.open("a", encoding="utf-8") as file:
        for row in recordings(options.servers, CASES):
            print(_recording(row), flush=True)
            file.write(json.dumps(row) + "\n")
            file.flush()
            failed = failed or row["ok"] is False
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
