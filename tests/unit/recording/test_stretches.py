# SPDX-License-Identifier: GPL-2.0-only
"""When calibration stretches are taken, and which of them are kept."""

from typing import Any

import pytest

from tlstax.collectors.capture.schema import CommandPart
from tlstax.collectors.host.clock import monotonic_ns
from tlstax.collectors.recording.calibration import stretches
from tlstax.collectors.recording.calibration.stretches import NO_STRETCHES, Stretches, interval_s
from tlstax.collectors.recording.engine.budget import Account, Overhead

MEAN_S = 4.0
COST_NS = 3_000_000.0


class Parts:
    """The second engine, which notes what is done with it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def attach(self) -> None:
        self.calls.append("attach")

    def begin(self, _now_ns: int) -> None:
        self.calls.append("begin")

    def told(self, window_id: int, _now_ns: int) -> list[CommandPart]:
        return [CommandPart(window_id, "record_read", 7)]

    @property
    def overhead(self) -> Overhead:
        return Overhead(probes_ns=COST_NS)

    def detach(self) -> None:
        self.calls.append("detach")


class FlowSchedule:
    """A schedule at level `flow`."""

    def __init__(self, account: Account | None = None) -> None:
        self.is_steady_flow = True
        self.account = account


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time, which stands still."""
    now = [monotonic_ns()]
    monkeypatch.setattr(stretches, "monotonic_ns", lambda: now[0])
    return now


def made(parts: Any) -> Stretches:
    return Stretches(parts, MEAN_S, seed=1)


def test_one_is_due_about_every_mean_time_and_never_at_once(clock: list[int]) -> None:
    found, schedule = made(Parts()), FlowSchedule()
    for _ in range(20):
        assert not found.is_due(schedule)  # type: ignore[arg-type]
        waits_s = (found.wake_ns(schedule) - clock[0]) / 1e9  # type: ignore[arg-type]
        assert MEAN_S / 2 <= waits_s <= MEAN_S * 1.5
        clock[0] += int(waits_s * 1e9) + 1
        assert found.is_due(schedule)  # type: ignore[arg-type]
        assert taken(found, schedule, clock=clock), "and the next one is due after its end"


def taken(
    found: Stretches,
    schedule: FlowSchedule,
    woken: bool = False,
    level_falls: bool = False,
    clock: list[int] | None = None,
) -> list[CommandPart]:
    """A stretch that ends windows 8 and 9, and takes longer than the mean time."""
    ended: list[Overhead | None] = []

    def end_window(_end_ns: int, more: Overhead | None) -> int:
        ended.append(more)
        schedule.is_steady_flow = not level_falls
        return 7 + len(ended)

    def rest(_time_ms: int) -> tuple[bool, bool]:
        if clock is not None:
            clock[0] += int(2 * MEAN_S * 1e9)
        return False, woken

    rows = found.take(schedule, end_window, rest)  # type: ignore[arg-type]
    assert ended[0] is None, "the window before it costs nothing more"
    assert not rows or ended[1] == Overhead(probes_ns=COST_NS)
    return rows


def test_its_rows_belong_to_the_window_that_it_is() -> None:
    parts = Parts()
    assert taken(made(parts), FlowSchedule()) == [CommandPart(9, "record_read", 7)]
    assert parts.calls == ["attach", "begin", "detach"]


@pytest.mark.parametrize("how", ["woken", "level_falls"])
def test_a_disturbed_stretch_is_dropped_and_detached(how: str) -> None:
    parts = Parts()
    is_woken = how == "woken"
    assert taken(made(parts), FlowSchedule(), woken=is_woken, level_falls=not is_woken) == []
    assert parts.calls[-1] == "detach"


def test_the_budget_s_account_must_pay_for_it(clock: list[int]) -> None:
    account = Account(0.05)
    found, schedule = made(Parts()), FlowSchedule(account)
    clock[0] += int(2 * MEAN_S * 1e9)
    assert not found.is_due(schedule)  # type: ignore[arg-type]
    assert found.wake_ns(schedule) > clock[0], "it is not asked again at once"  # type: ignore[arg-type]
    account.settle(10**10, 10**10, Overhead())
    clock[0] += int(2 * MEAN_S * 1e9)
    assert found.is_due(schedule)  # type: ignore[arg-type]


def test_without_probes_or_at_another_level_none_is_due(clock: list[int]) -> None:
    found, schedule = made(Parts()), FlowSchedule()
    schedule.is_steady_flow = False
    clock[0] += int(2 * MEAN_S * 1e9)
    assert not found.is_due(schedule)  # type: ignore[arg-type]
    schedule.is_steady_flow = True
    assert not NO_STRETCHES.is_due(schedule)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("duration_s", "mean_s"), [(None, 6.0), (10.0, 2.0), (84.0, 6.0), (3600.0, 12.0)]
)
def test_recordings_of_some_length_have_enough_of_them(
    duration_s: float | None, mean_s: float
) -> None:
    assert interval_s(duration_s) == mean_s
