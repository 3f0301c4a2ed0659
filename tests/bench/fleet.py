# SPDX-License-Identifier: GPL-2.0-only
"""Size and speed of a data set of 100 to 10,000 replayed hosts; writes docs/measurements/fleet.md.

    python tests/bench/fleet.py docs/measurements/fleet.md [CAPTURE...]
    python tests/bench/fleet.py /tmp/fleet.md --hosts 100          a small form

Recordings (`make fleet-captures` makes those of eight servers; docs/demo/demo.tlstax if none is
given) are replayed and varied, see tests/fleet_replay.py: the figures are of sizes and speeds,
never of servers. What they are meant to keep to is in tests/bench/fleet_aims.py. The exit status is
1 if a size is too large or a planted change was not found; a time that misses its aim is marked.
"""

import argparse
import datetime
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from tlstax.analysis.fleet import changes, columns, metrics, peers, ranking
from tlstax.analysis.fleet.columns import HOUR_NS, SHARED, TABLES, TIERS, Row, tiers_of
from tlstax.analysis.fleet.host_sums import Span
from tlstax.analysis.fleet.question import Question
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.analysis.fleet.rollup.intervals import WALL
from tlstax.collectors.capture.schema import table_name
from tlstax.tests import fleet_replay, fleet_writer
from tlstax.tests.bench import fleet_aims
from tlstax.tests.fleet_replay import START_NS, Fleet, Planted

ROOT: Final = Path(__file__).resolve().parents[2]
COUNTS: Final = (100, 1_000, 10_000)
SIZE_HOSTS: Final = 100
RUNS: Final = 5
NOON: Final = START_NS + 12 * HOUR_NS
SIDES: Final = (Span(START_NS, NOON), Span(NOON, START_NS + 24 * HOUR_NS))
SIZED: Final = tuple(table for table in TABLES if table is not columns.ClientNet)
"""Tables whose sizes are measured; _TOGETHER says why not the other one."""
OF_AN_HOUR: Final = (
    *(columns.Interval, columns.Host, columns.Ledger, columns.Handshake, columns.PhaseLatency),
    columns.ClientNet,
)
OF_A_MINUTE: Final = (columns.Interval, columns.Host)
"""What questions are timed over: `explain` finds nothing else of its host in the tier 1m here."""
_REPLAYED: Final = (
    "**Replayed, not measured:** {count} recordings ({servers}) are replayed as many hosts, at "
    "30 % of their load in the median. Load, CPU speed, resumption and the hour of the peak differ "
    "from host to host, and every interval has noise of its own. The figures are about sizes and "
    "speeds of the data set, not about servers."
)
_SIZES: Final = (
    "The busiest hour of {hosts} hosts as `tlstax fleet compact` leaves it, times 24, in KB (1,000 "
    "bytes)."
)
_TOGETHER: Final = (
    "A data set with a tier has the longer ones, too: {minute:,.0f} KB with 1 min and 1 h, "
    "{ten:,.0f} KB with all three; the goals are for a tier by itself. `finding` and "
    "`record_split` are as a watch writes them: in each hour those of the recording ({findings} "
    "here) and an estimate. `stack` and `frame` are written once a day: {hosts} hosts share those "
    "of all recordings ({count}), and of more hosts they are less for each. `client_net` is left "
    "out: only `--client-networks` writes it, up to 11 rows for an interval, by how many networks "
    "connect."
)
_PLANTED: Final = (
    "At noon signing takes 6.3 times as long on 37 hosts, one cluster gets another TLS library, "
    "and the clients of one network resume no more. Found: whether `tlstax fleet compare` named "
    "exactly these hosts, each for its cause, and no other."
)


def main() -> int:
    """Measure and write the page; 1 if a size is too large or a planted change not found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("captures", type=Path, nargs="*")
    parser.add_argument("--hosts", type=int, nargs="+", default=COUNTS, metavar="N")
    options = parser.parse_args()
    counts = options.hosts
    captures = options.captures or [ROOT / "docs/demo/demo.tlstax"]
    profiles = [fleet_replay.profile(path) for path in captures]
    with tempfile.TemporaryDirectory(prefix="tlstax-fleet-") as scratch:
        sizes = {tier: size_of(profiles, Path(scratch), tier) for tier in TIERS}
        found: dict[int, str] = {}
        hours, minutes = {}, {}
        for count in counts:
            hours[count] = speed(profiles, Path(scratch), "1h", count, found)
        for count in counts:
            minutes[count] = speed(profiles, Path(scratch), "1m", count, {})
    page = text(profiles, sizes, hours, minutes, found)
    options.page.write_text(page, encoding="utf-8")
    print(page)
    for sentence in (*fleet_aims.missed("1h", hours), *fleet_aims.missed("1m", minutes)):
        print(f"missed, not judged: {sentence}", file=sys.stderr)
    sums = {tier: sum(of_tier.values()) for tier, of_tier in sizes.items()}
    failures = fleet_aims.failures(sums, found)
    for sentence in failures:
        print(f"failed: {sentence}", file=sys.stderr)
    return 1 if failures else 0


def planted(count: int) -> Planted:
    """37 hosts with a longer key, one cluster with another library, one network's clients."""
    library = range(25)
    keys = range(25, count, max(1, (count - 25) // 37))[:37]
    clients = range(count // 2, count // 2 + 40)
    taken = {*keys, *library}
    return Planted(NOON, keys, library, [number for number in clients if number not in taken])


def size_of(profiles: Sequence[RolledUp], scratch: Path, tier: str) -> dict[str, float]:
    """KB for each host and day by table: one hour of SIZE_HOSTS hosts, times 24.

    What hosts share is written in the first hour of a day only.
    """
    sizes = {}
    for table in (table for table in SIZED if tier in tiers_of(table)):
        data = scratch / f"size-{tier}-{table_name(table)}"
        noon = START_NS + 12 * HOUR_NS
        fleet = Fleet(SIZE_HOSTS, profiles)
        written = fleet_writer.write(fleet, data, tier, 1, (table,), noon)
        times = 1 if table in SHARED else 24
        sizes[table_name(table)] = written * times / SIZE_HOSTS / 1000
        shutil.rmtree(data, ignore_errors=True)  # a table without rows has no file
    return sizes


def speed(
    profiles: Sequence[RolledUp], scratch: Path, tier: str, count: int, found: dict[int, str]
) -> dict[str, float]:
    """CPU seconds of each question over a day of so many hosts."""
    data = scratch / f"speed-{tier}-{count}"
    change = planted(count)
    fleet = Fleet(count, profiles, change, with_networks=True)
    tables = OF_AN_HOUR if tier == "1h" else OF_A_MINUTE
    fleet_writer.write(fleet, data, tier, 24, [one for one in tables if one is not columns.Host])
    fleet_writer.write(fleet, data, "1h", 24, (columns.Host,))
    question = Question(data, tier=tier)
    top = metrics.of_name("tls_cpus")
    questions: dict[str, Callable[[], Any]] = {
        "rank by CPUs in TLS": lambda: ranking.top(question, top, 20, "", ""),
        "rank by CPUs in handshakes": lambda: ranking.top(
            question, metrics.of_name("handshake_cpus"), 20, "", ""
        ),
        "what changed at noon": lambda: changes.between_times(question, *SIDES),
        "explain one host": lambda: peers.explain(question, "replayed-00003"),
    }
    if tier == "1h":
        questions[fleet_aims.LATENCIES] = lambda: ranking.top(question, top, 1, "tls_library", WALL)
    spent = {}
    for name, ask in questions.items():
        ask()
        cpu, wall = [], []
        for _ in range(RUNS):
            before, began = cpu_s(), time.monotonic()
            answer = ask()
            cpu.append(cpu_s() - before)
            wall.append(time.monotonic() - began)
        spent[name], spent[name + fleet_aims.WALL] = statistics.median(cpu), statistics.median(wall)
        if name == "what changed at noon" and tier == "1h":
            found[count] = verdict(answer, change)
    command = [sys.executable, "-m", "tlstax", "fleet", "top", "--data", str(data), "--tier", tier]
    before, began = cpu_s(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    spent[fleet_aims.COMMAND] = cpu_s(resource.RUSAGE_CHILDREN) - before
    spent[fleet_aims.COMMAND + fleet_aims.WALL] = time.monotonic() - began
    shutil.rmtree(data)
    return spent


def verdict(answer: Any, change: Planted) -> str:
    """Whether exactly the planted hosts were named, each for what was planted."""
    named = {(group.kind, group.metric): set(group.hosts) for group in answer.groups}

    def hosts(numbers: Sequence[int]) -> set[str]:
        return {f"replayed-{number:05d}" for number in numbers}

    expected = {
        ("facts", ""): hosts(change.new_library),
        ("metric", "sign_ns"): hosts(change.longer_key),
        ("metric", "resumed_share"): hosts(change.no_resumption),
        ("network", "resumed_share"): hosts(change.no_resumption),
    }
    if named == expected:
        return "yes"
    wrong = [
        f"{kind} {metric}: {len(named.get((kind, metric), set()) - good)} too many, "
        f"{len(good - named.get((kind, metric), set()))} missing"
        for (kind, metric), good in expected.items()
        if named.get((kind, metric)) != good
    ]
    wrong += [f"{len(named[key])} hosts for {key[1]}" for key in named.keys() - expected.keys()]
    return "; ".join(wrong)


def cpu_s(whose: int = resource.RUSAGE_SELF) -> float:
    """CPU time of this process, all threads, or of the processes that it started."""
    used = resource.getrusage(whose)
    return used.ru_utime + used.ru_stime


def text(
    profiles: Sequence[RolledUp],
    sizes: dict[str, dict[str, float]],
    hours: dict[int, dict[str, float]],
    minutes: dict[int, dict[str, float]],
    found: dict[int, str],
) -> str:
    """The page."""
    import duckdb

    libraries = sorted(
        {
            f"{row.server} {row.server_version} with {row.tls_library}"
            for rolled in profiles
            for row in rolled.rows["1h"][columns.Host]
            if isinstance(row, columns.Host)
        }
    )
    cpus = len(os.sched_getaffinity(0))
    where = (
        f"Written {datetime.date.today()} on {cpus} CPUs ({platform.machine()}, Linux "
        f"{platform.release()}), DuckDB {duckdb.__version__}, by `make bench-fleet`; load average "
        f"of the last 15 minutes {os.getloadavg()[2]:.0f}."
    )
    lines = [
        "# A data set of many hosts: size and speed",
        "",
        "<!-- Made by `make bench-fleet`: run it instead of changing this file. -->",
        "",
        where,
        "",
        _REPLAYED.format(count=len(profiles), servers="; ".join(libraries)),
        "",
        "## Bytes for each host and day",
        "",
        _SIZES.format(hosts=SIZE_HOSTS),
        "",
        "| table | 10 s | 1 min | 1 h |",
        "|---|---|---|---|",
    ]
    for name in (table_name(table) for table in SIZED):
        cells = [f"{sizes[tier][name]:,.1f}" if name in sizes[tier] else "" for tier in sizes]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    sums = {tier: sum(found.values()) for tier, found in sizes.items()}
    lines.append(f"| **all** | {' | '.join(f'**{sum_:,.0f}**' for sum_ in sums.values())} |")
    for tier, limit in fleet_aims.SIZES_KB.items():
        state = "below" if sums[tier] <= limit else "above"
        lines += ["", f"Tier {tier}: {sums[tier]:,.0f} KB, {state} the goal of {limit:,} KB."]
    lines += [
        "",
        _TOGETHER.format(
            minute=sums["1m"] + sums["1h"],
            ten=sum(sums.values()),
            findings=", ".join(str(len(one.rows["1h"][columns.Finding])) for one in profiles),
            hosts=SIZE_HOSTS,
            count=len(profiles),
        ),
        *_speeds("1h", f"{_names(OF_AN_HOUR)} of 24 hours", hours),
        *_speeds("1m", f"{_names(OF_A_MINUTE)} of 24 hours", minutes),
        "",
        "## Planted changes",
        "",
        _PLANTED,
        "",
        "| hosts | found |",
        "|---|---|",
        *(f"| {count:,} | {verdict_} |" for count, verdict_ in found.items()),
    ]
    return "\n".join(lines) + "\n"


def _names(tables: Sequence[type[Row]]) -> str:
    names = [f"`{table_name(table)}`" for table in tables]
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _speeds(tier: str, what: str, spent: dict[int, dict[str, float]]) -> list[str]:
    how = (
        f"Median of {RUNS} runs of each question in one process, after a first one ({what}); wall "
        f"time in brackets. Aims: {fleet_aims.CPU_S[tier]} s of CPU time for a question about all "
        f"hosts ({fleet_aims.LATENCIES}: {fleet_aims.LATENCIES_CPU_S} s), and at most ten times "
        "as long for ten times as many hosts. What misses them is marked."
    )
    heads = [f"{count:,} hosts" for count in spent]
    has_growth = len(spent) > 1
    if has_growth:
        heads.append("times as long as for the number of hosts before")
    name = {"1h": "1 h", "1m": "1 min"}[tier]
    lines = [
        *("", f"## CPU seconds of a question, tier {name}", "", how, ""),
        f"| question | {' | '.join(heads)} |",
        f"|---|{'---|' * len(heads)}",
    ]
    for question in fleet_aims.questions(spent):
        cells = [fleet_aims.cell(tier, question, times) for times in spent.values()]
        cells += [fleet_aims.growth_cell(question, spent)] if has_growth else []
        lines.append(f"| {question} | {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
