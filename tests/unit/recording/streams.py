# SPDX-License-Identifier: GPL-2.0-only
"""Streams as the recorder writes them, made by hand for tests of their readers."""

import zlib
from collections.abc import Iterable
from typing import Any

from tlstax.collectors.recording.stream.definition import definition

KNOWN = definition()


def frame(sequence: int, kind: str, content: bytes, target: int = 0) -> bytes:
    """A whole frame."""
    padded = content + bytes(-len(content) % 8)
    head = KNOWN.layout("head")(
        magic=KNOWN.number("MAGIC"),
        type=KNOWN.number(kind),
        target=target,
        version=KNOWN.number("VERSION"),
        length_bytes=len(padded),
        sequence=sequence,
        used_bytes=len(content),
    )
    head.crc32 = zlib.crc32(bytes(head) + padded)
    return bytes(head) + padded


def struct(name: str, /, **values: Any) -> bytes:
    """A structure of the stream."""
    return bytes(KNOWN.layout(name)(**values))


def stream(parts: Iterable[tuple[str, bytes]]) -> bytes:
    """Frames in order."""
    return b"".join(frame(number, *part) for number, part in enumerate(parts))


def slot(tid: int, cells: dict[int, int], last_ns: int, **more: Any) -> bytes:
    """An account in which a thread computes a command since it began, at 0."""
    more = {"status": 1, "role": 1, "owner": 12, "state": 0, "comm": b"conn"} | more
    content = struct("slot", tid=tid, last_ns=last_ns, cells_count=len(cells), **more)
    return content + b"".join(struct("cell", index=key, value=cells[key]) for key in cells)


def window(number: int, end_ns: int, **more: Any) -> tuple[str, bytes]:
    """A window ends."""
    known = {"process_cpu_ns": end_ns, "thread_count": 1, "account_count": 1, "wait_share": 1}
    more = {**known, "level": b"record"} | more
    return "WINDOW", struct("window", number=number, end_ns=end_ns, read_ns=end_ns + 1000, **more)
