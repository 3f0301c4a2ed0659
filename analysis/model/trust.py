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
class ClosureLine:
    """Ledger against independent clocks for one window: connection threads, without idle."""

    window_id: Annotated[int, "window"]
    label: Annotated[str, "run it belongs to"]
    thread_count: Annotated[int, "connection threads in it"]
    ledger_ns: Annotated[int, "time in the ledger, without idle"]
    clock_ns: Annotated[int, "lifetime by the independent clocks, less the ledger's idle"]
    closure: Annotated[
        float | None, "1 - (sum of the threads' differences / clock_ns); 1 = complete"
    ]
    on_cpu_ns: Annotated[int, "on-CPU time by the ledger, threads with a scheduler clock only"]
    sched_cpu_ns: Annotated[int, "CPU time of the same threads by the scheduler"]
    steal_ns: Annotated[int, "on-CPU time of the same threads that the scheduler does not count"]
    on_cpu_ratio: Annotated[float | None, "on_cpu_ns / (sched_cpu_ns + steal_ns)"]
    uncertain_ns: Annotated[int, "time between a missed probe and its correction"]
    healed_count: Annotated[int, "phases whose missed end was corrected"]
    unchecked_count: Annotated[
        int, "threads that served connections and whose clocks were not read"
    ]
    unchecked_ns: Annotated[int, "their time without idle"]


@dataclass(frozen=True)
class Closure:
    """How well the ledger agrees with independent clocks."""

    ok: Annotated[bool | None, "every window closes to the threshold; null: nothing to check"]
    threshold: Annotated[float, "what every window must reach"]
    worst: Annotated[float | None, "worst closure of a window"]
    overall: Annotated[float | None, "closure of all windows together"]
    on_cpu_ratio: Annotated[float | None, "on-CPU time by the ledger / by the scheduler + steal"]
    steal_ns: Annotated[int, "on-CPU time of the threads that the scheduler does not count"]
    host_steal_ns: Annotated[int, "CPU time taken by the hypervisor, whole host"]
    unchecked_ns: Annotated[int, "time of threads whose clocks were not read, without idle"]
    uncertain_ns: Annotated[int, "time between a missed probe and its correction"]
    healed_count: Annotated[int, "phases whose missed end was corrected"]
    windows: Annotated[list[ClosureLine], "every window that has connection threads"]


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
    cost_ns: Annotated[float | None, "calibrated cost of a hit; null = not known"]
    total_ns: Annotated[float | None, "hits x cost"]


@dataclass(frozen=True)
class EffectLine:
    """One part of the overhead: predicted before the recording, and observed."""

    name: Annotated[str, "probes, scheduler, samples, engine or all"]
    label: Annotated[str, "for people"]
    predicted_share: Annotated[
        float | None, "predicted share of the server's CPU time; null = no prediction"
    ]
    observed_share: Annotated[
        float | None, "observed share of the server's CPU time; null = unknown"
    ]
    observed_ns: Annotated[float | None, "observed; null = unknown"]


@dataclass(frozen=True)
class Observer:
    """The overhead of the measurement."""

    hits_count: Annotated[int, "probe hits"]
    hits_per_second: Annotated[float, "probe hits per second of recording"]
    probe_ns: Annotated[float | None, "hits x calibrated cost; null = no calibrated cost"]
    probe_cpu_share: Annotated[float | None, "probe_ns / recording time: share of one CPU"]
    uncosted_hits_count: Annotated[int, "hits of probes without a calibrated cost"]
    engine_cpu_share: Annotated[float | None, "CPU of tlstax itself as a share of one CPU"]
    engine_rss_bytes: Annotated[int | None, "largest resident memory of tlstax"]
    probes: Annotated[list[ProbeLine], "every probe, the most expensive first"]
    target_cpu_ns: Annotated[int | None, "CPU time of the server; null = not recorded"] = None
    start_cpu_ns: Annotated[
        float | None, "CPU time of tlstax's startup, not included in any share; null = not recorded"
    ] = None
    budget_share: Annotated[float | None, "the budget, as a share; null = no budget"] = None
    budget_choice: Annotated[str, "how the budget was planned, in a sentence; '' = no budget"] = ""
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
