# SPDX-License-Identifier: GPL-2.0-only
"""The shape of a report, part: commands of level `flow`, split by samples and calibration."""

from dataclasses import dataclass, field
from typing import Annotated

from tlstax.analysis.model.tables import Measure


@dataclass(frozen=True)
class CommandPartLine:
    """One part of the CPU time of commands, estimated."""

    phase: Annotated[str, "record_read, command (executing) or record_write"]
    time: Annotated[Measure, "CPU time of the part in windows at level flow"]
    share: Annotated[float, "of the CPU time of commands"]
    per_command_ns: Annotated[float | None, "CPU time for each command; null: none ended"]
    exact_ns: Annotated[int, "in the calibration stretches, by probes"]
    exact_share: Annotated[float, "of the stretches' CPU time of commands"]
    sampled_share: Annotated[
        float | None, "the same share by the stretches' samples alone; null: there are none"
    ]


@dataclass(frozen=True)
class CommandSplit:
    """Reading, executing and answering commands, where no probe told them apart."""

    name: Annotated[str, "stable id, that of the ledger bar"]
    label: Annotated[str, "what was recorded, for people"]
    refusal: Annotated[str, "why there is no estimate; then there are no lines"]
    on_cpu_ns: Annotated[int, "CPU time of commands, exact"]
    command_count: Annotated[int, "commands"]
    sample_count: Annotated[int, "samples in commands"]
    stretch_count: Annotated[int, "calibration stretches"]
    stretch_ns: Annotated[int, "their length together"]
    note: Annotated[str, "how it was estimated, in sentences"] = ""
    lines: Annotated[list[CommandPartLine], "parts"] = field(default_factory=list)
