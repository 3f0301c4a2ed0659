# SPDX-License-Identifier: GPL-2.0-only
"""What arrives of another host: what no recorder sends ends it, and a budget is told in time."""

import io
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Meta, Window
from tlstax.collectors.capture.writer import CaptureWriter
from tlstax.collectors.recording.by_recorder.live_stream import LivePart
from tlstax.collectors.recording.stream.replay import Replay
from tlstax.collectors.recording.stream.totals import StreamError
from tlstax.collectors.remote.connection import Connection
from tlstax.collectors.remote.remote_stream import RemoteStream
from tlstax.tests.unit.recording.streams import stream, struct

STRANGE = [
    b"\0" * 8,
    struct("budget", share_ppm=5000, dense=b"record", light=b"none"),
    struct("budget", share_ppm=5000, base_ns=1, cycle_ns=1, dense=b"much", light=b"none"),
]
BUDGET = struct("budget", share_ppm=5000, base_ns=1, cycle_ns=1, dense=b"record", light=b"none")
HERE = cast(
    Connection,
    SimpleNamespace(destination=SimpleNamespace(name="db1"), said=lambda: "it said nothing"),
)


def received(
    parts: list[tuple[str, bytes]], capture: Path, told: list[str], others: tuple[int, ...] = ()
) -> tuple[RemoteStream, LivePart]:
    """What a capture is made of when these frames have arrived."""
    stream_ = RemoteStream(HERE, 4711, CaptureWriter.create(capture), told.append)
    part = LivePart()
    part.take(stream(parts))
    stream_.receive(part, 0, others)
    stream_.store()
    return stream_, part


@pytest.mark.parametrize("content", STRANGE)
def test_a_strange_budget_is_no_stream(content: bytes) -> None:
    with pytest.raises(StreamError, match="no recorder writes"):
        Replay(io.BytesIO(stream([("BUDGET", content)])))


@pytest.mark.parametrize("content", STRANGE)
def test_a_strange_budget_ends_the_recording(
    content: bytes, parts: list[tuple[str, bytes]], tmp_path: Path
) -> None:
    trial = second_window(parts)
    made, _ = received([*parts[:trial], ("BUDGET", content)], tmp_path / "a.tlstax", [])
    with pytest.raises(TlstaxError, match="no recorder writes") as raised:
        made.finish()
    assert raised.value.exit_code == ExitCode.IO
    with CaptureReader.open(tmp_path / "a.tlstax") as reader:
        assert len(list(reader.rows(Window))) == 1, "what came before it is there"


def test_a_budget_is_told_before_the_window_behind_it(
    parts: list[tuple[str, bytes]], tmp_path: Path
) -> None:
    told: list[str] = []
    trial = second_window(parts)
    made, part = received([*parts[:trial], ("BUDGET", BUDGET)], tmp_path / "a", told, (7,))
    assert told[0] == "attached to 4711 on db1"
    (summary,) = told[1:]
    assert summary.startswith("process 4711: Budget 0.5%")
    whole = stream([*parts[:trial], ("BUDGET", BUDGET), *parts[trial:]])
    part.take(whole[len(stream([*parts[:trial], ("BUDGET", BUDGET)])) :])
    part.is_over = True
    made.finish()
    assert len(told) == 2
    with CaptureReader.open(tmp_path / "a") as reader:
        assert len(list(reader.rows(Window))) == 2
        assert Meta("recorded_with", "7") in list(reader.rows(Meta))


def second_window(parts: list[tuple[str, bytes]]) -> int:
    """Behind the frame that ends the first window; that of the totals at the start is none."""
    return [number for number, (kind, _) in enumerate(parts) if kind == "WINDOW"][1] + 1
