# SPDX-License-Identifier: GPL-2.0-only
"""What a user reads of a budget: what is on when, which level, and why."""

import io
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Meta, Window
from tlstax.collectors.capture.writer import CaptureWriter
from tlstax.collectors.recording.by_recorder.live_stream import LivePart
from tlstax.collectors.recording.programs.expected_cost import EVENTS_PART, budget_summary
from tlstax.collectors.recording.stream.definition import definition
from tlstax.collectors.recording.stream.replay import Replay
from tlstax.collectors.recording.stream.totals import StreamError
from tlstax.collectors.remote.connection import Connection, LifeLine
from tlstax.collectors.remote.remote_recording import RemoteRecordings
from tlstax.collectors.remote.remote_stream import RemoteStream
from tlstax.tests.unit.recording.streams import stream, struct

ELSE = "--level sets another."
SECOND = 1_000_000_000
SOURCE = Path(__file__).resolve().parents[4] / "collectors/recorder/levels.c"


def budget(**values: Any) -> Any:
    """5 % of a CPU, everything all the time, at a level that was given."""
    usual: dict[str, Any] = {
        "share_ppm": 50_000,
        "base_ns": SECOND,
        "dense_ns": SECOND,
        "cycle_ns": SECOND,
    }
    usual |= {"dense": b"record", "light": b"none", "probes_ns": 10_000_000}
    return definition().layout("budget")(**usual | values)


def chosen(flow_ns: int, record_ns: int, **values: Any) -> str:
    """The summary where the recorder chose by these costs a second."""
    return budget_summary(
        budget(level_base_ns=SECOND, flow_ns=flow_ns, record_ns=record_ns, **values)
    )


def test_a_level_that_was_given_needs_no_reason() -> None:
    assert budget_summary(budget()) == (
        "Budget 5% of the server's CPU time: everything, all the time; expected cost 1.00%."
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            chosen(4_000_000, 20_000_000),
            " Level record: its events were expected to cost 2.00%. " + ELSE,
        ),
        (
            chosen(4_000_000, 20_000_000, dense_ns=SECOND // 10),
            " Level record: its events were expected to cost 2.00%; the trial cost more. " + ELSE,
        ),
        (
            chosen(20_000_000, 80_000_000, dense=b"flow"),
            " Level flow: its events were expected to cost 2.00%, those of level record 8.00%. "
            + ELSE,
        ),
        (
            chosen(44_000_000, 150_000_000, dense_ns=SECOND // 10),
            " Level record: even the events of level flow were expected to cost 4.40%. " + ELSE,
        ),
    ],
)
def test_the_reason_of_a_chosen_level_is_told(text: str, sentence: str) -> None:
    assert text.endswith(sentence)


def test_the_share_for_events_is_that_of_the_recorder() -> None:
    found = re.search(r"#define ROOM ([0-9.]+)", SOURCE.read_text())
    assert found is not None
    assert float(found[1]) == EVENTS_PART


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
    stream_.receive(part, 0, lambda: others)
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


def test_a_stream_that_cannot_be_read_ends_the_recording_there(
    parts: list[tuple[str, bytes]], tmp_path: Path
) -> None:
    """Else the other host's server stays probed for nobody, and what arrives fills the memory."""
    part = LivePart()
    part.take(stream([*parts[: second_window(parts)], ("BUDGET", STRANGE[0])]))
    made = RemoteStream(HERE, 4711, CaptureWriter.create(tmp_path / "a.tlstax"), lambda _: None)
    made.receive(part, 0, tuple)
    recordings = RemoteRecordings(HERE, lambda *_: None, lambda _: None)
    recordings._streams.append(made)
    stopped: list[bool] = []
    recordings._store(cast(LifeLine, SimpleNamespace(stop=lambda: stopped.append(True))))
    assert stopped
    assert made.early_ending.startswith("what arrives of it cannot be read")
    part.take(bytes(1 << 16))
    assert part.read(1) == b""
    made.close()
