# SPDX-License-Identifier: GPL-2.0-only
"""The shape of a report, part one: data quality, shown above the first number."""

from dataclasses import dataclass, field
from typing import Annotated


@dataclass(frozen=True)
class LossLine:
    """One kind of loss that happened."""

    kind: Annotated[str, "name, see vocabulary"]
    count: Annotated[int, "times"]
    meaning: Annotated[str, "what happened"]
    consequence: Annotated[str, "what it means for the result"]


@dataclass(frozen=True)
class GapLine:
    """Something about the process that was unavailable."""

    subject: Annotated[str, "a boundary, a field, names in a file, a process"]
    consequence: Annotated[str, "what is missing from the report because of it"]


@dataclass(frozen=True)
class ClosureFigure:
    """A sum of the ledger against a clock or count that the ledger has no part in, at its worst."""

    key: Annotated[str, "id of the figure"]
    name: Annotated[str, "what is compared with what"]
    verdict: Annotated[str, "ok, failed, too little (observed), or not checked"]
    about: Annotated[str, "the thread, CPU or boundary that it is about; '' = all"]
    value: Annotated[float | None, "the ledger's; null = not checked"]
    reference: Annotated[float | None, "the kernel's or the server's; null = not checked"]
    unit: Annotated[str, "unit of both: ns or count"]
    ratio: Annotated[float | None, "value / reference"]
    error: Annotated[float, "the part of their difference that counts as an error"]
    allowed: Annotated[float, "how much of it is allowed"]
    used_share: Annotated[float | None, "error / allowed: above 1 is beyond the bound"]
    windows: Annotated[str, "the windows that it is about; '' = the whole recording"]
    note: Annotated[str, "why it was not checked, or what the report may not be used for; or ''"]


@dataclass(frozen=True)
class Closure:
    """How well the ledger agrees with clocks and counts that it has no part in."""

    ok: Annotated[bool | None, "no figure is beyond its bound; null: nothing was checked"]
    summary: Annotated[str, "the worst figure and what was not checked, in words"]
    worst: Annotated[str, "id of the figure that is nearest to its bound or beyond it; '' = none"]
    forbidden: Annotated[list[str], "what the report may not be used for, one sentence per figure"]
    uncertain_ns: Annotated[int, "time between a missed probe and its correction"]
    healed_count: Annotated[int, "phases whose missed end was corrected"]
    figures: Annotated[list[ClosureFigure], "every figure"]


@dataclass(frozen=True)
class UntrackedThreads:
    """Threads that found no room in the ledger."""

    thread_count: Annotated[int, "most of them at the end of a window"]
    process_thread_count: Annotated[int, "threads of the process then"]
    cpu_ns: Annotated[int, "CPU time of the process that no thread of the ledger used"]
    cpu_share: Annotated[float | None, "cpu_ns / CPU time of the process; null = not known"]


@dataclass(frozen=True)
class ProbeLine:
    """One probe with its cost."""

    boundary: Annotated[str, "phase boundary"]
    event: Annotated[str, "enter or exit"]
    function: Annotated[str, "probed function"]
    object: Annotated[str, "file"]
    kind: Annotated[str, "kind of probe"]
    instruction: Annotated[str, "instruction under the probe"]
    stepped: Annotated[bool, "the kernel single-steps the instruction"]
    hits_count: Annotated[int, "times it fired"]
    cost_ns: Annotated[
        float | None, "calibrated cost of a hit: in a loop, less than in a server; null = not known"
    ]
    total_ns: Annotated[float | None, "hits x cost"]


@dataclass(frozen=True)
class EffectLine:
    """One part of the overhead: predicted before the recording, and observed."""

    name: Annotated[str, "probe, scheduler, neighbour, sample, engine or all"]
    label: Annotated[str, "for people"]
    predicted_share: Annotated[
        float | None, "predicted share of the server's CPU time; null = no prediction"
    ]
    observed_share: Annotated[
        float | None, "observed share of the server's CPU time; null = unknown"
    ]
    observed_ns: Annotated[float | None, "observed; null = unknown"]


@dataclass(frozen=True)
class SendCost:
    """What a send of the server takes more while it is recorded.

    Medians of pairs of short stretches with recording and without, before the recording.
    """

    server_ns: Annotated[float, "the server's CPU time, more"]
    server_low_ns: Annotated[float, "lower end of its 95 % interval"]
    server_high_ns: Annotated[float, "upper end of its 95 % interval"]
    without_ns: Annotated[float, "the server's CPU time without recording"]
    server_share: Annotated[float | None, "server_ns of without_ns; null = it used none"]
    server_said_ns: Annotated[float, "what the prices of hits and events say of server_ns"]
    server_told_ns: Annotated[float, "what windows tell: both, each as certain as it is"]
    pair_count: Annotated[int, "pairs of stretches"]
    host_ns: Annotated[
        float | None,
        "CPU time of the server and its clients on this host, more; null = no client is certain",
    ] = None
    host_low_ns: Annotated[float | None, "lower end of its 95 % interval"] = None
    host_high_ns: Annotated[float | None, "upper end of its 95 % interval"] = None
    host_said_ns: Annotated[float | None, "what prices say of host_ns"] = None
    host_told_ns: Annotated[float | None, "what windows tell"] = None
    host_is_used: Annotated[
        bool, "what clients pay is told, without host_told_ns the usual part; false = it is not"
    ] = False


@dataclass(frozen=True)
class Observer:
    """The overhead of the measurement."""

    hits_count: Annotated[int, "probe hits"]
    hits_per_second: Annotated[float, "probe hits per second of recording"]
    probe_ns: Annotated[
        float | None, "as `effects` have it, else hits x calibrated cost; null = neither is known"
    ]
    probe_cpu_share: Annotated[float | None, "probe_ns / recording time: share of one CPU"]
    uncosted_hits_count: Annotated[int, "hits of probes without a calibrated cost"]
    engine_cpu_share: Annotated[float | None, "CPU of tlstax itself as a share of one CPU"]
    engine_rss_bytes: Annotated[int | None, "largest resident memory of tlstax"]
    probes: Annotated[list[ProbeLine], "every probe, the most expensive first"]
    target_cpu_ns: Annotated[int | None, "CPU time of the server; null = not recorded"] = None
    start_cpu_ns: Annotated[
        float | None,
        "CPU time of tlstax's startup, in no share but whole_share; null = not recorded",
    ] = None
    end_cpu_ns: Annotated[
        float | None,
        "CPU time of tlstax after the last window, in no share but whole_share; null = not "
        "recorded",
    ] = None
    whole_share: Annotated[
        float | None,
        "all that measuring used: observed_ns of `effects` in total, start_cpu_ns and end_cpu_ns "
        "(what is unknown of these two is left out), as a share of what `effects` are of; null = "
        "neither of these two, nothing observed, or no CPU time of the server is known",
    ] = None
    recorded_with: Annotated[
        str,
        "pids of servers that the same recorder recorded, too: CPU time is this server's part, "
        "engine_rss_bytes is of all; '' = none",
    ] = ""
    thread_room: Annotated[
        float | None, "threads for which the ledger had room; null = not recorded"
    ] = None
    thread_room_bytes: Annotated[
        float | None, "kernel memory of that room, not in engine_rss_bytes; null = not recorded"
    ] = None
    budget_share: Annotated[float | None, "the budget, as a share; null = no budget"] = None
    budget_choice: Annotated[str, "how the budget was planned, in a sentence; '' = no budget"] = ""
    hit_cost_source: Annotated[
        str,
        "where the overhead has the cost of a probe hit from: measured (in the server), scaled "
        "(with all that recording costs, to what was measured in the server), default (of a loop "
        "on the host, multiplied); '' = not recorded",
    ] = ""
    hit_cost_ns: Annotated[
        float | None,
        "cost of a probe hit in the server, its program included: median of pairs of stretches "
        "with and without probes; null = not measured",
    ] = None
    hit_cost_low_ns: Annotated[float | None, "lower end of its 95 % interval"] = None
    hit_cost_high_ns: Annotated[float | None, "upper end of its 95 % interval"] = None
    hit_cost_pair_count: Annotated[float | None, "pairs of stretches"] = None
    send_cost: Annotated[
        SendCost | None, "what recording costs for a send, measured; null = not measured"
    ] = None
    effects: Annotated[list[EffectLine], "predicted and observed by part, then in total (last)"] = (
        field(default_factory=list)
    )


@dataclass(frozen=True)
class Symbols:
    """How well samples were named and classified."""

    sample_count: Annotated[int, "CPU samples"]
    named_share: Annotated[float | None, "share of samples whose leaf has a name"]
    unknown_share: Annotated[float | None, "share of samples that match no rule of the taxonomy"]
    no_stack_share: Annotated[float | None, "share of samples without any stack"]
    sources: Annotated[dict[str, int], "samples by where the leaf's name came from"]


@dataclass(frozen=True)
class Health:
    """Losses, closure, overhead and symbol quality: shown above the first number."""

    warnings: Annotated[list[str], "sentences that a reader must see"]
    losses: Annotated[list[LossLine], "losses that happened; empty = none"]
    closure: Annotated[Closure, "ledger against independent clocks"]
    observer: Annotated[Observer, "overhead"]
    symbols: Annotated[Symbols, "symbol quality"]
    gaps: Annotated[list[GapLine], "what was unavailable about the process; empty = nothing"] = (
        field(default_factory=list)
    )
    untracked: Annotated[
        UntrackedThreads | None, "threads that are not in the ledger; null = all are in it"
    ] = None
