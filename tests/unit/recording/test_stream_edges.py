# SPDX-License-Identifier: GPL-2.0-only
"""What happened at the edge of a window is told, and counted where it belongs."""

import io
from contextlib import closing
from pathlib import Path

import pytest

from tlstax.analysis.rows.tables import load
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Frame, Gap, PhaseCount, Window
from tlstax.collectors.capture.vocabulary import PHASES
from tlstax.collectors.process.symbols import Symbolizer
from tlstax.collectors.process.target import Target
from tlstax.collectors.recording.proc_clocks import Clocks
from tlstax.collectors.recording.stream.replay import Replay
from tlstax.collectors.recording.stream_capture import StreamRows
from tlstax.collectors.recording.stream_recording import import_stream
from tlstax.tests.unit.recording.streams import SECOND, stream, struct, window


def with_a_suspend(parts: list[tuple[str, bytes]]) -> bytes:
    """The same recording, with a suspend of 8.2 s in its second window, and one before it began."""
    totals = {window(n, (n + 1) * SECOND): n for n in range(3)}
    made = [
        window(n, (n + 1) * SECOND, suspended_ns=SECOND + (n == 2) * 8_200_000_000)
        if (n := totals.get(part)) is not None
        else part
        for part in parts
    ]
    return stream(made)


def test_a_suspend_of_the_host_is_told_where_it_was(
    parts: list[tuple[str, bytes]], tmp_path: Path
) -> None:
    """Totals as the others: what was before the recording is no part of it."""
    capture = tmp_path / "a.tlstax"
    import_stream(io.BytesIO(with_a_suspend(parts)), "x.stream", capture, overwrite=False)
    with CaptureReader.open(capture) as reader:
        (gap,) = (row for row in reader.rows(Gap) if "suspended" in row.consequence)
    assert gap.subject == "times of day after window 2"
    assert gap.consequence.startswith("The host was suspended for 8.2 s")


@pytest.mark.parametrize(("target_id", "count"), [(1, 1), (2, 0)])
def test_a_suspend_is_told_of_the_server_and_not_of_each_client(
    parts: list[tuple[str, bytes]], tls_target: Target, target_id: int, count: int
) -> None:
    replay = Replay(io.BytesIO(with_a_suspend(parts)))
    with closing(Symbolizer(tls_target)) as symbolizer:
        rows = StreamRows(replay, tls_target, symbolizer, Clocks(replay), target_id)
        found = [row for of_window in iter(rows.next_window, None) for row in of_window[0]]
    assert sum(isinstance(row, Gap) for row in found) == count
    assert sum(isinstance(row, Window) for row in found) == 2


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


def test_code_that_was_mapped_later_is_named(
    parts: list[tuple[str, bytes]], tmp_path: Path
) -> None:
    """The recorder looks for it after the window that has a sample in it."""
    capture = tmp_path / "a.tlstax"
    ends = [number for number, (kind, _) in enumerate(parts) if kind == "WINDOW"]
    start, build_id, path = 0x7F0000000000, "12" * 20, b"/lib/later.so"
    mapped = struct(
        "mapping", start=start, end=start + 0x1000, file_offset=0x2000, inode=77,
        path_bytes=len(path), build_id_bytes=20, build_id=tuple(bytes.fromhex(build_id)),
    )  # fmt: skip
    sample = struct(
        "sample", phase=12, syscall=-1, user_stack=-1, kernel_stack=-1, user_ip=start + 16, count=3
    )
    made = [*parts]
    made.insert(ends[1] + 1, ("MAPPING", mapped + path))
    made.insert(ends[1], ("SAMPLE", sample))
    import_stream(io.BytesIO(stream(made)), "x.stream", capture, overwrite=False)
    with CaptureReader.open(capture) as reader:
        places = {(row.object, row.build_id, row.offset_bytes) for row in reader.rows(Frame)}
    assert ("/lib/later.so", build_id, 0x2010) in places
