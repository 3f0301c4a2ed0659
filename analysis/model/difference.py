# SPDX-License-Identifier: GPL-2.0-only
"""The shape of a comparison of two recordings: what `tlstax diff --json` prints."""

from dataclasses import dataclass, field
from typing import Annotated, TypedDict

from tlstax.analysis.model.tables import Distribution, Measure, PValue, Ratio

DIFFERENCE_VERSION = 2


@dataclass(frozen=True)
class SideFacts:
    """One side of a comparison."""

    label: Annotated[str, "file, and what was chosen of it"]
    capture: Annotated[str, "name of the capture file"]
    group: Annotated[str, "driver/scenario/arm, or all"]
    server: Annotated[str, "server and version"]
    tls: Annotated[str, "TLS library, version and linkage"]
    host: Annotated[str, "host, CPU and kernel"]
    level: Annotated[str, "levels of detail of its windows"]
    engine: Annotated[str, "what recorded it"]
    negotiated: Annotated[str, "TLS version, cipher and group of most handshakes, or ''"]
    replicate_count: Annotated[int, "rounds, or blocks of windows, that are compared"]
    operation_count: Annotated[float, "operations"]
    sample_count: Annotated[int, "CPU samples"]


@dataclass(frozen=True)
class Step:
    """One step of the waterfall: time per operation on both sides."""

    name: Annotated[str, "stable id, for example handshake_sign"]
    label: Annotated[str, "what it is, for people"]
    group: Annotated[str, "handshake, record, server, waiting, client or unexplained"]
    basis: Annotated[str, "exact (ledger), sampled (ledger split by samples) or client (driver)"]
    description: Annotated[str, "what is counted in it"]
    before_ns: Annotated[float, "per operation, before"]
    after_ns: Annotated[float, "per operation, after"]
    difference: Annotated[Measure, "after less before, per operation"]
    verdict: Annotated[str, "more, less, no difference seen, or no interval"]
    start_ns: Annotated[float, "where its bar starts in the waterfall"]
    end_ns: Annotated[float, "where its bar ends"]
    sample_counts: Annotated[list[int], "samples behind it, before and after; empty: none needed"]
    p_value: PValue = None


@dataclass(frozen=True)
class Change:
    """Something that both sides have per operation: a function, a category, a wait."""

    name: Annotated[str, "what it is"]
    kind: Annotated[str, "category of a function, phase of a wait, or ''"]
    before_ns: Annotated[float, "per operation, before"]
    after_ns: Annotated[float, "per operation, after"]
    difference: Annotated[Measure, "after less before, per operation"]
    verdict: Annotated[str, "more, less, no difference seen, or no interval"]
    sample_counts: Annotated[list[int], "samples, before and after; empty: exact"]
    p_value: PValue = None


@dataclass(frozen=True)
class LatencyPair:
    """A latency distribution of both sides."""

    phase: Annotated[str, "phase, or handshake_wall for whole handshakes"]
    before: Annotated[Distribution, "before"]
    after: Annotated[Distribution, "after"]


class ChangeNode(TypedDict):
    """A frame of a differential flame graph: time per operation, own time included."""

    name: str
    category: str
    before_ns: float
    after_ns: float
    is_noise: bool
    children: list["ChangeNode"]


@dataclass(frozen=True)
class FlamePair:
    """Two flame graphs in one tree, with frames that only one side has."""

    kind: Annotated[str, "on_cpu or off_cpu"]
    per: Annotated[
        str, "unit that times are divided by; '' = after is scaled to the total of before"
    ]
    before_ns: Annotated[float, "the whole, before"]
    after_ns: Annotated[float, "the whole, after"]
    sample_counts: Annotated[list[int], "samples or waits, before and after"]
    root: Annotated[ChangeNode, "tree; is_noise: the change is within sampling noise"]


@dataclass(frozen=True)
class PairDifference:
    """One pair of recordings, compared or refused."""

    name: Annotated[str, "what is compared, for people"]
    before: Annotated[SideFacts, "the first side"]
    after: Annotated[SideFacts, "the second side"]
    refusals: Annotated[list[str], "why they cannot be compared; then all below is empty"]
    cautions: Annotated[list[str], "other differences between the sides"]
    sentence: Annotated[str, "the result in one sentence"]
    operation: Annotated[str, "what one operation is"]
    total_name: Annotated[str, "what the total is: latency at the client, or server time"]
    note: Annotated[str, "how the intervals were made"]
    totals: Annotated[list[Measure], "time of one operation, before and after; or empty"]
    difference: Annotated[Measure | None, "after less before"]
    ratio: Annotated[Ratio | None, "after / before"]
    verdict: Annotated[str, "more, less, no difference seen, or no interval"]
    steps: Annotated[list[Step], "waterfall; they sum to the difference"] = field(
        default_factory=list
    )
    beside: Annotated[list[Step], "costs that are not part of the sum"] = field(
        default_factory=list
    )
    categories: Annotated[list[Change], "CPU time of the server by category"] = field(
        default_factory=list
    )
    functions: Annotated[list[Change], "CPU time by function, largest change first"] = field(
        default_factory=list
    )
    waits: Annotated[list[Change], "waiting by state and phase, largest change first"] = field(
        default_factory=list
    )
    latencies: Annotated[list[LatencyPair], "distributions of what both sides did"] = field(
        default_factory=list
    )
    flames: Annotated[list[FlamePair], "differential flame graphs"] = field(default_factory=list)
    unexplained: Annotated[list[Measure], "what no step explains, before and after; or empty"] = (
        field(default_factory=list)
    )


@dataclass(frozen=True)
class Difference:
    """A whole comparison."""

    version: Annotated[int, "version of this shape"]
    title: Annotated[str, "title"]
    pairs: Annotated[list[PairDifference], "one for each pair of recordings"]
