# SPDX-License-Identifier: GPL-2.0-only
"""The shape of a report: what the CPU did, and who asked for it."""

from dataclasses import dataclass, field
from typing import Annotated

from tlstax.analysis.model.tables import Estimate, Interval, UnitCount


@dataclass(frozen=True)
class Share:
    """Share of a category in a phase's CPU time."""

    category: Annotated[str, "category, see vocabulary"]
    share: Annotated[float, "of the phase's on-CPU time"]
    low: Interval
    high: Interval
    time_ns: Annotated[float, "share x exact on-CPU time"]
    sample_count: Annotated[int, "samples in it"]
    unit_count: UnitCount = None


@dataclass(frozen=True)
class CallerShare:
    """Share of a phase's CPU time by the function that asked for it."""

    category: Annotated[str, "category of the samples; '' of a task: any"]
    caller: Annotated[str, "category of the function that asked; '' if nobody is known to have"]
    function: Annotated[str, "that function; (several): each below 0.5 % of the phase"]
    share: Annotated[float, "of the phase's on-CPU time"]
    low: Interval
    high: Interval
    time_ns: Annotated[float, "share x exact on-CPU time"]
    sample_count: Annotated[int, "samples in it"]
    unit_count: UnitCount = None


@dataclass(frozen=True)
class PhaseComposition:
    """What the CPU did inside a phase: exact total, sampled split."""

    phase: Annotated[str, "phase"]
    on_cpu_ns: Annotated[int, "exact on-CPU time"]
    per_operation_ns: Annotated[float | None, "per operation; null without operations"]
    exact: Annotated[bool, "the phase is its category by definition; no samples needed"]
    sample_count: Annotated[int, "samples behind the split"]
    enough: Annotated[bool, "exact, or at least 1,000 samples"]
    shares: Annotated[list[Share], "largest first; they sum to 1 (empty: no samples)"]
    callers: Annotated[
        list[CallerShare],
        "each category by the nearest caller of another one that is no service (memory, locks, "
        "system calls); they sum to 1 (empty: exact, or not split by caller)",
    ] = field(default_factory=list)
    tasks: Annotated[
        list[CallerShare],
        "the phase by the outermost function below the server's own and the protocol's",
    ] = field(default_factory=list)


@dataclass(frozen=True)
class Composition:
    """What the CPU did, by phase, in one arm."""

    name: Annotated[str, "stable id: driver/scenario/arm, or all"]
    label: Annotated[str, "for people"]
    minimum_sample_count: Annotated[int, "samples that a printed share needs"]
    phases: Annotated[list[PhaseComposition], "phases with CPU time, in vocabulary order"]
    total: Annotated[list[Share], "all phases together, largest first; no interval"]
    estimate: Estimate = ""
