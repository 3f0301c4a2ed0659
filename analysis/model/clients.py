# SPDX-License-Identifier: GPL-2.0-only
"""The shape of a report, part four: client and server side by side, and what is between them."""

from dataclasses import dataclass
from typing import Annotated

from tlstax.analysis.model.composition import PhaseComposition, Share
from tlstax.analysis.model.tables import Measure


@dataclass(frozen=True)
class LanePart:
    """A piece of one side's time for an operation."""

    name: Annotated[str, "stable id: client_handshake_cpu, server_runnable, between, ..."]
    label: Annotated[str, "what it is, for people"]
    lane: Annotated[str, "client, server or between"]
    kind: Annotated[str, "cpu, runnable, wait, peer (waiting for the other side) or between"]
    cost: Annotated[Measure, "per operation; exact"]
    share: Annotated[float, "of the operation's time at the client"]
    start_ns: Annotated[float, "where its bar starts in its lane"]
    end_ns: Annotated[float, "where its bar ends"]
    made_of: Annotated[
        list[Share],
        "CPU time by category from samples, largest first; program = the client's own code",
    ]
    sample_count: Annotated[int | None, "samples behind made_of; null where there is none"]
    enough: Annotated[bool, "made_of has at least 1,000 samples, or needs none"]
    added: Annotated[
        Measure | None, "TLS less plaintext; null for other arms and without a plaintext arm"
    ] = None


@dataclass(frozen=True)
class EndToEnd:
    """One operation on both sides of the connection, from the same windows."""

    name: Annotated[str, "stable id: driver/scenario/arm, or all"]
    label: Annotated[str, "for people"]
    driver: Annotated[str, "driver, or ''"]
    scenario: Annotated[str, "scenario, or ''"]
    arm: Annotated[str, "plaintext, tls, or ''"]
    operation: Annotated[str, "what one operation is"]
    operation_counts: Annotated[dict[str, int], "operations by side"]
    process_count: Annotated[int, "client processes"]
    libraries: Annotated[list[str], "what the clients connect with, and their TLS libraries"]
    handshake_counts: Annotated[dict[str, int], "successful handshakes by side"]
    latency: Annotated[Measure, "time of the client's threads per operation"]
    client_cpu: Annotated[Measure, "CPU time at the client, of its threads that connect"]
    server_cpu: Annotated[Measure, "CPU time at the server, without disconnecting"]
    client_wait: Annotated[Measure, "the client waiting for the server and the network"]
    between: Annotated[
        Measure,
        "client_wait less server_cpu: network and scheduling, a lower bound; below zero, the "
        "server computed at least that long while the client did not wait",
    ]
    sentence: Annotated[str, "the result in one sentence"]
    notes: Annotated[list[str], "limits of the result"]
    parts: Annotated[list[LanePart], "the client's sum to latency; then the server's, then between"]
    beside: Annotated[list[LanePart], "what the client does not wait for"]
    phases: Annotated[list[PhaseComposition], "what the client's CPU did, by phase"]
    closure: Annotated[
        float | None,
        "1 - |CPU time of the ledger - CPU clock of the client| / clock; null = not read",
    ]
    probe_ns: Annotated[float | None, "cost of the client's probes per operation; null = unknown"]
    latency_added: Annotated[
        Measure | None, "latency, TLS less plaintext; null without such a pair"
    ] = None


@dataclass(frozen=True)
class IntermediaryProcess:
    """A tunnel or proxy that worked for the operations of a group."""

    target_id: Annotated[int, "target"]
    label: Annotated[str, "its name, for people"]
    role: Annotated[str, "tunnel or proxy"]
    exe: Annotated[str, "executable"]
    tls: Annotated[str, "TLS library and version, or unknown"]
    cpu: Annotated[Measure, "CPU time per operation"]
    runnable: Annotated[Measure, "waiting for a CPU, per operation"]
    blocked_ns: Annotated[dict[str, float], "waits per operation by state, of all its threads"]
    handshake_count: Annotated[int, "successful handshakes of its own"]
    thread_count: Annotated[int, "threads"]
    closure: Annotated[
        float | None,
        "1 - |CPU time of the ledger - its CPU clock| / clock; null = not read, or too little",
    ]


@dataclass(frozen=True)
class Intermediaries:
    """What the processes between the client and the server cost."""

    name: Annotated[str, "stable id: driver/scenario/arm, or all"]
    label: Annotated[str, "for people"]
    operation: Annotated[str, "what one operation is; '' = times are of the whole recording"]
    operation_count: Annotated[int, "operations of the driver"]
    cpu: Annotated[Measure, "CPU time of all of them per operation"]
    processes: Annotated[list[IntermediaryProcess], "the busiest first"]
    idle_count: Annotated[int, "other recorded processes that were idle"]
    sentence: Annotated[str, "the result in one sentence"]
