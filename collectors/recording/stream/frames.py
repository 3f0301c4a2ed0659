# SPDX-License-Identifier: GPL-2.0-only
"""Reads the frames of a stream, up to where it was cut or damaged.

A stream may come from another host, so nothing in it is believed: lengths are bounded, checksums
and the order of frames are compared, and what does not fit ends the stream there.
"""

import ctypes
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from tlstax.collectors.recording.stream.definition import definition

_MOST: Final = definition().number("FRAME_MOST")
_TARGETS_MOST: Final = definition().number("TARGETS_MOST")
_MAGIC: Final = definition().number("MAGIC")
VERSION: Final = definition().number("VERSION")
_HEAD: Final = definition().layout("head")
_START: Final = definition().number("START")
_CRC_OFFSET: Final = _HEAD.crc32.offset


class Source(Protocol):
    """Where a stream is read."""

    def read(self, size: int, /) -> bytes:
        """So many bytes; fewer at its end only."""
        ...


class Frame(NamedTuple):
    """A frame that is whole."""

    type: int
    content: bytes


@dataclass
class Reading:
    """How far a stream was read."""

    frames_count: int = 0
    why_ended: str = ""
    """Why it ended before its end, as part of a sentence; "" if it did not."""
    version: int = VERSION
    """Of the first frame."""
    target: int = 0
    """Whose frames are read: number of a target of the recorder."""


def read_frames(stream: Source, reading: Reading) -> Iterator[Frame]:
    """The frames of a target in order; `reading` tells how its stream ended.

    Those of other targets are looked at, too: what follows a damaged one is not believed.
    """
    while head_bytes := stream.read(ctypes.sizeof(_HEAD)):
        whole = _whole(head_bytes, stream, reading)
        if whole is None:
            return
        target, frame = whole
        if target == reading.target:
            reading.frames_count += 1
            yield frame


def targets_of(stream: Source) -> dict[int, int]:
    """Numbers of a stream's targets by process id; empty if it is damaged before the first."""
    reading, pids = Reading(), dict[int, int]()
    while head_bytes := stream.read(ctypes.sizeof(_HEAD)):
        reading.target = -1  # of each frame: their numbers are not compared
        whole = _whole(head_bytes, stream, reading)
        if whole is None:
            break
        target, frame = whole
        with suppress(ValueError):  # its reader says what is wrong
            if frame.type == _START:
                pids.setdefault(target, int(record("start", frame.content).pid))
    found: dict[int, int] = {}
    for target in sorted(pids):
        found.setdefault(pids[target], target)
    return found


def _whole(head_bytes: bytes, stream: Source, reading: Reading) -> tuple[int, Frame] | None:
    if len(head_bytes) < ctypes.sizeof(_HEAD):
        reading.why_ended = "it was cut inside a frame"
        return None
    head = _HEAD.from_buffer_copy(head_bytes)
    if head.magic != _MAGIC:
        reading.why_ended = (
            "what follows is no frame" if reading.frames_count else "it is no stream"
        )
        return None
    if head.version != VERSION:
        reading.version = int(head.version)
        reading.why_ended = f"it has version {head.version}, and this tlstax reads {VERSION}"
        return None
    if head.length_bytes > _MOST or head.length_bytes % 8 or head.used_bytes > head.length_bytes:
        reading.why_ended = "a frame has an impossible length"
        return None
    if head.target >= _TARGETS_MOST:
        reading.why_ended = "a frame is of no target"
        return None
    content = stream.read(head.length_bytes)
    if len(content) < head.length_bytes:
        reading.why_ended = "it was cut inside a frame"
        return None
    cleared = head_bytes[:_CRC_OFFSET] + bytes(4) + head_bytes[_CRC_OFFSET + 4 :]
    if zlib.crc32(content, zlib.crc32(cleared)) != head.crc32:
        reading.why_ended = "a frame is damaged: its checksum is another"
        return None
    if head.target == reading.target and head.sequence != reading.frames_count:
        reading.why_ended = "a frame is missing"
        return None
    return int(head.target), Frame(int(head.type), content[: head.used_bytes])


def records(name: str, content: bytes) -> Iterator[Any]:
    """The structures of a frame, which holds nothing else. Raises ValueError."""
    layout = definition().layout(name)
    size = ctypes.sizeof(layout)
    if len(content) % size:
        raise ValueError(f"a frame of {name} has {len(content)} bytes")
    for start in range(0, len(content), size):
        yield layout.from_buffer_copy(content, start)


def record(name: str, content: bytes) -> Any:
    """The only structure of a frame. Raises ValueError."""
    found = list(records(name, content))
    if len(found) != 1:
        raise ValueError(f"a frame of {name} has {len(found)} of them")
    return found[0]


def counted(
    name: str, content: bytes, count_of: str, item_bytes: int
) -> Iterator[tuple[Any, bytes]]:
    """Structures that are each followed by as many items as a member says. Raises ValueError."""
    layout = definition().layout(name)
    size, start = ctypes.sizeof(layout), 0
    while start < len(content):
        if len(content) - start < size:
            raise ValueError(f"a frame of {name} ends too early")
        found = layout.from_buffer_copy(content, start)
        start += size
        length = getattr(found, count_of) * item_bytes
        if length > len(content) - start:
            raise ValueError(f"a frame of {name} ends too early")
        yield found, content[start : start + length]
        start += length
