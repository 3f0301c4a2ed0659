# SPDX-License-Identifier: GPL-2.0-only
"""A recording at level `flow` as one with records: its commands split by their samples.

The split is that of the rules (`flow_commands`): stacks and system calls tell what a sample belongs
to, and the calibration stretches correct their shares where there are enough.
"""

from dataclasses import replace

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.classify import command_split
from tlstax.analysis.classify.composition import Stacks
from tlstax.analysis.classify.taxonomy import Taxonomy
from tlstax.analysis.compare.selections import RecordingSelection
from tlstax.analysis.findings import flow_commands
from tlstax.analysis.findings.flow_commands import TDE, Windows
from tlstax.analysis.rows import ledger
from tlstax.analysis.rows.samples import columns_of
from tlstax.collectors.capture.schema import Ledger

_COMMAND = ("command", "on_cpu")


def is_split(side: RecordingSelection) -> bool:
    """Whether all of its ledger is of level `flow`, so that with_records() splits it."""
    return side.windows_levels == {"flow"}


def with_records(side: RecordingSelection, taxonomy: Taxonomy) -> RecordingSelection:
    """The side with the phases that samples tell; the same one where records have their own.

    Raises TlstaxError (CAPTURE) where most samples of commands have no stack.
    """
    if not is_split(side):
        return side
    tables = side.tables
    _refuse_without_stacks(side)
    stacks = Stacks(tables.frames, tables.stacks, tables.inlined)
    before = Windows(ledger.by_window(tables.ledger), {}, {})
    after = flow_commands.split(before, side.group, tables, stacks, taxonomy)
    rows: list[Ledger] = []
    for row in tables.ledger:
        was, now = before.sums[row.window_id], after.sums[row.window_id]
        if (row.phase, row.state) != _COMMAND or now is was:
            rows.append(row)
            continue
        for name in (*command_split.PARTS, TDE):
            key = name, "on_cpu"
            part_ns = now.get(key, 0) - (was.get(key, 0) if key != _COMMAND else 0)
            if part_ns > 0:
                time_ns = round(row.time_ns * part_ns / was[_COMMAND])
                rows.append(row._replace(phase=name, time_ns=time_ns))
    at_flow = flow_commands.windows_at_flow(side.group, tables)
    samples = columns_of(tables.samples).of_windows(at_flow)
    samples = samples.in_phases(lambda place: flow_commands.phase_of(place, stacks))
    return replace(side, tables=replace(tables, ledger=rows, samples=samples))


def _refuse_without_stacks(side: RecordingSelection) -> None:
    samples = [row for row in side.tables.samples if row.phase == _COMMAND[0]]
    without = sum(row.sample_count for row in samples if row.user_stack_id is None)
    if 2 * without > sum(row.sample_count for row in samples):
        raise TlstaxError(
            f"cannot tell what {side.label} would cost without TLS",
            "most CPU samples of its commands have no stack, so that encrypting is not told from "
            "executing queries",
            "Record with stacks of user code, or at --level record",
            ExitCode.CAPTURE,
        )
