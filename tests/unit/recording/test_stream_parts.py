# SPDX-License-Identifier: GPL-2.0-only
"""Captures of one recording, one after the other: each holds its own stacks and counts."""

import io
import os
import tracemalloc
from pathlib import Path
from typing import Any, cast

import pytest

from tlstax.collectors.capture import schema
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.placement.model import Plan, Site
from tlstax.collectors.preflight.safety import Safety
from tlstax.collectors.process.symbols import Place, Symbolizer
from tlstax.collectors.process.target import open_target
from tlstax.collectors.recording import stream_capture
from tlstax.collectors.recording.proc_clocks import Clocks
from tlstax.collectors.recording.programs.names import WALK_COUNTS
from tlstax.collectors.recording.stream.facts import engine_asked
from tlstax.collectors.recording.stream.plan_file import plan_file_text
from tlstax.collectors.recording.stream.replay import Replay
from tlstax.collectors.recording.stream_capture import StreamRows
from tlstax.collectors.recording.stream_recording import target_of
from tlstax.collectors.watching.raw_captures import RawCaptures
from tlstax.probes.model import Level
from tlstax.tests.unit.recording.streams import stream, struct

SECOND = 1_000_000_000
START_CPU_NS = 5_000
COMMAND = 12
KERNEL = 0xFFFFFFFF81000000
Part = tuple[str, bytes]


class Places:
    """Names every address by itself."""

    def locate(self, address: int) -> Place:
        return Place("file", "", address, f"at {address:#x}", 0, "none", "")


@pytest.fixture(scope="module")
def plan_text() -> str:
    """A plan of one probe."""
    target = open_target(os.getpid())
    site = Site(
        boundary="record_read", action="phase", phase="record_read", event="enter",
        function="SSL_read", object=target.program, file_offset=64, virtual_address=64,
        instruction="nop", kind="uprobe", stepped=False, register="", stack_bytes=0, only_in="",
        reason="a test",
    )  # fmt: skip
    plan = Plan(target.pid, Level.RECORD, (), (site,), ())
    return plan_file_text(target, plan, Safety(), None)


def stack(number: int, *addresses: int) -> Part:
    raw = b"".join(address.to_bytes(8, "little") for address in addresses)
    return "STACK", struct("stack", id=number, depth=len(addresses)) + raw


def sample(user: int, count: int) -> Part:
    values = {"phase": COMMAND, "syscall": -1, "user_stack": user, "kernel_stack": -1}
    return "SAMPLE", struct("sample", count=count, **values)


def wait(kernel: int) -> Part:
    values = {"phase": COMMAND, "state": 4, "syscall": 0, "user_stack": -1}
    return "WAIT", struct("wait", kernel_stack=kernel, count=1, time_ns=1000, **values)


def hits(count: int) -> Part:
    return "HITS", struct("hits", site=0, count=count, begun=count - 1, healed=count - 2)


def runs(count: int) -> Part:
    return "PROGRAM", struct("program", name=b"on_switch", run_ns=100 * count, run_count=count)


def ended(number: int, whole: int = 0) -> Part:
    """A window ends, with so many whole walks so far."""
    walks = [0] * len(WALK_COUNTS)
    walks[WALK_COUNTS.index("complete")] = whole
    made = {
        "process_cpu_ns": SECOND,
        "thread_count": 1,
        "account_count": 1,
        "wait_share": 1,
        "has_counts": 1,
    }
    end_ns = (number + 1) * SECOND
    return "WINDOW", struct(
        "window", number=number, end_ns=end_ns, read_ns=end_ns + 1000, level=b"record",
        walks=tuple(walks), **made,
    )  # fmt: skip


class Run:
    """A recording whose windows go to captures by their source."""

    def __init__(self, folder: Path, plan_text: str, parts: list[Part]) -> None:
        raw = plan_text.encode()
        start = struct(
            "start", pid=4711, sample_hz=99, cpus_count=1, online_count=1, level=b"record",
            multi=1, unwind_bytes=1,
        )  # fmt: skip
        head: list[Part] = [("START", start)]
        head += (("PLAN", raw[at : at + 65536]) for at in range(0, len(raw), 65536))
        replay = Replay(io.BytesIO(stream([*head, *parts])))
        self.rows = StreamRows(
            replay, target_of(replay), cast(Symbolizer, Places()), Clocks(replay)
        )
        self.said: list[str] = []
        self.folder = folder
        self.raw = RawCaptures(folder, 1 << 30, self.said.append, lambda *_: None)
        facts = engine_asked(replay, START_CPU_NS)
        self.raw.attached(
            self.rows, 4711, [schema.Meta(key, str(value)) for key, value in facts.items()]
        )

    def take(self, *sources: int) -> list[Path]:
        """The captures of the windows that have these sources."""
        for source in sources:
            found = self.rows.next_window()
            assert found is not None
            self.raw.window(found[0], source)
        self.raw.detached()
        self.raw.close()
        assert self.said == []
        return sorted(self.folder.glob("*.tlstax"), key=lambda path: path.stem.split("-")[1])


def rows_of(path: Path, table: type[schema.Row]) -> list[Any]:
    with CaptureReader.open(path) as reader:
        return list(reader.rows(table))


def walked(path: Path) -> list[tuple[int, list[int]]]:
    """Samples with the addresses of their stacks."""
    offsets = {row.frame_id: row.offset_bytes for row in rows_of(path, schema.Frame)}
    stacks = {
        row.stack_id: [offsets[int(frame)] for frame in row.frame_ids.split()]
        for row in rows_of(path, schema.Stack)
    }
    return [
        (row.sample_count, stacks[row.user_stack_id]) for row in rows_of(path, schema.SampleStack)
    ]


def test_each_window_keeps_its_stacks_where_another_capture_begins(
    tmp_path: Path, plan_text: str
) -> None:
    """The window was cut before the earlier capture ended: it must not show another's stacks."""
    run = Run(
        tmp_path / "raw",
        plan_text,
        [
            ended(0),
            *(stack(3, 0x1000), sample(3, 1), ended(1)),
            *(stack(4, 0x2000, 0x2101), stack(5, 0x3000), sample(4, 2), sample(5, 3), ended(2)),
            *(stack(6, 0x4000), sample(4, 4), sample(6, 5), ended(3)),
            *(sample(6, 6), sample(3, 7), ended(4)),
        ],
    )
    first, second = run.take(11, 11, 12, 12)
    assert walked(first) == [(1, [0x1000]), (2, [0x2000, 0x2100]), (3, [0x3000])]
    assert walked(second) == [
        (4, [0x2000, 0x2100]), (5, [0x4000]), (6, [0x4000]), (7, [0x1000]),
    ]  # fmt: skip
    ids = [{row.stack_id for row in rows_of(path, schema.Stack)} for path in (first, second)]
    assert len(rows_of(second, schema.Frame)) == 4  # 0x3000 is not needed
    assert len(ids[0]) == len(ids[1]) == 3


def test_stacks_take_little_memory_as_they_were_sent(plan_text: str) -> None:
    """A watch keeps thousands of them for weeks; each address was an integer of Python."""
    stacks = [range(KERNEL + at, KERNEL + at + 50 * 4096, 4096) for at in range(1000)]
    parts = [stack(number, *addresses) for number, addresses in enumerate(stacks)]
    start = struct("start", pid=4711, sample_hz=99, cpus_count=1, online_count=1, level=b"record")
    content = stream([("START", start), ("PLAN", plan_text.encode()), *parts, ended(0)])
    tracemalloc.start()
    try:
        replay = Replay(io.BytesIO(content))
        taken_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert replay.stack_addresses(7) == tuple(stacks[7])
    assert replay.stack_addresses(1000) == ()
    assert taken_bytes < 2 * len(stacks) * 50 * 8


def test_functions_of_the_kernel_are_named_where_a_stack_went(
    tmp_path: Path, plan_text: str
) -> None:
    parts = [ended(0), stack(3, KERNEL), wait(3), ended(1), wait(3), ended(2)]
    run = Run(tmp_path / "raw", plan_text, parts)
    found = [run.rows.next_window() for _ in range(2)]
    assert found[0]
    assert found[1]
    part = run.rows.part_end(found[1][0])
    (frame,) = part.unnamed.frames.values()
    later = run.rows.part_end().unnamed
    assert later.frames == {(True, KERNEL): frame}
    assert later.waits == part.unnamed.waits
    assert [type(row) for row in part.carried] == [schema.Frame, schema.Stack]


def counted(path: Path) -> dict[str, int]:
    """What grows while a recording goes on, as a capture has it."""
    (probe,) = [row for row in rows_of(path, schema.Probe) if row.function == "SSL_read"]
    meta = {row.key: int(row.value) for row in rows_of(path, schema.Meta) if row.value.isdigit()}
    wanted = ("stack_walk_count", "stack_whole_count", "end_monotonic_ns", "start_cpu_ns")
    found = {key: meta[key] for key in wanted if key in meta}
    return found | {
        "hits": probe.hits_count, "begun": probe.begun_count, "healed": probe.healed_count,
    }  # fmt: skip


def test_each_capture_has_what_was_counted_in_its_own_time(tmp_path: Path, plan_text: str) -> None:
    """Totals since attaching would be ten times the hits per second in the tenth hour."""
    run = Run(
        tmp_path / "raw",
        plan_text,
        [
            ended(0),
            *(hits(10), ended(1, 100)),
            *(hits(20), ended(2, 110)),
            *(hits(50), ended(3, 130)),
            *(hits(90), ended(4, 170)),
        ],
    )
    first, second, third = run.take(11, 11, 12, 13)
    assert [counted(path) for path in (first, second, third)] == [
        {
            "hits": 20, "begun": 19, "healed": 18, "stack_walk_count": 110,
            "stack_whole_count": 110, "end_monotonic_ns": 3 * SECOND,
            "start_cpu_ns": START_CPU_NS,
        },
        {
            "hits": 30, "begun": 30, "healed": 30, "stack_walk_count": 20,
            "stack_whole_count": 20, "end_monotonic_ns": 4 * SECOND,
        },
        {
            "hits": 40, "begun": 40, "healed": 40, "stack_walk_count": 40,
            "stack_whole_count": 40, "end_monotonic_ns": 5 * SECOND,
        },
    ]  # fmt: skip


def test_what_programs_counted_too(tmp_path: Path, plan_text: str) -> None:
    parts = [ended(0), runs(10), ended(1), runs(30), ended(2), runs(70), ended(3)]
    found = [
        next(row for row in rows_of(path, schema.Probe) if row.function == "on_switch")
        for path in Run(tmp_path / "raw", plan_text, parts).take(11, 11, 12)
    ]
    assert [(row.hits_count, row.cost_ns) for row in found] == [(30, 100.0), (40, 100.0)]


def test_windows_in_between_need_no_rows_of_probes(
    plan_text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan has up to 256 sites, and a watch takes its time from the server."""
    run = Run(tmp_path / "raw", plan_text, [ended(0), hits(10), ended(1), hits(20), ended(2)])
    with monkeypatch.context() as patch:
        patch.setattr(stream_capture, "probe_rows", lambda *_: pytest.fail("it made them"))
        assert run.rows.next_window()
        assert run.rows.next_window()
    found = [row for row in run.rows.end() if isinstance(row, schema.Probe)]
    assert [row.hits_count for row in found if row.function == "SSL_read"] == [20]
