# SPDX-License-Identifier: GPL-2.0-only
"""A stream that is read while it is written: nothing waits, nothing is read twice or too early."""

import io
import os
import random
from collections.abc import Iterator

import pytest

from tlstax.collectors.recording.by_recorder.live_stream import LiveStream
from tlstax.collectors.recording.stream.frames import Reading, read_frames, targets_of
from tlstax.tests.unit.recording.streams import frame, slot, stream, struct, window

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
    found, windows_count = [], 0
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
            windows_count += 1
        assert writing >= 0 or windows_count == 5, "each is readable when it has arrived"
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


PIDS = (7, 8, 9)


def mixed(seed: int) -> tuple[bytes, list[bytes]]:
    """Streams of some targets in any order of their frames, and that of each alone."""
    chance = random.Random(seed)
    waiting = [
        [
            frame(number, *part, target=target)
            for number, part in enumerate(
                [
                    ("START", struct("start", pid=pid)),
                    *(window(number, 1000 * number) for number in range(pid)),
                    ("END", struct("end", windows_count=pid)),
                ]
            )
        ]
        for target, pid in enumerate(PIDS)
    ]
    alone = [b"".join(frames) for frames in waiting]
    whole = b""
    while any(waiting):
        whole += chance.choice([frames for frames in waiting if frames]).pop(0)
    return whole, alone


@pytest.mark.parametrize("seed", range(10))
def test_each_target_has_its_own_frames(seed: int) -> None:
    whole, alone = mixed(seed)
    assert targets_of(io.BytesIO(whole)) == {pid: at for at, pid in enumerate(PIDS)}
    for target, own in enumerate(alone):
        reading = Reading(target=target)
        found = list(read_frames(io.BytesIO(whole), reading))
        assert found == list(read_frames(io.BytesIO(own), Reading(target=target)))
        assert (len(found), reading.why_ended) == (PIDS[target] + 2, "")


@pytest.mark.parametrize("seed", range(10))
def test_a_pipe_is_divided_among_targets(seed: int) -> None:
    """However its bytes arrive; one whose end has arrived is over before the pipe is."""
    whole, alone = mixed(seed)
    reading, writing = os.pipe()
    live = LiveStream(reading, others_count=len(PIDS) - 1)
    chance, at = random.Random(seed), 0
    while at < len(whole):
        size = chance.randint(1, 300)
        os.write(writing, whole[at : at + size])
        at += size
        assert live.fill()
    assert [part.windows_count for part in live.parts] == list(PIDS)
    assert [part.is_over for part in live.parts] == [True] * len(PIDS)
    was_closed = live.is_closed
    assert [part.read(len(whole)) for part in live.parts] == alone
    os.close(writing)
    live.fill()
    assert (was_closed, live.is_closed) == (False, True)
    live.close()


def test_one_that_was_left_out_is_over_before_the_pipe_is() -> None:
    """Its only frame is why; a failure behind windows is followed by an end."""
    refused = struct("error", exit_code=4, text=b"no such process")
    ended = struct("error", exit_code=7, text=b"nothing fits")
    frames = [
        frame(0, "ERROR", refused, target=1),
        frame(0, "START", struct("start", pid=7)),
        frame(1, *window(1, 1000)),
        frame(2, "ERROR", ended),
    ]
    reading, writing = os.pipe()
    live = LiveStream(reading, others_count=1)
    os.write(writing, b"".join(frames))
    assert live.fill()
    assert [part.is_over for part in live.parts] == [False, True]
    assert [part.failure for part in live.parts] == [(7, "nothing fits"), (4, "no such process")]
    os.write(writing, frame(3, "END", struct("end", windows_count=1, exit_code=7)))
    assert live.fill()
    assert [part.is_over for part in live.parts] == [True, True]
    assert [part.has_end for part in live.parts] == [True, False]
    os.close(writing)
    live.close()


@pytest.mark.parametrize("target", [len(PIDS), 255])
def test_a_frame_of_no_target_ends_the_stream_for_all(target: int) -> None:
    whole, _ = mixed(1)
    reading, writing = os.pipe()
    live = LiveStream(reading, others_count=len(PIDS) - 1)
    os.write(writing, frame(0, "START", struct("start", pid=1), target=target) + whole)
    os.close(writing)
    assert live.fill()
    for number, part in enumerate(live.parts):
        assert part.is_readable_to_a_window, "waiting for one would never end"
        assert part.windows_count == 0
        seen = Reading(target=number)
        assert list(read_frames(part, seen)) == []
        assert seen.why_ended == "it is no stream"
    assert not live.fill()
    assert all(part.is_over for part in live.parts)


def test_what_is_behind_no_frame_is_nobodys() -> None:
    whole, alone = mixed(1)
    reading, writing = os.pipe()
    live = LiveStream(reading, others_count=len(PIDS) - 1)
    os.write(writing, whole + b"no frame" * 8 + whole)
    os.close(writing)
    while live.fill():
        pass
    for number, part in enumerate(live.parts):
        seen, expected = Reading(target=number), Reading(target=number)
        frames = list(read_frames(io.BytesIO(alone[number]), expected))
        assert list(read_frames(part, seen)) == frames
        assert (seen.why_ended, expected.why_ended) == ("what follows is no frame", "")


def test_what_comes_behind_no_frame_is_not_kept() -> None:
    """A recording may go on for hours after its stream was damaged."""
    whole, alone = mixed(1)
    reading, writing = os.pipe()
    live = LiveStream(reading, others_count=len(PIDS) - 1)
    for part in (whole + b"no frame" * 8, whole, whole):
        os.write(writing, part)
        assert live.fill()
    os.close(writing)
    live.fill()
    kept = [len(part.read(10 * len(whole))) for part in live.parts]
    assert kept == [len(one) + len(frame(0, "END", b"")) for one in alone]
    live.close()


def test_a_pipe_that_ends_inside_a_frame_is_cut_for_all() -> None:
    whole, _ = mixed(1)
    reading, writing = os.pipe()
    live = LiveStream(reading, others_count=len(PIDS) - 1)
    os.write(writing, whole + frame(0, "END", bytes(64))[:-8])
    os.close(writing)
    while live.fill():
        pass
    for number, part in enumerate(live.parts):
        seen = Reading(target=number)
        assert len(list(read_frames(part, seen))) == PIDS[number] + 2
        assert seen.why_ended == "it was cut inside a frame"


def test_a_frame_of_no_target_ends_a_stream() -> None:
    reading = Reading()
    content = frame(0, *window(0, 0)) + frame(0, *window(1, 1), target=16)
    assert len(list(read_frames(io.BytesIO(content), reading))) == 1
    assert reading.why_ended == "a frame is of no target"


def test_a_frame_that_one_target_lacks_is_no_gap_of_another() -> None:
    frames = [frame(0, *window(0, 0), target=0), frame(1, *window(1, 1), target=1)]
    found = {}
    for target in (0, 1):
        reading = Reading(target=target)
        found[target] = len(list(read_frames(io.BytesIO(b"".join(frames)), reading)))
        assert reading.why_ended == ("a frame is missing" if target else "")
    assert found == {0: 1, 1: 0}


def test_what_nobody_reads_is_not_kept(pipe: tuple[LiveStream, int]) -> None:
    """A recorder that goes on behind a stream that cannot be read does not fill the memory."""
    live, writing = pipe
    os.write(writing, b"no frame at all")
    live.fill()
    live.discard()
    for _ in range(3):
        os.write(writing, bytes(4096))
        live.fill()
    assert live.read(1 << 20) == b""
