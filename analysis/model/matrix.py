# SPDX-License-Identifier: GPL-2.0-only
"""The shape of a matrix's report: what `tlstax lab run` and `resume` print and draw.

Times are nanoseconds. "Rounds" are the runs of a cell; a baseline and its cell are paired by round.
Where servers were started several times, medians and bounds are those of starts, not of rounds.
"""

from dataclasses import dataclass, field
from typing import Annotated

from tlstax.analysis.model.difference import Step
from tlstax.analysis.model.tables import CpuCost, Measure, Ratio


@dataclass(frozen=True)
class Process:
    """A process between the client and the server, per operation of a cell."""

    name: Annotated[str, "program"]
    role: Annotated[str, "tunnel or proxy"]
    cpu_ns: Annotated[float, "CPU time"]
    runnable_ns: Annotated[float, "time waiting for a CPU"]


@dataclass(frozen=True)
class MatrixCell:
    """One combination."""

    cell_id: Annotated[int, "key in results.sqlite"]
    label: Annotated[str, "all of its dimensions, for people"]
    place: Annotated[dict[str, str | int], "dimension -> its value"]
    arm: Annotated[str, "plaintext or tls"]
    operation: Annotated[str, "what one operation is"]
    round_count: Annotated[int, "runs that are done"]
    operations_per_s: Annotated[Ratio, "as the client counted: median of the rounds"]
    connections_per_s: Annotated[Ratio, "the same of connections"]
    queries_per_s: Annotated[Ratio | None, "the same of queries; null = unknown"]
    mean: Annotated[Measure, "median of the rounds' mean latencies at the client"]
    p95: Annotated[Measure, "95th percentile of the operations of all rounds together"]
    max_ns: Annotated[int, "slowest operation of all rounds"]
    server_cpu_ns: Annotated[float | None, "of the server, per operation; null = not recorded"]
    client_cpu_ns: Annotated[float, "of the client, per operation"]
    processes: Annotated[list[Process], "tunnels and proxies between client and server"]
    closure: Annotated[
        float | None,
        "1 - |CPU time of the ledger - CPU clock of the server| / clock, over all its runs; "
        "null = not read, or less than 100 ms of CPU time in a run",
    ]
    negotiated: Annotated[str, "TLS version and cipher, as they were seen"]
    reused_share: Annotated[float | None, "connections that resumed a session; null = unknown"]
    carried_bytes: Annotated[float | None, "by the tunnel's own count, per operation"]
    cdf: Annotated[list[list[float]], "[latency in ns, share of operations], ascending"]
    dots: Annotated[list[int], "latencies of single operations in the order they ended, thinned"]


@dataclass(frozen=True)
class SidePart:
    """A piece of the client's or the server's time for an operation."""

    name: Annotated[str, "stable id: client_handshake_cpu, server_runnable, between, ..."]
    label: Annotated[str, "what it is, for people"]
    lane: Annotated[str, "client, server or between"]
    kind: Annotated[str, "cpu, runnable, wait, peer (waiting for the other side) or between"]
    before: Annotated[Measure, "of the baseline; exact"]
    after: Annotated[Measure, "of the cell; exact"]
    difference: Annotated[Measure, "cell less baseline"]
    starts_ns: Annotated[list[float], "where its bars start in the lanes of baseline and cell"]


@dataclass(frozen=True)
class BothSides:
    """Client and server of one operation, where the clients were recorded, too."""

    sentence: Annotated[str, "the result in one sentence"]
    parts: Annotated[list[SidePart], "the client's, then the server's, then what is between"]
    closure: Annotated[float | None, "the same of the client"]


@dataclass(frozen=True)
class MatrixPair:
    """A cell against its baseline, per operation."""

    cell_id: Annotated[int, "the cell"]
    baseline_id: Annotated[int, "what it is compared with"]
    name: Annotated[str, "the cell, for people"]
    baseline: Annotated[str, "what the baseline is, for people"]
    operation: Annotated[str, "what one operation is"]
    sentence: Annotated[str, "the result in one sentence"]
    round_count: Annotated[int, "rounds that both finished"]
    throughput: Annotated[Ratio, "operations/s over those of the baseline"]
    totals: Annotated[list[Measure], "latency at the client of the baseline and the cell"]
    difference: Annotated[Measure, "cell less baseline"]
    steps: Annotated[list[Step], "they sum to the difference"]
    beside: Annotated[list[Step], "CPU time that no client waits for"]
    closure: Annotated[float | None, "the lower of both ledgers' closures"]
    both_sides: Annotated[BothSides | None, "null where the clients were not recorded"] = None
    unexplained: Annotated[list[Measure], "latency that no step explains: baseline, cell"] = field(
        default_factory=list
    )
    server_cpu: Annotated[CpuCost | None, "what the server's CPUs paid, waits excluded"] = None
    start_count: Annotated[
        int, "server starts with these rounds; from 2 on, starts are units, not rounds"
    ] = 1


@dataclass(frozen=True)
class MatrixPublished:
    """A published figure and what was measured in a cell like it."""

    source: Annotated[str, "publication"]
    setup: Annotated[str, "their set-up; may be empty"]
    quantity: Annotated[str, "operations_per_s, queries_per_s, p95_ns, mean_ns or ratio"]
    published: Annotated[float | None, "their figure; null where only a ratio was published"]
    published_ratio: Annotated[float | None, "to their baseline; null for the baseline itself"]
    cell: Annotated[str, "the cell here"]
    measured: Annotated[float, "the same quantity here"]
    measured_ratio: Annotated[float | None, "to the baseline here"]


@dataclass(frozen=True)
class MatrixFailure:
    """Runs that failed or were left out."""

    label: Annotated[str, "cell"]
    state: Annotated[str, "failed, skipped or planned"]
    reason: Annotated[str, "why; empty for planned ones"]
    run_count: Annotated[int, "runs"]


@dataclass(frozen=True)
class Matrix:
    """The whole report of a matrix."""

    title: Annotated[str, "title of the recipe"]
    facts: Annotated[dict[str, str], "recipe, scale, seed, host and so on"]
    note: Annotated[str, "how the intervals were computed, and their limits"]
    servers: Annotated[dict[str, dict[str, str]], "server -> what it is and negotiates"]
    routes: Annotated[dict[str, dict[str, str]], "server and transport -> its own description"]
    cells: Annotated[list[MatrixCell], "in the order of the recipe"]
    pairs: Annotated[list[MatrixPair], "each cell that has a baseline"]
    published: Annotated[list[MatrixPublished], "published and measured"]
    failures: Annotated[list[MatrixFailure], "runs without a result, and why"]
