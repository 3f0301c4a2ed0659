# SPDX-License-Identifier: GPL-2.0-only
"""Captures that are mutated: a real one, cut down, and computed ones that fill every table."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tlstax.collectors.capture import schema
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import TABLES, Row
from tlstax.collectors.capture.writer import write_whole
from tlstax.tests.golden.capture import sources, synthetic

DEMO: Final = Path(__file__).parents[2] / "docs/demo/demo.tlstax"
NAMES: Final = ("demo", "experiment", "attached", "crowded")
ROUNDS: Final = 8
_CLIENT, _TUNNEL, _PERF = 1 << 20, 2 << 20, 3 << 20
_OF_WINDOW: Final = (
    *(schema.Ledger, schema.ThreadClock, schema.PhaseCount, schema.Latency, schema.SampleStack),
    *(schema.OffcpuStack, schema.System),
)


def make(folder: Path) -> dict[str, Path]:
    """Write every seed into a folder; their paths by name."""
    paths = {name: folder / f"{name}.tlstax" for name in NAMES}
    reduce_demo(paths["demo"])
    synthetic.build(str(paths["experiment"]), rounds=ROUNDS, scale=0.04)
    synthetic.build(str(paths["attached"]), attach=True, scale=0.1)
    write_whole(paths["crowded"], crowded(paths["attached"]))
    return paths


def reduce_demo(path: Path) -> None:
    """The first runs of the demo's capture, with a part of their samples and what these need."""
    path.write_bytes(DEMO.read_bytes())
    with contextlib.closing(sqlite3.connect(path)) as capture:
        capture.execute("DELETE FROM run WHERE run_id > 8")
        capture.execute("DELETE FROM status WHERE run_id > 8")
        capture.execute("DELETE FROM window WHERE run_id > 8")
        for table in ("ledger", "thread_clock", "phase_count", "latency", "handshake", "system",
                      "sample_stack", "offcpu_stack", "loss"):  # fmt: skip
            capture.execute(
                f"DELETE FROM {table} WHERE window_id NOT IN (SELECT window_id FROM window)"
            )
        for table, part in (("sample_stack", 16), ("latency", 8), ("handshake", 4)):
            capture.execute(f"DELETE FROM {table} WHERE rowid % {part} <> 0")
        stacks = dict(capture.execute("SELECT stack_id, frame_ids FROM stack"))
        used = "SELECT user_stack_id FROM {0} UNION SELECT kernel_stack_id FROM {0}"
        both = " UNION ".join(used.format(table) for table in ("sample_stack", "offcpu_stack"))
        kept = {stack for (stack,) in capture.execute(both)} - {None}
        frames = {frame for stack in kept for frame in stacks[stack].split()}
        for table, numbers in (("stack", kept), ("frame", frames)):
            marks = ", ".join(map(str, numbers))
            capture.execute(f"DELETE FROM {table} WHERE {table}_id NOT IN ({marks})")
        capture.commit()
        capture.execute("VACUUM")


def crowded(attached: Path) -> Iterator[Row]:
    """A recording with clients, a tunnel, perf beside the engine, primitives and sources."""
    with CaptureReader.open(attached) as reader:
        rows: list[Row] = [row for table in TABLES for row in reader.rows(table)]
    windows = [row for row in rows if isinstance(row, schema.Window)]
    start_ns = windows[0].start_ns
    yield from rows
    yield from sources.rows(start_ns)
    for shift, role, exe in ((_CLIENT, "client", "/bin/sysbench"), (_TUNNEL, "tunnel", "/bin/ssh")):
        target = schema.Target(shift, shift, exe, "", "unknown", "unknown", "OpenSSL", "3.0.19",
                               "shared", role, 7, f"{role} 1")  # fmt: skip
        yield target
        yield from (_moved(row, shift, target_id=shift) for row in windows)
        yield from (_moved(row, shift) for row in rows if isinstance(row, _OF_WINDOW))
        for row in rows:
            if isinstance(row, schema.Thread):
                thread_id = row.thread_id + shift
                yield row._replace(thread_id=thread_id, target_id=shift)
    yield from (_moved(row, _PERF, engine="perf") for row in windows)
    yield from (_moved(row, _PERF) for row in rows if isinstance(row, schema.SampleStack))
    for number, (name, category) in enumerate((("aes", "cipher"), ("sha", "digest")), 1):
        yield schema.Primitive(number, name, category, "call", f"f_{name}", "/libcrypto.so.3", "",
                               "argument 2", 300.0, 700.0, "")  # fmt: skip
        for window in windows:
            calls = (100, 6400, 90, 5760, 90_000, 1000, 2000, 500)
            key = (window.window_id, number)
            yield schema.PrimitiveCalls(*key, "record_write", 64, 127, *calls)
            yield schema.PrimitiveTime(*key, 64, 127, 900, 1100, 90)
    for window in windows:
        yield schema.Effect(window.window_id, 10**9, 10**7, 10**6, None)
    yield schema.Gap(1, "boundary verify", "Signature checks are part of the handshake.")
    yield schema.Calibration("uprobe", "push %rbp", 690.0, 650.0, 720.0, 9)
    yield schema.SourceFacts("procfs", "counters of the host", 1, "")
    yield schema.Series("procfs reads", "procfs", "disk *", "Disk *", "per_second", "*", "reads",
                        "rate", "reads_count", 1.0)  # fmt: skip


def _moved(row: Row, shift: int, **changes: object) -> Row:
    """The row of another window, and of another thread where it names one."""
    moved = {name: getattr(row, name) + shift for name in ("window_id", "thread_id")
             if name in row._fields}  # fmt: skip
    made: Row = row._replace(**{**moved, **changes})
    return made
