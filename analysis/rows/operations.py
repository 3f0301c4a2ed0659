# SPDX-License-Identifier: GPL-2.0-only
"""What one operation of a driver is, and how often each thing happened: the denominators."""

from collections.abc import Collection, Iterable

from tlstax.collectors.capture.schema import PhaseCount, Run
from tlstax.collectors.capture.vocabulary import PHASES

_CONNECTS_EVERY_TIME = 0.9
_SINGLE_QUERY = ("point_select", "random_points", "random_ranges", "bulk_result")


def operation_name(runs: Collection[Run]) -> str:
    """What the driver counts: connection, query or transaction; '' without runs.

    A driver that opens a connection for (almost) every operation measures connections, whatever
    it asks on them.
    """
    if not runs:
        return ""
    connections = sum(run.connection_count for run in runs)
    operations = sum(run.operation_count for run in runs)
    if operations and connections >= _CONNECTS_EVERY_TIME * operations:
        return "connection"
    if all(run.scenario.endswith(_SINGLE_QUERY) for run in runs):
        return "query"
    return "transaction"


def per_operation(time_ns: float, operation_count: int) -> float | None:
    """Time per operation, or None where there were none."""
    return time_ns / operation_count if operation_count else None


def phase_counts(rows: Iterable[PhaseCount], window_ids: Collection[int]) -> dict[str, int]:
    """How often each phase ended in these windows; phases that never did are absent."""
    counts: dict[str, int] = {}
    for row in rows:
        if row.window_id in window_ids:
            counts[row.phase] = counts.get(row.phase, 0) + row.ended_count
    return {phase: counts[phase] for phase in PHASES if counts.get(phase)}
