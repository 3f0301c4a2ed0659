# SPDX-License-Identifier: GPL-2.0-only
"""Waits and commands longer than a window, or under way at its edges: lower bounds, in place."""

from collections.abc import Mapping, Sequence

import pytest

from tlstax.analysis.rows import latency
from tlstax.analysis.rows.edges import open_commands, wait_places
from tlstax.collectors.capture.schema import Ledger, OffcpuStack, Probe, Thread, Window

S = 1_000_000_000
SERVING = [Thread(1, 11, "one", "connection", 0, None)]
PROBES = [Probe(1, "disconnect", "enter", "end_connection", "", "", 0, "", "uprobe", 0, 0, None)]
BUSY = {("command", "on_cpu"): S // 2, ("idle", "blocked_network"): S // 2}
LOCKED = {("command", "blocked_lock"): S}
LOST = {("unknown", "blocked_futex"): S}
PARKED = {("background", "blocked_futex"): S}
Cells = Mapping[tuple[str, str], int]


def recorded(seconds: Sequence[Cells | str]) -> tuple[list[Ledger], list[Window]]:
    """A second each: cells of one thread, or the level of a window without a ledger."""
    ledger, windows = [], []
    for number, cells in enumerate(seconds, 1):
        level = cells if isinstance(cells, str) else "full"
        windows.append(Window(number, None, number * S, (number + 1) * S, 1, level))
        if not isinstance(cells, str):
            ledger += [Ledger(number, 1, *key, time_ns) for key, time_ns in cells.items()]
    return ledger, windows


def unfinished(seconds: Sequence[Cells | str], role: str = "connection") -> list[int]:
    ledger, windows = recorded(seconds)
    threads = [SERVING[0]._replace(role=role)]
    placed = open_commands.place(ledger, windows, threads, PROBES)
    every = {window.window_id for window in windows}
    return open_commands.lengths_ns(open_commands.unfinished(placed, windows, threads), every)


def placed(seconds: Sequence[Cells | str], **other: object) -> list[tuple[int, str]]:
    """Windows and phases of waits for a futex."""
    ledger, windows = recorded(seconds)
    given = {"threads": SERVING, "probes": PROBES} | other
    rows = open_commands.place(ledger, windows, **given)  # type: ignore[arg-type]
    return [(row.window_id, row.phase) for row in rows if row.state == "blocked_futex"]


def test_a_command_that_is_under_way_at_the_end_lasted_at_least_so_long() -> None:
    assert unfinished([BUSY, LOCKED, LOCKED, LOCKED]) == [3 * S]


def test_a_command_that_began_and_ended_is_complete() -> None:
    assert unfinished([BUSY, LOCKED, LOCKED, BUSY]) == []


def test_a_command_that_computes_is_one_where_records_are_seen() -> None:
    computing = {("command", "on_cpu"): S}
    ledger, windows = recorded([BUSY, computing])
    assert unfinished([BUSY, computing]) == [S]
    flow = [window._replace(level="flow") for window in windows]
    assert not open_commands.unfinished(ledger, flow, SERVING), "it may be many"


def test_an_endless_command_of_a_replica_is_no_long_one() -> None:
    assert unfinished([BUSY, LOCKED], "binlog_dump") == []


def test_one_command_through_two_stretches_counts_once() -> None:
    seconds: list[Cells | str] = [BUSY, LOCKED, "connection", LOST, LOST, "connection", LOST, BUSY]
    assert unfinished(seconds) == [2 * S], "of its parts the longest"
    assert unfinished([*seconds, "connection", BUSY, LOCKED]) == [2 * S, S]


def test_a_part_of_the_windows_may_have_the_later_half_of_a_command() -> None:
    ledger, windows = recorded([BUSY, LOCKED, "sample", LOCKED, LOCKED, BUSY])
    found = open_commands.unfinished(ledger, windows, SERVING)
    assert [one.is_same for one in found] == [False, True]
    assert open_commands.lengths_ns(found, {4, 5}) == [2 * S]


def test_a_wait_under_way_when_a_stretch_begins_is_in_a_command() -> None:
    assert placed([BUSY, "connection", LOST]) == [(3, "command")]


@pytest.mark.parametrize("level", ["handshake", "sample", "none"])
def test_a_thread_may_have_parked_where_connections_were_not_followed(level: str) -> None:
    assert placed([BUSY, level, LOST]) == [(3, "unknown")]
    ends = {("unknown", "blocked_futex"): S, ("connect", "on_cpu"): S}
    assert placed([BUSY, level, ends]) == [(3, "unknown")]


def test_without_the_end_of_connections_a_futex_says_nothing() -> None:
    assert placed([BUSY, "connection", LOST], probes=[]) == [(3, "unknown")]


def test_a_pool_awaits_events_on_futexes() -> None:
    pool = [SERVING[0]._replace(role="pool_worker")]
    assert placed([BUSY, "connection", LOST], threads=pool) == [(3, "unknown")]


def test_a_wait_from_before_the_recording_is_told_by_what_follows_it() -> None:
    assert placed([PARKED, PARKED, BUSY]) == [(1, "command"), (2, "command")]
    connects = {**BUSY, ("connect", "on_cpu"): 1}
    assert placed([PARKED, PARKED, connects]) == [(1, "background"), (2, "background")]
    assert placed([PARKED, PARKED]) == [(1, "background"), (2, "background")]
    assert placed([PARKED, "connection", BUSY]) == [(1, "background")], "it may have connected"


def test_a_loop_of_waits_is_in_a_command_as_a_whole() -> None:
    """MariaDB wakes each second while it waits for a metadata lock."""
    loop = {("background", "blocked_lock"): S - 100, ("background", "on_cpu"): 100}
    assert unfinished([loop, loop, BUSY]) == [2 * S]
    reads = {**loop, ("background", "blocked_network"): S}
    ledger, windows = recorded([reads, BUSY])
    rows = open_commands.place(ledger, windows, SERVING, PROBES)
    assert [row.phase for row in rows[:3]] == ["command", "background", "background"]


def test_a_long_wait_has_its_stacks_where_it_took_place() -> None:
    """A wait of 3 s in windows of 1 s is recorded in the last one, with its whole length."""
    half = {("command", "blocked_lock"): S // 2, ("command", "on_cpu"): S // 2}
    ledger, windows = recorded([half, LOCKED, LOCKED, half])
    long = OffcpuStack(4, "command", "blocked_lock", 202, 7, None, 1, 3 * S)
    rows = wait_places.place([long], ledger, windows)
    times = {row.window_id: row.time_ns for row in rows}
    assert times == {1: S // 2, 2: S, 3: S, 4: S // 2}
    assert sum(row.wait_count for row in rows) == 1
    assert {row.user_stack_id for row in rows} == {7}


def test_short_waits_stay_and_long_ones_move() -> None:
    ledger, windows = recorded([LOCKED, LOCKED])
    short = OffcpuStack(2, "command", "blocked_lock", 202, 8, None, 100, S // 2)
    long = short._replace(user_stack_id=7, wait_count=1, time_ns=S + S // 2)
    rows = wait_places.place([short, long], ledger, windows)
    assert sorted((row.window_id, row.user_stack_id, row.time_ns) for row in rows) == [
        (1, 7, S), (2, 7, S // 2), (2, 8, S // 2),
    ]  # fmt: skip


def test_what_was_not_recorded_takes_no_wait() -> None:
    """The surplus stays: it took place before the recording, or in a pause."""
    ledger, windows = recorded([LOCKED, "connection", LOCKED])
    long = OffcpuStack(3, "command", "blocked_lock", 202, 7, None, 1, 9 * S)
    assert wait_places.place([long], ledger, windows) == [long]


def test_quantiles_with_unfinished_values_are_lower_bounds() -> None:
    buckets = latency.bucketize([1000] * 98)
    complete = latency.distribution("all/command", "", "command", buckets)
    assert not any(one.at_least for one in complete.quantiles)
    made = latency.distribution("all/command", "", "command", buckets, unfinished_ns=[S, 3 * S])
    told = {one.q: (one.value_ns > S // 2, one.at_least) for one in made.quantiles}
    assert told == {0.5: (False, False), 0.9: (False, False), 0.95: (False, False),
                    1.0: (True, True)}  # fmt: skip
    assert (made.count, made.unfinished_count, made.unfinished_ns) == (98, 2, 3 * S)
    assert made.mean_ns is not None
    assert made.mean_ns == pytest.approx(4 * S / 100, rel=0.02)
    alone = latency.distribution("all/command", "", "command", {}, unfinished_ns=[S])
    assert [one.at_least for one in alone.quantiles] == [True, True]


def test_a_lower_bound_below_a_quantile_makes_it_one_too() -> None:
    """A command that lasted at least 1 µs may have lasted an hour."""
    buckets = latency.bucketize([1000] * 60 + [S] * 40)
    made = latency.distribution("c", "", "command", buckets, unfinished_ns=[1000] * 30)
    assert {one.q: one.at_least for one in made.quantiles}[0.5]
