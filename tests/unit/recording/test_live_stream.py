# SPDX-License-Identifier: GPL-2.0-only
"""A stream that is read while it is written: nothing waits, nothing is read twice or too early."""

import io
import os
import random
from collections.abc import Iterator

import pytest

from tlstax.collectors.recording.by_recorder.live_stream import LiveStream
from tlstax.collectors.recording.stream.frames import Reading, read_frames
from tlstax.tests.unit.recording.streams import slot, stream, struct, window

WHOLE = stream(
    [
        ("START", struct("start", pid=7)),
        *[
            part
            for number in range(5)
            for part in (
                ("SLOT", slot(7, {number: number}, number)),
                ("KERNEL_NAME", struct("kernel_name", address=number) * number),
                window(number, 1000 * number),
            )
        ],
        ("END", struct("end", windows_count=5)),
    ]
)


@pytest.fixture
def pipe() -> Iterator[tuple[LiveStream, int]]:
    """A live stream, and the descriptor that its writer has."""
    reading, writing = os.pipe()
    live = LiveStream(reading)
    yield live, writing
    live.close()


@pytest.mark.parametrize("seed", range(20))
def test_frames_are_those_of_the_whole_stream(pipe: tuple[LiveStream, int], seed: int) -> None:
    """However its bytes arrive; and no read comes back short before the end."""
    live, writing = pipe
    chance, at = random.Random(seed), 0
    reading = Reading()
    frames = read_frames(live, reading)
    found = []
    while not live.is_over:
        part = WHOLE[at : at + chance.randint(1, 700)]
        at += len(part)
        if part:
            os.write(writing, part)
        elif writing >= 0:
            os.close(writing)
            writing = -1
        live.fill()
        while live.windows_count:
            while (frame := next(frames)).type != 13:
                found.append(frame)
            found.append(frame)
            live.window_taken()
    found += frames
    assert found == list(read_frames(io.BytesIO(WHOLE), Reading()))
    assert reading.why_ended == ""


def test_nothing_is_readable_before_a_window_is_whole(pipe: tuple[LiveStream, int]) -> None:
    live, writing = pipe
    assert not live.fill()
    for at in range(0, len(WHOLE), 100):
        os.write(writing, WHOLE[at : at + 100])
        live.fill()
        if live.is_readable_to_a_window:
            break
    assert live.windows_count == 1
    assert at > 100
    os.close(writing)


def test_what_is_no_stream_is_left_to_the_reader_of_frames(pipe: tuple[LiveStream, int]) -> None:
    """It says what is wrong; waiting for a window would never end."""
    live, writing = pipe
    os.write(writing, b"this is no stream at all, but some text of a program")
    os.close(writing)
    live.fill()
    assert live.is_readable_to_a_window
    reading = Reading()
    assert list(read_frames(live, reading)) == []
    assert reading.why_ended == "it is no stream"


def test_a_stream_that_was_cut_is_readable_up_to_there(pipe: tuple[LiveStream, int]) -> None:
    live, writing = pipe
    os.write(writing, WHOLE[:-50])
    os.close(writing)
    while live.fill():
        pass
    assert live.is_over
    reading = Reading()
    count = len(list(read_frames(live, reading)))
    assert count == len(list(read_frames(io.BytesIO(WHOLE), Reading()))) - 1
    assert reading.why_ended == "it was cut inside a frame"
