# SPDX-License-Identifier: GPL-2.0-only
"""The dense programs attached for a part of the time: what is exact then, and what stands still."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tlstax.collectors.placement.planning import plan_in_child
from tlstax.collectors.recording.programs.views import SlotView
from tlstax.tests.loader.native import Engine, Options
from tlstax.tests.safe_programs import safe_programs

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

Run = Callable[..., list[dict[str, Any]]]
WINDOWS, WINDOW_S, BETWEEN_S, LOOKS = 3, 0.25, 0.1, 20
PATIENCE_S = 30.0


def engine_on(pid: int, repository: Path) -> Engine:
    """The engine with the truth program's own definitions, not attached."""
    _, plan = plan_in_child(pid, extra=repository / "tests/testprogs")
    return Engine(pid, plan, Options(programs=safe_programs()))


def accounts(engine: Engine) -> dict[int, SlotView]:
    """Slots of the threads that live."""
    return {slot.tid: slot for slot in engine.maps.slots() if not slot.exited}


def await_thread(pid: int, name: str) -> None:
    """Return once a process has a thread of this name."""
    deadline = time.monotonic() + PATIENCE_S
    while not threads(pid, name):
        assert time.monotonic() < deadline, name
        time.sleep(0.01)


def threads(pid: int, name: str) -> set[int]:
    """Those that live, by their present name: accounts have the one that a thread began with."""
    tids = set()
    for file in Path(f"/proc/{pid}/task").glob("*/comm"):
        with suppress(OSError):  # it has ended since
            if file.read_text().strip() == name:
                tids.add(int(file.parent.name))
    return tids


def test_handshakes_are_counted_and_timed_without_the_dense_programs(
    run_watched: Run, repository: Path
) -> None:
    records: list[Any] = []
    engines: list[Engine] = []

    def attach(pid: int) -> None:
        engines.append(engine_on(pid, repository))
        engines[0].attach(dense=False)

    def detach() -> None:
        records.extend(engines[0].maps.handshake_records())
        engines[0].close()

    lines = run_watched(attach, detach, "tls", "ssvs")
    books = [line for line in lines if line["kind"] == "handshake"]
    assert len(records) == len(books) == 4
    assert all(record.unfollowed for record in records)
    assert all(sum(record.state_ns) == 0 for record in records)
    for record in records:
        wall_ns = record.end_ns - record.start_ns
        assert 0 < sum(record.phase_ns) <= wall_ns


def after_an_event(engine: Engine, before: dict[int, SlotView]) -> dict[int, SlotView]:
    """The accounts a window later; on a busy host the program may have had no CPU until then."""
    mine = threads(engine.pid, "tt-states")
    assert mine <= before.keys()
    for _ in range(LOOKS):
        time.sleep(WINDOW_S)
        now = accounts(engine)
        if all(tid in now and now[tid].last_ns > before[tid].last_ns for tid in mine):
            break
    return now


@pytest.mark.alone
def test_each_dense_window_closes_and_nothing_moves_between_them(
    run_watched: Run, repository: Path, tmp_path: Path
) -> None:
    closings: list[tuple[int, int, int]] = []
    still: list[bool] = []
    watchers: list[threading.Thread] = []

    def windows(engine: Engine, pid: int) -> None:
        await_thread(pid, "tt-states")
        for _ in range(WINDOWS):
            engine.attach_dense()
            before = accounts(engine)
            for tid, slot in after_an_event(engine, before).items():
                if old := before.get(tid):
                    spent = sum(slot.cells) - sum(old.cells)
                    closings.append((tid, spent, slot.last_ns - old.last_ns))
            engine.detach_dense()
            paused = accounts(engine)
            time.sleep(BETWEEN_S)
            now = accounts(engine)
            still.extend(slot.paused for slot in paused.values())
            for tid, slot in now.items():  # threads that were born since have no time at all
                spent_ns = paused[tid].cells if tid in paused else [0] * len(slot.cells)
                still.append(list(slot.cells) == list(spent_ns))

    def attach(pid: int) -> None:
        engine = engine_on(pid, repository)
        engine.attach(dense=False)
        watchers.append(threading.Thread(target=windows, args=[engine, pid]))
        watchers[0].start()
        engines.append(engine)

    engines: list[Engine] = []
    lines = run_watched(attach, lambda: watchers[0].join(), "states", tmp_path / "disk", 10, 20)
    engines[0].close()
    (books,) = (line for line in lines if line["kind"] == "thread")
    passed_ns = [passed for tid, _, passed in closings if tid == books["tid"]]
    assert len(passed_ns) == WINDOWS
    assert min(passed_ns) > 0
    assert all(spent == passed for _, spent, passed in closings)
    assert still
    assert all(still)
