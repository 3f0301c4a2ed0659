# SPDX-License-Identifier: GPL-2.0-only
"""What a recorder is asked to record."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tlstax.collectors.placement.model import FunctionPlan, Plan
from tlstax.collectors.preflight.safety import Safety
from tlstax.collectors.process.target import Target
from tlstax.collectors.recording.by_recorder.child import ChildTarget
from tlstax.collectors.recording.stream.plan_file import plan_file_text
from tlstax.collectors.recording.stream.tables_file import GrowingTables
from tlstax.collectors.recording.target_rows import SERVER_ID


class Recorded(NamedTuple):
    """What is recorded: a process, where its probes are, what preflight left out."""

    target: Target
    plan: Plan
    safety: Safety
    functions: FunctionPlan | None = None
    stretches: Plan | None = None
    target_id: int = SERVER_ID
    label: str = ""  # the name that reports show
    recorder: Path | None = None  # another executable than the one that ships


class Asked(NamedTuple):
    """A process that a recorder is to record: what of it, with which options and tables."""

    recorded: Recorded
    arguments: Sequence[str]
    tables: "GrowingTables | bytes | None" = None  # unwind tables; they grow if they can

    @property
    def of_child(self) -> ChildTarget:
        """What the recorder is told."""
        of, tables = self.recorded, self.tables
        text = plan_file_text(of.target, of.plan, of.safety, of.functions, of.stretches)
        content = tables.content() if isinstance(tables, GrowingTables) else tables
        return ChildTarget(text, content, self.arguments)
