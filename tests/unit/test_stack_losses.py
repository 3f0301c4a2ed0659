# SPDX-License-Identifier: GPL-2.0-only
"""What `make check-stack-losses` finds in a capture: a stack without room must not pass."""

from pathlib import Path

from tlstax.collectors.capture.schema import Loss, SampleStack, Window
from tlstax.collectors.capture.vocabulary import LOSSES
from tlstax.collectors.capture.writer import CaptureWriter
from tlstax.tests.truth.stacks.losses import NO_ROOM, described


def capture(path: Path, *rows: Loss) -> Path:
    with CaptureWriter.create(path) as writer:
        writer.add([Window(1, None, 0, 10), SampleStack(1, "command", -1, None, None, 7), *rows])
        writer.commit()
    return path


def test_losses_of_stacks_are_found(tmp_path: Path) -> None:
    assert set(NO_ROOM) <= set(LOSSES)
    text, samples, no_room = described(capture(tmp_path / "a", Loss(1, "switch_missed", 3)))
    assert (samples, no_room) == (7, 0)
    assert "switch_missed 3" in text
    for number, kind in enumerate(NO_ROOM):
        assert described(capture(tmp_path / str(number), Loss(1, kind, 2)))[2] == 2
