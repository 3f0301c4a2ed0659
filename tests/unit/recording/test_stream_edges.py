# SPDX-License-Identifier: GPL-2.0-only
"""What happened at the edge of a window is told, and counted where it belongs."""

import io
from pathlib import Path

from tlstax.analysis.rows.tables import load
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Gap, PhaseCount
from tlstax.collectors.capture.vocabulary import PHASES
from tlstax.collectors.recording.stream_capture import import_stream
from tlstax.tests.unit.recording.streams import SECOND, stream, struct, window


def test_a_suspend_of_the_host_is_told_where_it_was(
    parts: list[tuple[str, bytes]], tmp_path: Path
) -> None:
    """Totals as the others: what was before the recording is no part of it."""
    capture = tmp_path / "a.tlstax"
    totals = {window(n, (n + 1) * SECOND): n for n in range(3)}
    made = [
        window(n, (n + 1) * SECOND, suspended_ns=SECOND + (n == 2) * 8_200_000_000)
        if (n := totals.get(part)) is not None
        else part
        for part in parts
    ]
    import_stream(io.BytesIO(stream(made)), "x.stream", capture, overwrite=False)
    with CaptureReader.open(capture) as reader:
        (gap,) = (row for row in reader.rows(Gap) if "suspended" in row.consequence)
    assert gap.subject == "times of day after window 2"
    assert gap.consequence.startswith("The host was suspended for 8.2 s")


def test_a_command_that_goes_on_after_its_window_is_taken_back(
    parts: list[tuple[str, bytes]], tmp_path: Path
) -> None:
    """It was counted when it received from its client, as the next one might."""
    capture = tmp_path / "a.tlstax"
    ends = [number for number, (kind, _) in enumerate(parts) if kind == "WINDOW"]
    bucket = {"phase": PHASES.index("command"), "bucket": 100}
    made = [*parts]
    for at, count in ((ends[2], 1), (ends[1], 2)):
        made.insert(at, ("LATENCY", struct("latency", **bucket, count=count)))
    import_stream(io.BytesIO(stream(made)), "x.stream", capture, overwrite=False)
    with CaptureReader.open(capture) as reader:
        counted = [row.ended_count for row in reader.rows(PhaseCount)]
        tables = load(reader)
    assert counted == [2, -1]
    assert [(row.window_id, row.ended_count) for row in tables.latencies] == [(1, 1)]
