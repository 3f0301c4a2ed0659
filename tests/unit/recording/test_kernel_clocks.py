# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's counts as rows: about the windows since they were read before."""

import io
from dataclasses import replace
from pathlib import Path

import pytest

from tlstax.analysis.rows import closure, closure_counts
from tlstax.analysis.rows.tables import Tables, load
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.recording.stream.replay import UNKNOWN
from tlstax.collectors.recording.stream_recording import import_stream
from tlstax.tests.unit.recording.streams import (
    COMMAND_ON_CPU,
    KNOWN,
    SECOND,
    slot,
    stream,
    struct,
    window,
)

EXITED = 2
BUSY_NS = 600_000_000  # in a second
SLOT_BYTES = KNOWN.structures["stream_slot"].size_bytes

Part = tuple[str, bytes]


def account(tid: int, second: int, read_second: int, *, status: int = 1) -> bytes:
    """A thread that ran for a part of each second; the kernel's counts are of another one."""
    content = slot(
        tid, {COMMAND_ON_CPU: BUSY_NS * second}, SECOND * second, status=status, index=tid,
        healed_count=second,
    )  # fmt: skip
    entry = KNOWN.layout("slot").from_buffer_copy(content)
    entry.counts.time_ns = SECOND * read_second
    entry.counts.cpu_ns = BUSY_NS * read_second
    entry.counts.switch_count = entry.counts.seen_count = 1000 * read_second
    return bytes(entry) + content[SLOT_BYTES:]


def edge(number: int, *, is_read: bool, cpu_ns: int | None = None, threads: int = 1) -> Part:
    """A window ends at a whole second."""
    second = number + 1
    used_ns = BUSY_NS * second if cpu_ns is None else cpu_ns
    counts = {"switch_count": 1000 * second, "thread_count": threads, "account_count": threads}
    return window(number, SECOND * second, has_counts=is_read, process_cpu_ns=used_ns, **counts)


def recorded(parts: list[Part], made: list[Part], folder: Path) -> Tables:
    """The capture of a stream with this behind its plan."""
    before = [part for part in parts if part[0] in ("START", "PLAN")]
    end = struct("end", time_ns=99 * SECOND, windows_count=1, ending=b"it was running")
    content = stream([*before, *made, ("END", end)])
    import_stream(io.BytesIO(content), "x.stream", folder / "a.tlstax", overwrite=False)
    with CaptureReader.open(folder / "a.tlstax") as reader:
        return load(reader)


def seconds(read: tuple[int, ...], count: int = 4) -> list[Part]:
    """Windows of a second with one thread; the counts are read at the end of some."""
    made: list[Part] = []
    last = 0
    for number in range(count + 1):
        last = number + 1 if number in read else last
        made += [("SLOT", account(7, number + 1, last)), edge(number, is_read=number in read)]
    return made


def test_a_row_is_about_the_windows_since_the_reading_before(
    parts: list[Part], tmp_path: Path
) -> None:
    tables = recorded(parts, seconds(read=(0, 3, 4)), tmp_path)
    clocks = [
        (row.window_id, row.window_count, row.process_cpu_ns, row.account_cpu_ns, row.switch_count,
         row.seen_switch_count)
        for row in tables.process_clocks
    ]  # fmt: skip
    assert clocks == [
        (3, 3, 3 * BUSY_NS, 3 * BUSY_NS, 3000, 3000),
        (4, 1, BUSY_NS, BUSY_NS, 1000, 1000),
    ]
    threads = [
        (row.window_id, row.window_count, row.lifetime_ns, row.sched_cpu_ns, row.healed_count)
        for row in tables.clocks
    ]
    assert threads == [(3, 3, 3 * SECOND, 3 * BUSY_NS, 3), (4, 1, SECOND, BUSY_NS, 1)]
    assert closure.cpu_times(tables) == {3: (3 * BUSY_NS, 3 * BUSY_NS), 4: (BUSY_NS, BUSY_NS)}
    whole, first, second = closure.observed(tables)
    assert whole.on_cpu_ns == whole.process_cpu_ns == 4 * BUSY_NS
    assert (first.windows, second.windows) == ((1, 3), (4, 4))


def test_a_thread_that_ends_has_its_last_counts_where_it_ended(
    parts: list[Part], tmp_path: Path
) -> None:
    made = seconds(read=(0, 3), count=3)
    made.insert(0, ("SLOT", account(8, 1, 1)))
    made.insert(made.index(edge(2, is_read=False)), ("SLOT", account(8, 3, 3, status=EXITED)))
    made = [
        edge(0, is_read=True, cpu_ns=2 * BUSY_NS, threads=2) if part == edge(0, is_read=True)
        else edge(3, is_read=True, cpu_ns=7 * BUSY_NS) if part == edge(3, is_read=True)
        else part
        for part in made
    ]  # fmt: skip
    tables = recorded(parts, made, tmp_path)
    assert [
        (row.window_id, row.window_count, row.lifetime_ns, row.sched_cpu_ns)
        for row in tables.clocks
    ] == [(2, 2, 2 * SECOND, 2 * BUSY_NS), (3, 3, 3 * SECOND, 3 * BUSY_NS)]
    (clock,) = tables.process_clocks
    assert (clock.account_cpu_ns, clock.process_cpu_ns) == (5 * BUSY_NS, 5 * BUSY_NS)
    worst = next(c for c in closure.check(tables) if c.figure.key == "thread_on_cpu")
    assert (worst.verdict, worst.error) == ("ok", 0)


def test_counts_that_were_not_read_where_the_recording_begins_are_no_reference(
    parts: list[Part], tmp_path: Path
) -> None:
    """Their difference would be of more time than the ledger has."""
    tables = recorded(parts, seconds(read=(2, 4)), tmp_path)
    assert [(row.window_id, row.window_count) for row in tables.process_clocks] == [(4, 2)]
    assert {row.sched_cpu_ns for row in tables.clocks if row.window_id == 2} == {None}


@pytest.mark.parametrize("cpu_ns", [UNKNOWN, None])
def test_windows_before_the_process_ended_have_no_reference(
    parts: list[Part], tmp_path: Path, cpu_ns: int | None
) -> None:
    made = [*seconds(read=(0,), count=2), edge(3, is_read=True, cpu_ns=cpu_ns, threads=0)]
    tables = recorded(parts, made, tmp_path)
    assert not tables.process_clocks
    assert {check.verdict for check in closure.check(tables)} == {"not checked"}


def test_a_span_of_which_a_part_is_there_is_not_judged(parts: list[Part], tmp_path: Path) -> None:
    """As where a capture begins while the recording goes on."""
    tables = recorded(parts, seconds(read=(0, 2, 4)), tmp_path)
    part = replace(tables, windows=[row for row in tables.windows if row.window_id > 1])
    assert [span.row.window_id for span in closure_counts.spans(part)] == [4]
    (whole,) = closure.observed(part)
    assert whole.on_cpu_ns == whole.process_cpu_ns == 2 * BUSY_NS
    assert closure.cpu_times(part).keys() == {4}
    wild = [row._replace(window_count=1 << 62) for row in tables.process_clocks]
    assert not closure_counts.spans(replace(tables, process_clocks=wild))
