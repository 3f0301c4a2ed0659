# SPDX-License-Identifier: GPL-2.0-only
"""The public-key operations of a recording by tlstax and by a second clock, compared.

Numbers of calls must be equal, and CPU times agree within 5 %, with or without the traps that only
one of the clocks contains. A recording whose CPU time differs from the CPU clock of the process by
more than its smallest row could bear is not judged.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tlstax.analysis.rows import closure, tables
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Probe

OPERATIONS: Final = ("sign", "keygen", "derive", "verify", "certificate")
ALLOWED: Final = 0.05
SUM: Final = "verify+cert."
APART_NS_MAX: Final = 30_000
"""Ends of a call that lie further apart are not explained by the traps between them."""


@dataclass(frozen=True)
class Reading:
    """What the second clock says of an operation. Traps are those that only one clock contains."""

    call_count: int
    cpu_ns: float
    clock_traps_ns: float = 0.0
    own_traps_ns: float = 0.0
    apart_ns: float = 0.0
    """How far apart both clocks see the end of a call, where that was measured."""


@dataclass(frozen=True)
class Line:
    """One operation, or the sum of two, by both clocks."""

    operation: str
    call_count: int
    own_count: int
    clock_ns: float
    own_ns: float
    clock_traps_ns: float = 0.0
    own_traps_ns: float = 0.0
    judged: bool = True
    in_order: bool = True
    """False where the parts of a sum contradict each other."""
    apart_ns: float = 0.0
    """How far apart both clocks see the end of a call, where that was measured."""

    @property
    def difference(self) -> float:
        """How much more tlstax says, as a share."""
        return self.own_ns / self.clock_ns - 1 if self.clock_ns else 0.0

    @property
    def unexplained(self) -> float:
        """The same without the traps that only one of the clocks contains."""
        left_ns = max(1.0, self.clock_ns - self.clock_traps_ns)
        return (self.own_ns - self.own_traps_ns) / left_ns - 1

    @property
    def agrees(self) -> bool:
        """Equal counts, and times within the limit; true of a line that is not judged."""
        by_traps = abs(self.unexplained) <= ALLOWED and self.apart_ns <= APART_NS_MAX
        near = abs(self.difference) <= ALLOWED or by_traps
        return not self.judged or (self.call_count == self.own_count and near and self.in_order)


@dataclass(frozen=True)
class Recording:
    """What a capture says of the operations, and how far its CPU time is to be trusted."""

    count: Mapping[str, int]
    cpu_ns: Mapping[str, int]
    probes: tuple[Probe, ...] = ()
    losses: Mapping[str, int] = field(default_factory=dict)
    closure_ns: int = 0
    """CPU time minus what the CPU clock of the process says, over windows with operations."""
    steal_ns: int = 0
    """What the hypervisor took from the host meanwhile."""

    @property
    def ends_outside(self) -> Mapping[str, int]:
        """How often the end of each operation was seen in a caller of the function."""
        return self._hits(inside=False)[0]

    @property
    def traps_ns(self) -> Mapping[str, int]:
        """Calibrated cost of the probes that a clock around the functions contains, and tlstax not.

        Of a hit within the function: all. tlstax's own time contains the end of its entry's trap
        and the beginning of its exit's: where the exit is in a caller, that makes up for the
        entry, which the clock contains.
        """
        inside, outside = self._hits(inside=True)[1], self._hits(inside=False)[1]
        return {name: max(0, inside[name] - outside[name]) for name in inside}

    def _hits(self, *, inside: bool) -> tuple[Counter[str], Counter[str]]:
        """Hits of probes in the functions, or of those in their callers, and what they took."""
        entered = {(one.boundary, one.function) for one in self.probes if one.event == "enter"}
        count: Counter[str] = Counter()
        cost_ns: Counter[str] = Counter()
        for probe in self.probes:
            if ((probe.boundary, probe.function) in entered) == inside:
                operation = probe.boundary.split("_")[0]
                count[operation] += probe.hits_count
                cost_ns[operation] += round(probe.hits_count * (probe.cost_ns or 0.0))
        return count, cost_ns


def read_recording(capture: Path) -> Recording:
    """The operations of a capture."""
    with CaptureReader.open(capture) as reader:
        rows = tables.load(reader)
        probes = tuple(reader.rows(Probe))
    count: Counter[str] = Counter()
    cpu_ns: Counter[str] = Counter()
    losses: Counter[str] = Counter()
    for row in rows.phase_counts:
        count[row.phase] += row.ended_count
    for part in rows.ledger:
        cpu_ns[part.phase] += part.time_ns if part.state == "on_cpu" else 0
    for loss in rows.losses:
        losses[loss.kind] += loss.lost_count
    used = {part.window_id for part in rows.ledger if part.phase in OPERATIONS}
    rows.process_clocks = [row for row in rows.process_clocks if row.window_id in used]
    whole = next(iter(closure.observed(rows)), closure.Sums(None))
    over_ns = whole.on_cpu_ns - whole.handed_ns - whole.process_cpu_ns
    return Recording(count, cpu_ns, probes, +losses, over_ns, whole.host_steal_ns)


def compare(
    recording: Recording, readings: Mapping[str, Reading], inner_pass: bool = True
) -> list[Line]:
    """The operations that either clock saw.

    `inner_pass`: whether the second clock sees the signature checks within a chain check. Where
    it does not, it files them under the chain check, and only the sum of both is judged.
    """
    lines = []
    for name in OPERATIONS:
        reading = readings.get(name, Reading(0, 0.0))
        if reading.call_count or recording.count.get(name, 0):
            lines.append(
                Line(
                    name, reading.call_count, recording.count.get(name, 0),
                    reading.cpu_ns, recording.cpu_ns.get(name, 0),
                    reading.clock_traps_ns, reading.own_traps_ns,
                    inner_pass or name not in ("verify", "certificate"),
                    apart_ns=reading.apart_ns,
                )
            )  # fmt: skip
    parts = {line.operation: line for line in lines if not line.judged}
    if len(parts) == 2:
        lines.append(_sum(parts["verify"], parts["certificate"]))
    return lines


def _sum(verify: Line, certificate: Line) -> Line:
    """Both as one, for each chain check."""
    return Line(
        SUM, certificate.call_count, certificate.own_count,
        verify.clock_ns + certificate.clock_ns, verify.own_ns + certificate.own_ns,
        verify.clock_traps_ns + certificate.clock_traps_ns,
        verify.own_traps_ns + certificate.own_traps_ns,
        in_order=verify.own_count >= verify.call_count,
    )  # fmt: skip


def why_unfit(recording: Recording, lines: list[Line], has_steal: bool = False) -> str:
    """Why the recording cannot judge; empty if it can.

    `has_steal`: whether the second clock, too, counts what the hypervisor took.
    """
    lost = {kind: n for kind, n in recording.losses.items() if "handshake" in kind}
    if lost:
        return f"handshakes were lost ({', '.join(lost)})"
    judged = [line for line in lines if line.judged]
    if not judged:
        return "no operation was seen"
    least = min(judged, key=lambda line: line.clock_ns)
    over_ns = recording.closure_ns
    if has_steal and over_ns > 0:
        over_ns = max(0, over_ns - recording.steal_ns)
    if abs(over_ns) > ALLOWED * least.clock_ns:
        return (
            f"its CPU time differs from the process's clock by {over_ns / 1e3:+,.0f} us,"
            f" {ALLOWED:.0%} of {least.operation} is {ALLOWED * least.clock_ns / 1e3:,.0f} us"
        )
    return ""
