# SPDX-License-Identifier: GPL-2.0-only
"""What was recorded: the capture, its targets and the runs of an experiment."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from tlstax.analysis.document import health
from tlstax.analysis.model.report import CaptureFacts, RunLine, TargetFacts
from tlstax.analysis.rows import coverage
from tlstax.analysis.rows.samples import columns_of
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.vocabulary import LEDGER_LEVELS

_SERVER_ID: Final = 1
_PID_DIGITS: Final = 10


def runs(tables: Tables) -> list[RunLine]:
    """One line for each run of an experiment, in order of time."""
    windows = {window.window_id: window.run_id for window in tables.windows}
    shakes: dict[int | None, int] = {}
    for row in tables.phase_counts:
        if row.phase == "handshake":
            run_id = windows.get(row.window_id)
            shakes[run_id] = shakes.get(run_id, 0) + row.ended_count
    lines = []
    for run in sorted(tables.runs, key=lambda run: run.start_ns):
        duration_ns = max(0, run.end_ns - run.start_ns)
        rate = run.operation_count / duration_ns * 1e9 if duration_ns else 0.0
        lines.append(
            RunLine(
                run_id=run.run_id,
                label=f"{run.driver}/{run.scenario}/{run.arm}",
                round=run.round,
                server_start=run.server_start,
                duration_ns=duration_ns,
                threads_count=run.threads_count,
                connection_count=run.connection_count,
                operation_count=run.operation_count,
                operations_per_second=rate,
                client_mean_ns=run.client_mean_ns,
                client_p95_ns=run.client_p95_ns,
                handshake_count=shakes.get(run.run_id, 0),
                proof=_proof(run.proof),
            )
        )
    return lines


def _proof(text: str) -> dict[str, Any]:
    """The proof of a run; text that is no JSON object is kept as it is."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    return value if isinstance(value, dict) else {"text": text}


def of_capture(tables: Tables) -> CaptureFacts:
    """What was recorded, when and of whom."""
    shakes = coverage.cover(tables.windows, coverage.HANDSHAKE_LEVELS)
    return CaptureFacts(
        recorded_at=_recorded_at(tables.meta),
        duration_ns=health.duration_ns(tables),
        window_count=len(tables.windows),
        thread_count=len(tables.threads),
        handshake_count=len(tables.handshakes) if shakes.measured_ns or shakes.is_whole else None,
        sample_count=columns_of(tables.samples).total,
        targets=[
            TargetFacts(
                row.pid,
                row.exe,
                f"{row.server} {row.server_version}",
                f"{row.tls_library} {row.tls_version} ({row.tls_linkage})",
                row.build_id,
                row.own_pid,
                _later_pids(tables.meta) if row.target_id == _SERVER_ID else [],
            )
            for row in tables.targets
        ],
        meta=dict(sorted(tables.meta.items())),
        measured_ns=coverage.cover(tables.windows, LEDGER_LEVELS).measured_ns,
        levels=coverage.time_by_level(tables.windows),
    )


def _later_pids(meta: Mapping[str, str]) -> list[int]:
    """Those of the server's starts after the first one."""
    words = meta.get("server_pids", "").split()[1:]
    return [int(word) for word in words if word.isdecimal() and len(word) <= _PID_DIGITS]


def _recorded_at(meta: Mapping[str, str]) -> str:
    """UTC at the start, or unknown."""
    try:
        seconds = int(meta.get("created_wall_ns", "")) // 1_000_000_000
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return "unknown"
