# SPDX-License-Identifier: GPL-2.0-only
"""Recordings that do not tell what their server would spend without TLS, and why."""

from typing import Final, NamedTuple

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.compare.replicates import Replicates
from tlstax.analysis.compare.selections import RecordingSelection
from tlstax.analysis.quantities import share_text, time_text
from tlstax.analysis.rows import coverage, ledger
from tlstax.analysis.statistics.sources import ErrorSources
from tlstax.analysis.statistics.units import Floats
from tlstax.collectors.capture.vocabulary import HANDSHAKE_PHASES

LEAST_SAMPLES: Final = 200
"""CPU samples in records below which encrypting is not told from copying, ..."""
SMALL_RECORDS: Final = 0.05
"""... unless records take less than this share of the CPU time, ..."""
SMALL_COMMANDS: Final = 0.2
"""... at level flow with all else that commands do."""
BURSTS: Final = 0.05
"""Share of the CPU time by which what TLS takes in all may lie outside of what its units tell."""


class Whole(NamedTuple):
    """CPU time of the server for an operation, in ns, over the whole recording."""

    least_ns: float
    """Handshakes and TLS in records."""
    now_ns: float
    """All of it."""


def refuse_bursts(
    what: str, whole: Whole, now: Floats, least: Floats, sources: ErrorSources
) -> None:
    """Raises TlstaxError (CAPTURE) where the middle of the units is no picture of the whole.

    `what` says what cannot be told then, for people. Where all clients connect anew within a few
    blocks of many, the middle block has no handshake, and neither has its interval.
    """
    low, high = sources.interval(least, {})
    apart_ns = max(low - whole.least_ns, whole.least_ns - high)
    if apart_ns <= BURSTS * max(whole.now_ns, float(now[0])):
        return
    raise TlstaxError(
        what,
        f"TLS comes in bursts: handshakes and records take {time_text(whole.least_ns)} of an "
        f"operation over all of the recording, and {time_text(float(least[0]))} in the middle of "
        "its parts, whose bounds do not contain that",
        "Record a time in which clients connect as usual, or for longer",
        ExitCode.CAPTURE,
    )


def refuse_levels(side: RecordingSelection) -> None:
    """Raises TlstaxError (CAPTURE) where reading and writing are not told from executing."""
    counts = side.phase_counts
    if counts.get("command", 0) and not counts.get("record_write", 0):
        raise TlstaxError(
            f"cannot tell what {side.label} would cost without TLS",
            "it was recorded without the boundaries of records (--level command), so that "
            "encrypting is not told from executing queries",
            "Record at --level record or flow",
            ExitCode.CAPTURE,
        )


def refuse_unknown(
    side: RecordingSelection,
    base: Replicates,
    now: Floats,
    least: Floats,
    samples: int,
    *,
    was_split: bool,
) -> None:
    """Raises TlstaxError (CAPTURE) without TLS, or with too few samples of what records do."""
    totals = ledger.totals(coverage.scale(side.tables).ledger, side.group.window_ids)
    cpu = ledger.on_cpu(totals)
    shakes = sum(cpu.get(phase, 0) for phase in HANDSHAKE_PHASES)
    if not shakes and (side.group.arm == "plaintext" or not float(least[0])):
        raise TlstaxError(
            f"{side.label} shows no TLS",
            "it has no TLS handshake, and no CPU sample in ciphers or the TLS protocol",
            "Choose its TLS arm, or record for longer",
            ExitCode.CAPTURE,
        )
    # Of level flow, samples also tell how much of commands is records.
    phases = ("record_read", "record_write", *(("command",) if was_split else ()))
    records_ns = sum(cpu.get(phase, 0) for phase in phases)
    share = records_ns / float(base.operations[0]) / float(now[0])
    if samples < LEAST_SAMPLES and share > (SMALL_COMMANDS if was_split else SMALL_RECORDS):
        raise TlstaxError(
            f"cannot tell what {side.label} would cost without TLS",
            f"{'commands' if was_split else 'records'} take {share_text(share)} of the CPU time, "
            f"and {samples} CPU samples do not tell encrypting from copying there; "
            f"{LEAST_SAMPLES} are needed",
            "Record for longer, or with more samples a second (--hz)",
            ExitCode.CAPTURE,
        )
