# SPDX-License-Identifier: GPL-2.0-only
"""Each figure of closure on hand-made rows: what it holds against what, and when it fails."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tlstax.analysis.rows import closure
from tlstax.analysis.rows.closure import Check
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.schema import (
    CpuClock,
    Handshake,
    Ledger,
    Loss,
    PhaseCount,
    Probe,
    ProcessClock,
    Status,
    System,
    Thread,
    ThreadClock,
    Window,
)

MS, SECOND = 1_000_000, 1_000_000_000
SECONDS = 10


def recording(seconds: int = SECONDS) -> Tables:
    """A second in each window: a thread runs for 600 ms and waits 300 ms for a CPU."""
    made = Tables(meta={"sample_hz": "100"}, threads=[Thread(1, 77, "conn", "connection", 0, None)])
    for number in range(seconds):
        start_ns = number * SECOND
        made.windows.append(Window(number, None, start_ns, start_ns + SECOND))
        times = {"on_cpu": 600 * MS, "runnable": 300 * MS, "blocked_network": 100 * MS}
        made.ledger += [Ledger(number, 1, "command", state, ns) for state, ns in times.items()]
        made.clocks.append(ThreadClock(number, 1, SECOND, 600 * MS, 300 * MS, 0, 0))
        made.process_clocks.append(
            ProcessClock(number, 600 * MS, 600 * MS, 300 * MS, 2000, 2000, 0, 5, 5)
        )
        made.cpu_clocks += [CpuClock(number, cpu, 300 * MS, 30) for cpu in (0, 1)]
        made.system.append(System(number, 0, 0, 0, 0, 0, 0, 0))
        made.phase_counts.append(PhaseCount(number, "command", 1000))
        made.handshakes.append(_handshake(number))
        made.status.append(Status(start_ns, None, "Questions", str(1000 * number)))
        made.status.append(Status(start_ns, None, "Ssl_accepts", str(50 + 20 * number)))
        made.handshakes += [_handshake(number) for _ in range(19)]
    made.probes = [
        Probe(n, "write", event, "f", "o", "", 0, "", "uprobe", 0, 5000, None, 1, begun, 0)
        for n, (event, begun) in enumerate((("enter", 5000), ("exit", 0)))
    ]
    return made


def _handshake(window: int) -> Handshake:
    return Handshake(
        0, window, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, "success", "TLSv1.3", "", "", 0
    )


def verdicts(made: Tables) -> dict[str, str]:
    return {check.figure.key: check.verdict for check in closure.check(made)}


def red(made: Tables) -> set[str]:
    return {key for key, verdict in verdicts(made).items() if verdict == "failed"}


def of(key: str, made: Tables) -> Check:
    return next(check for check in closure.check(made) if check.figure.key == key)


def test_a_sound_recording_has_every_figure_within_its_bound() -> None:
    assert set(verdicts(recording()).values()) == {"ok"}


def changed(table: str, change: Callable[[Any], Any], window: int | None = None) -> Tables:
    """The recording with each row of a table changed, or those of one window."""
    made = recording()
    rows = [
        change(row) if window is None or row.window_id == window else row
        for row in getattr(made, table)
    ]
    setattr(made, table, [row for row in rows if row is not None])
    return made


@pytest.mark.parametrize(
    ("table", "change", "window", "key"),
    [
        ("ledger", lambda row: row._replace(time_ns=row.time_ns * 103 // 100), None, "on_cpu"),
        ("ledger", lambda _: None, 4, "on_cpu"),
        ("ledger", lambda row: None if row.state == "runnable" else row, None, "runnable"),
        ("process_clocks", lambda row: row._replace(account_count=4), None, "threads"),
        ("process_clocks", lambda row: row._replace(account_cpu_ns=500 * MS), 7, "thread_cpu"),
        ("process_clocks", lambda row: row._replace(steal_ns=80 * MS), 2, "steal"),
        ("process_clocks", lambda row: row._replace(seen_switch_count=1980), None, "switches"),
        ("cpu_clocks", lambda row: row._replace(sample_count=0) if row.cpu_id else row, None,
         "samples"),
        ("clocks", lambda row: row._replace(sched_cpu_ns=500 * MS), None, "thread_on_cpu"),
        ("phase_counts", lambda row: row._replace(ended_count=800), None, "commands"),
        ("handshakes", lambda row: row if row.window_id > 3 else None, None, "handshakes"),
    ],
)  # fmt: skip
def test_a_fault_turns_its_figure_red(
    table: str, change: Callable[[Any], Any], window: int | None, key: str
) -> None:
    assert key in red(changed(table, change, window))


@pytest.mark.parametrize(
    ("table", "change", "key"),
    [
        ("process_clocks", lambda row: row._replace(thread_count=1000, account_count=998),
         "threads"),
        ("cpu_clocks", lambda row: row._replace(sample_count=18) if row.cpu_id else row,
         "samples"),
        ("phase_counts", lambda row: row._replace(ended_count=850), "commands"),
        ("handshakes", lambda row: row if row.window_id > 1 else None, "handshakes"),
        ("losses", lambda row: row._replace(lost_count=50), "exits"),
    ],
)  # fmt: skip
def test_a_fault_just_beyond_the_bound_is_seen(
    table: str, change: Callable[[Any], Any], key: str
) -> None:
    """A bound that is widened lets these pass: what a server loses then is in no warning."""
    made = recording()
    made.probes[0] = made.probes[0]._replace(healed_count=100)
    made.losses = [Loss(3, "healed", 40)]
    assert not red(made)
    rows = [change(row) for row in getattr(made, table)]
    setattr(made, table, [row for row in rows if row is not None])
    assert red(made) == {key}


def test_a_boundary_whose_exits_are_not_seen() -> None:
    made = recording()
    made.probes[0] = made.probes[0]._replace(healed_count=1000)
    assert of("exits", made).verdict == "ok", "while probes were detached"
    made.losses = [Loss(3, "healed", 1000)]
    check = of("exits", made)
    assert (check.verdict, check.what) == ("failed", "write")


def test_what_the_scheduler_charges_to_others_is_on_the_cpu_for_the_ledger_alone() -> None:
    made = recording()
    shift = {"on_cpu": 90 * MS, "runnable": -90 * MS}
    made.ledger = [
        row._replace(time_ns=row.time_ns + shift.get(row.state, 0)) for row in made.ledger
    ]
    assert red(made) == {"on_cpu", "thread_on_cpu", "runnable"}
    assert closure.agreement(closure.cpu_times(made), range(SECONDS)) == pytest.approx(0.85)
    made.process_clocks = [row._replace(handed_ns=90 * MS) for row in made.process_clocks]
    made.clocks = [row._replace(handed_ns=90 * MS) for row in made.clocks]
    assert not red(made)
    assert closure.agreement(closure.cpu_times(made), range(SECONDS)) == 1


def test_one_bad_window_is_not_hidden_by_the_good_ones() -> None:
    made = changed("process_clocks", lambda row: row._replace(seen_switch_count=1900), 6)
    assert of("switches", made).windows == (6, 6)


def test_windows_are_short_and_their_sum_is_judged() -> None:
    made = recording()
    made.windows = [
        Window(row.window_id, None, row.start_ns, row.start_ns + 150 * MS) for row in made.windows
    ]
    assert of("on_cpu", made).verdict == "ok"
    assert of("on_cpu", made).windows is None, "less than two stretches of a second"
    few = {row.window_id for row in made.windows[:6]}
    made.process_clocks = [row for row in made.process_clocks if row.window_id in few]
    assert "ok" not in verdicts(made).values(), "0.9 s are too little"


def test_stolen_time_is_excused_only_as_far_as_the_host_knows_of_it() -> None:
    made = changed("ledger", lambda row: row._replace(time_ns=row.time_ns * 11 // 10))
    assert "on_cpu" in red(made)
    made.system = [row._replace(cpu_steal_ns=60 * MS) for row in made.system]
    assert "on_cpu" not in red(made)
    made.ledger = [row._replace(time_ns=row.time_ns * 8 // 10) for row in made.ledger]
    assert "on_cpu" in red(made), "a gap is never excused by steal"


def test_slow_edges_of_windows_allow_for_what_moved_meanwhile() -> None:
    late = changed("ledger", lambda row: row._replace(time_ns=row.time_ns * 104 // 100), 3)
    assert "on_cpu" in red(late)
    late.process_clocks = [row._replace(edges_ns=20 * MS) for row in late.process_clocks]
    assert "on_cpu" not in red(late)


def test_what_has_no_reference_is_not_checked_and_never_green() -> None:
    made = recording()
    made.process_clocks = [
        row._replace(process_cpu_ns=None, account_wait_ns=None) for row in made.process_clocks
    ]
    made.meta["sample_hz"] = "0"
    made.status, made.probes = [], []
    found = verdicts(made)
    missing = ("on_cpu", "runnable", "thread_cpu", "steal", "samples", "exits", "commands")
    assert {found[key] for key in missing} == {"not checked"}


def test_a_capture_without_references_is_not_checked() -> None:
    older = replace(recording(), process_clocks=[], cpu_clocks=[])
    assert set(verdicts(older).values()) == {"not checked"}
    assert closure.worst(closure.check(older)) is None


def test_an_idle_server_is_too_little() -> None:
    made = changed("process_clocks", lambda row: row._replace(
        process_cpu_ns=MS, account_cpu_ns=MS, account_wait_ns=0, switch_count=10,
        seen_switch_count=10))  # fmt: skip
    made.ledger = [row._replace(time_ns=MS) for row in made.ledger if row.state == "on_cpu"]
    found = verdicts(made)
    assert {found[key] for key in ("on_cpu", "runnable", "switches")} == {"too little"}
    assert found["threads"] == "ok"


def test_the_worst_is_the_one_nearest_to_its_bound() -> None:
    made = changed("process_clocks", lambda row: row._replace(seen_switch_count=1998))
    checks = closure.check(made)
    found = closure.worst(checks)
    assert found is not None
    assert found.figure.key == "switches"
    assert found.used == max(check.used for check in checks)


def test_agreement_is_of_the_windows_that_have_both() -> None:
    made = changed("ledger", lambda row: row._replace(time_ns=row.time_ns * 9 // 10), 3)
    times = closure.cpu_times(made)
    assert closure.agreement(times, [3]) == pytest.approx(0.9)
    assert closure.agreement(times, [1, 2]) == 1
    assert closure.agreement(times, [99]) is None


def spanned(made: Tables, count: int) -> Tables:
    """The same where the kernel's counts are read after so many windows."""
    every = [row for row in made.process_clocks if row.window_id % count == count - 1]
    sums = (
        "process_cpu_ns", "account_cpu_ns", "account_wait_ns", "switch_count", "seen_switch_count",
    )  # fmt: skip
    made.process_clocks = [
        row._replace(window_count=count, **{name: count * getattr(row, name) for name in sums})
        for row in every
    ]
    made.clocks = [
        row._replace(
            window_count=count, lifetime_ns=count * row.lifetime_ns,
            sched_cpu_ns=count * (row.sched_cpu_ns or 0),
        )
        for row in made.clocks if row.window_id % count == count - 1
    ]  # fmt: skip
    return made


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda row: None if row.window_id == 3 else row, "on_cpu"),
        (lambda row: None if row.window_id == 3 else row, "runnable"),
        (lambda row: row._replace(time_ns=row.time_ns * 93 // 100), "thread_on_cpu"),
    ],
)
def test_counts_of_several_windows_judge_them_together(
    change: Callable[[Any], Any], key: str
) -> None:
    assert set(verdicts(spanned(recording(), 5)).values()) == {"ok"}
    made = spanned(changed("ledger", change), 5)
    check = of(key, made)
    assert check.verdict == "failed"
    assert check.windows in ((0, 4), None)
