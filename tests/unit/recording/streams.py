# SPDX-License-Identifier: GPL-2.0-only
"""Streams as the recorder writes them, made by hand for tests of their readers."""

import zlib
from collections.abc import Iterable
from typing import Any

from tlstax.collectors.recording.stream.definition import definition
from tlstax.collectors.recording.stream.function_totals import LOSS_NAMES

KNOWN = definition()
COMMAND_ON_CPU = 12 * 8
SECOND = 1_000_000_000


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


def change(cells: dict[int, int], last_ns: int, **more: Any) -> bytes:
    """The same account later, as it is told when it was told before."""
    more = {"owner": 12, "state": 0, "cells_count": len(cells)} | more
    entry = KNOWN.layout("change")(last_ns=last_ns, **more)
    for index in cells:
        entry.cells[index // 64] |= 1 << index % 64
    values = (cells[index] for index in sorted(cells))
    return bytes(entry) + b"".join(value.to_bytes(8, "little") for value in values)


def window(number: int, end_ns: int, **more: Any) -> tuple[str, bytes]:
    """A window ends."""
    known = {
        "process_cpu_ns": end_ns,
        "thread_count": 1,
        "account_count": 1,
        "wait_share": 1,
        "has_counts": 1,
    }
    more = {**known, "level": b"record"} | more
    return "WINDOW", struct("window", number=number, end_ns=end_ns, read_ns=end_ns + 1000, **more)


def calls(count: int) -> bytes:
    """Calls of the first function so far, of 300 bytes and 500 ns each."""
    each = {
        "call_count": 1,
        "size_bytes": 300,
        "timed_count": 1,
        "timed_bytes": 300,
        "time_ns": 500,
    }
    whole = struct("function_sum", function=0, phase=12, size_class=9)
    entry = KNOWN.layout("function_sum").from_buffer_copy(whole)
    for name, value in each.items():
        setattr(entry.sum, name, value * count)
    return bytes(entry)


def lost(count: int) -> bytes:
    """Exits without an entry so far."""
    entry = KNOWN.layout("function_loss")()
    entry.losses[LOSS_NAMES.index("function_unmatched_exit")] = count
    return bytes(entry)


def two_windows(plan_text: str) -> list[tuple[str, bytes]]:
    """The frames of a recording of two windows of a second, in which one thread computes."""
    raw = plan_text.encode()
    start = struct(
        "start", pid=4711, sample_hz=99, cpus_count=1, online_count=1, level=b"record", multi=1
    )
    stack = struct("stack", id=3, depth=2) + (0xFFFFFFFF81000010).to_bytes(8, "little") * 2
    sample = struct("sample", phase=12, syscall=-1, user_stack=-1, kernel_stack=3, count=5)
    name = struct("kernel_name", address=0xFFFFFFFF81000010, offset_bytes=16, name=b"do_work")
    return [
        ("START", start),
        *(("PLAN", raw[at : at + 65536]) for at in range(0, len(raw), 65536)),
        ("FUNCTION", struct("function", function=0, pair_ns=900, inside_ns=200)),
        ("SLOT", slot(7, {COMMAND_ON_CPU: SECOND}, SECOND)),
        ("FUNCTION_SUM", calls(7)),
        ("FUNCTION_TIME", struct("function_time", function=0, size_class=9, bucket=3, count=7)),
        ("FUNCTION_LOSS", lost(2)),
        window(0, SECOND),
        ("SLOT", slot(7, {COMMAND_ON_CPU: 2 * SECOND}, 2 * SECOND)),
        ("STACK", stack),
        ("SAMPLE", sample),
        window(1, 2 * SECOND),
        ("SLOT", slot(7, {COMMAND_ON_CPU: 3 * SECOND}, 3 * SECOND)),
        ("FUNCTION_SUM", calls(12)),
        ("FUNCTION_TIME", struct("function_time", function=0, size_class=9, bucket=3, count=11)),
        ("FUNCTION_LOSS", lost(5)),
        window(2, 3 * SECOND),
        ("KERNEL_NAME", name),
        ("END", struct("end", time_ns=3 * SECOND, windows_count=2, ending=b"it was running")),
    ]
