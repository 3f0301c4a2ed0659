# SPDX-License-Identifier: GPL-2.0-only
"""Splits the CPU time of commands at level `flow` into reading, executing and answering.

Level `flow` has one phase for all of them. Samples in it tell reading and answering by the
functions on their stacks (of the TLS library, or of the server's network layer) or by the system
call. Calibration stretches tell how much of either a command really took (`calibrated`). Without
enough stretches nothing is estimated.
"""

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from tlstax.analysis.classify.composition import Stacks
from tlstax.analysis.classify.taxonomy import Sample
from tlstax.analysis.model.command_split import CommandPartLine, CommandSplit
from tlstax.analysis.quantities import number_text, share_text, time_text
from tlstax.analysis.rows import operations
from tlstax.analysis.rows.samples import columns_of
from tlstax.analysis.rows.tables import Group, Tables
from tlstax.analysis.statistics.calibrated import LEAST_STRETCHES, Stretch, part_of
from tlstax.analysis.statistics.medians import Estimate
from tlstax.collectors.capture.syscalls import syscall_name

READ: Final = "record_read"
EXECUTE: Final = "command"
WRITE: Final = "record_write"
PARTS: Final = (READ, EXECUTE, WRITE)
SHIFT: Final = 0.025
"""Share of the commands' CPU time by which the probes of stretches may shift a part.

Answering was 1.2 to 2.1 percentage points more in stretches than with probes on all the time
(docs/measurements/flow.md); no number of stretches makes that smaller, so intervals include it.
"""
_FUNCTIONS: Final = {
    READ: re.compile(r"(?:wolf|ya)?SSL_(?:read|peek)|(?:my_)?net_read|vio_(?:ssl_)?read"),
    WRITE: re.compile(
        r"(?:wolf|ya)?SSL_write|net_(?:real_write|write_(?:packet|raw))|vio_(?:ssl_)?write"
    ),
}
_CALLS: Final = {
    READ: frozenset({"recvfrom", "recvmsg"}),
    WRITE: frozenset({"sendto", "sendmsg"}),
}
_NO_STRETCHES: Final = (
    "Reading, executing and answering commands are one phase: the recording has no calibration "
    "stretch. `tlstax attach --level flow --calibrate` takes them as far as the budget has room."
)
_NOTHING_DONE: Final = (
    "Reading, executing and answering commands are one phase: the calibration stretches have no "
    "CPU time of commands."
)


def part_of_sample(sample: Sample) -> str:
    """What a sample in a command belongs to; executing, where nothing says else."""
    call = syscall_name(sample.syscall) if sample.syscall >= 0 else ""
    for part, calls in _CALLS.items():
        if call in calls:
            return part
    for frame in sample.user:
        for part, functions in _FUNCTIONS.items():
            if functions.match(frame.symbol):
                return part
    return EXECUTE


class _Sums:
    """What the windows at level `flow` of a group hold of commands, by window."""

    def __init__(self, tables: Tables, window_ids: Collection[int], stacks: Stacks) -> None:
        self.windows = {
            window.window_id: window.end_ns - window.start_ns
            for window in tables.windows
            if window.level == "flow" and window.window_id in window_ids
        }
        self.exact: dict[int, Counter[str]] = {}
        for part in tables.command_parts:
            if part.window_id in self.windows:
                self.exact.setdefault(part.window_id, Counter())[part.phase] += part.on_cpu_ns
        self.on_cpu_ns: Counter[int] = Counter()
        for row in tables.ledger:
            if (row.phase, row.state) == (EXECUTE, "on_cpu") and row.window_id in self.windows:
                self.on_cpu_ns[row.window_id] += row.time_ns
        self.commands: Counter[int] = Counter()
        for count in tables.phase_counts:
            if count.phase == EXECUTE and count.window_id in self.windows:
                self.commands[count.window_id] += count.ended_count
        self.hits: dict[str, Counter[int]] = {part: Counter() for part in PARTS}
        samples = columns_of(tables.samples)
        labels = {
            place: PARTS.index(part_of_sample(stacks.sample_at(place)))
            for place in samples.places
            if place[0] == EXECUTE
        }
        for window_id, counts in samples.by_window(labels).items():
            if window_id in self.windows:
                for label, sample_count in counts.items():
                    self.hits[PARTS[label]][window_id] += sample_count

    def estimate(self, part: str) -> Estimate | None:
        """The time of this part in all windows."""
        stretches = [
            Stretch(self.on_cpu_ns[window_id], exact[part], self.hits[part][window_id])
            for window_id, exact in self.exact.items()
        ]
        whole_ns = self.on_cpu_ns.total()
        found = part_of(stretches, whole_ns, self.hits[part].total())
        return None if found is None else _with_shift(found, whole_ns)


def split(tables: Tables, part: Group, stacks: Stacks) -> CommandSplit | None:
    """The parts of the commands of a group; None where it has none at level `flow`."""
    sums = _Sums(tables, part.window_ids, stacks)
    if not sums.on_cpu_ns.total():
        return None
    found = CommandSplit(
        part.name,
        part.label,
        _refusal(len(sums.exact)),
        sums.on_cpu_ns.total(),
        sums.commands.total(),
        sum(counts.total() for counts in sums.hits.values()),
        len(sums.exact),
        sum(sums.windows[window_id] for window_id in sums.exact),
    )
    return found if found.refusal else _with_lines(found, sums)


def _refusal(stretch_count: int) -> str:
    if not stretch_count:
        return _NO_STRETCHES
    if stretch_count >= LEAST_STRETCHES:
        return ""
    return (
        f"Reading, executing and answering commands are one phase: the recording has "
        f"{stretch_count} calibration stretches, and an estimate needs {LEAST_STRETCHES}. Record "
        "for longer."
    )


def _with_lines(found: CommandSplit, sums: _Sums) -> CommandSplit:
    read, write = (sums.estimate(part) for part in (READ, WRITE))
    if read is None or write is None:
        return replace(found, refusal=_NOTHING_DONE)
    executing = _rest(found.on_cpu_ns, read, write)
    lines = [_line(sums, found, *one) for one in zip(PARTS, (read, executing, write), strict=True)]
    note = (
        f"Estimated from {number_text(found.sample_count)} samples and "
        f"{found.stretch_count} calibration stretches ({time_text(found.stretch_ns)}) in which "
        f"probes told the parts; intervals include {share_text(SHIFT)} of the time, which the "
        "probes may shift; waits are not split."
    )
    return replace(found, note=note, lines=lines)


def _with_shift(found: Estimate, whole_ns: int) -> Estimate:
    """The interval with what the probes of stretches may shift."""
    if found.low is None or found.high is None:
        return found
    low, high = found.low - SHIFT * whole_ns, found.high + SHIFT * whole_ns
    return found._replace(low=max(0.0, low), high=min(float(whole_ns), high))


def _rest(whole_ns: int, *others: Estimate) -> Estimate:
    """What the others leave; their errors may go the same way."""
    value, low, high = (
        max(0.0, whole_ns - sum(one[at] or 0.0 for one in others)) for at in range(3)
    )
    return Estimate(value, high, low, others[0].unit_count)


def _line(sums: _Sums, found: CommandSplit, part: str, estimate: Estimate) -> CommandPartLine:
    exact_ns = sum(exact[part] for exact in sums.exact.values())
    known_ns = sum(exact.total() for exact in sums.exact.values())
    hits = {name: sum(counts[one] for one in sums.exact) for name, counts in sums.hits.items()}
    sampled = sum(hits.values())
    return CommandPartLine(
        part,
        estimate.measure(),
        estimate.value / found.on_cpu_ns,
        operations.per_operation(estimate.value, found.command_count),
        exact_ns,
        exact_ns / known_ns if known_ns else 0.0,
        hits[part] / sampled if sampled else None,
    )
