# SPDX-License-Identifier: GPL-2.0-only
"""The shape of a report: everything that renderers print, computed once.

`document.explain.explain` builds a `Document` from a capture, `to_json` turns it into
plain dictionaries and lists. Renderers compute nothing: each number they show is in here, in
nanoseconds, and each sentence too. Lists are in the order in which they should be shown.
docs/report-json.md is generated from this file.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from tlstax.analysis.model.clients import EndToEnd, Intermediaries
from tlstax.analysis.model.command_split import CommandSplit
from tlstax.analysis.model.composition import Composition
from tlstax.analysis.model.findings import Finding
from tlstax.analysis.model.heatmap import Heatmap
from tlstax.analysis.model.primitives import PrimitiveTable
from tlstax.analysis.model.sources import Sources
from tlstax.analysis.model.tables import (
    Comparison,
    Distribution,
    FlameGraph,
    HandshakeTable,
    LedgerBar,
)
from tlstax.analysis.model.trust import Health

DOCUMENT_VERSION: Final = 3


@dataclass(frozen=True)
class Answer:
    """The result of the capture in sentences."""

    sentence: Annotated[str, "the answer in one sentence"]
    details: Annotated[list[str], "further sentences, one for each driver or result"]


@dataclass(frozen=True)
class TargetFacts:
    """The server that was measured."""

    pid: Annotated[int, "process id"]
    exe: Annotated[str, "executable"]
    server: Annotated[str, "server and version, for example mariadb 10.11.19"]
    tls: Annotated[str, "TLS library, version and linkage"]
    build_id: Annotated[str, "build-id of the executable"]
    own_pid: Annotated[int, "process id in its own pid namespace; 0 = not read"] = 0
    later_pids: Annotated[list[int], "process ids of its later starts"] = field(
        default_factory=list
    )


@dataclass(frozen=True)
class CaptureFacts:
    """What was recorded, where and for how long."""

    recorded_at: Annotated[str, "UTC time at the start, ISO 8601, or unknown"]
    duration_ns: Annotated[int, "sum of all windows"]
    window_count: Annotated[int, "windows"]
    thread_count: Annotated[int, "threads seen"]
    handshake_count: Annotated[int | None, "handshake records; null = not measured"]
    sample_count: Annotated[int, "CPU samples"]
    targets: Annotated[list[TargetFacts], "servers"]
    meta: Annotated[dict[str, str], "metadata of the recording, unchanged from the capture"]
    measured_ns: Annotated[int, "time in which the ledger was kept"] = 0
    levels: Annotated[dict[str, int], "time in ns by level of detail"] = field(default_factory=dict)


@dataclass(frozen=True)
class RunLine:
    """One run as the driver reported it."""

    run_id: Annotated[int, "run"]
    label: Annotated[str, "driver/scenario/arm"]
    round: Annotated[int, "round"]
    duration_ns: Annotated[int, "duration"]
    threads_count: Annotated[int, "client threads"]
    connection_count: Annotated[int, "connections"]
    operation_count: Annotated[int, "operations"]
    operations_per_second: Annotated[float, "operations per second"]
    client_mean_ns: Annotated[int, "mean latency"]
    client_p95_ns: Annotated[int, "95th percentile"]
    handshake_count: Annotated[int, "handshakes that the probes counted"]
    proof: Annotated[dict[str, Any], "counters which prove that the arm used TLS or plaintext"]
    server_start: Annotated[int, "start of the server that it ran on, from 0"] = 0


@dataclass(frozen=True)
class Meaning:
    """A name that the report uses, explained."""

    name: Annotated[str, "name"]
    meaning: Annotated[str, "meaning"]


@dataclass(frozen=True)
class Method:
    """How it was measured."""

    paragraphs: Annotated[list[str], "sentences"]
    phases: Annotated[list[Meaning], "phases"]
    states: Annotated[list[Meaning], "states"]
    categories: Annotated[list[Meaning], "categories"]


@dataclass(frozen=True)
class Document:
    """A whole report."""

    version: Annotated[int, "version of this shape"]
    title: Annotated[str, "title"]
    answer: Annotated[Answer, "the result"]
    capture: Annotated[CaptureFacts, "what was recorded"]
    health: Annotated[Health, "losses, closure, overhead; shown first"]
    comparisons: Annotated[list[Comparison], "waterfalls; empty for a capture without runs"]
    ledgers: Annotated[list[LedgerBar], "one for each driver and arm, or one: all"]
    compositions: Annotated[list[Composition], "one for each ledger bar"]
    handshakes: Annotated[list[HandshakeTable], "one for each ledger bar with handshakes"]
    latencies: Annotated[list[Distribution], "phases of each ledger bar"]
    primitives: Annotated[list[PrimitiveTable], "with --functions: one for each ledger bar"]
    flames: Annotated[list[FlameGraph], "on_cpu and off_cpu of each ledger bar"]
    runs: Annotated[list[RunLine], "runs in order of time"]
    method: Annotated[Method, "how it was measured, and the vocabulary"]
    end_to_end: Annotated[list[EndToEnd], "both sides; empty where no client was recorded"] = field(
        default_factory=list
    )
    between: Annotated[
        list[Intermediaries], "tunnels and proxies between client and server; empty without any"
    ] = field(default_factory=list)
    splits: Annotated[
        list[CommandSplit], "commands at level flow, split; empty without that level"
    ] = field(default_factory=list)
    sources: Annotated[Sources | None, "other sources of the recording; null = none"] = None
    findings: Annotated[
        list[Finding], "causes whose intervals exceed their bounds, the most important first"
    ] = field(default_factory=list)
    findings_note: Annotated[str, "how many rules were applied, and what limited them"] = ""
    heatmaps: Annotated[list[Heatmap], "latency over time; empty with one window only"] = field(
        default_factory=list
    )


def to_json(document: Document) -> dict[str, Any]:
    """The document as dictionaries, lists, strings, numbers and None.

    Flame trees are JSON already and deep: they are taken as they are.
    """
    return to_plain(document)


def to_plain(document: Any) -> dict[str, Any]:
    """Any dataclass of a report as dictionaries, lists, strings, numbers and None."""
    plain: dict[str, Any] = _plain(document)
    return plain


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        names = (field.name for field in dataclasses.fields(value))
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return {key: _plain(item) for key, item in value.items()} if _is_table(value) else value


def _is_table(value: Any) -> bool:
    """A dictionary that may hold dataclasses, so no flame tree."""
    return isinstance(value, dict) and "children" not in value
