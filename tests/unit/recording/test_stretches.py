# SPDX-License-Identifier: GPL-2.0-only
"""When calibration stretches are taken, and which of them are kept."""

from typing import Any

import pytest

from tlstax.collectors.capture.schema import CommandPart
from tlstax.collectors.host.clock import monotonic_ns
from tlstax.collectors.recording.calibration import stretches
from tlstax.collectors.recording.calibration.stretches import NO_STRETCHES, Stretches, interval_s

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
    def overhead_ns(self) -> float:
        return COST_NS

    def detach(self) -> None:
        self.calls.append("detach")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time, which stands still."""
    now = [monotonic_ns()]
    monkeypatch.setattr(stretches, "monotonic_ns", lambda: now[0])
    return now


def made(parts: Any) -> Stretches:
    return Stretches(parts, MEAN_S, seed=1)


def test_one_is_due_about_every_mean_time_and_never_at_once(clock: list[int]) -> None:
    found = made(Parts())
    for _ in range(20):
        assert not found.is_due()
        wait_ns = found.due_ns - clock[0]
        assert MEAN_S / 2 <= wait_ns / 1e9 <= MEAN_S * 1.5
        clock[0] += wait_ns
        assert found.is_due()
        assert taken(found, clock=clock), "and the next one is due after its end"


def taken(
    found: Stretches, woken: bool = False, clock: list[int] | None = None
) -> list[CommandPart]:
    """A stretch that ends windows 8 and 9, and takes longer than the mean time."""
    ended: list[float] = []

    def end_window(_end_ns: int, more_ns: float) -> int:
        ended.append(more_ns)
        return 7 + len(ended)

    def rest(_time_ms: int) -> tuple[bool, bool]:
        if clock is not None:
            clock[0] += int(2 * MEAN_S * 1e9)
        return False, woken

    rows = found.take(end_window, rest)
    assert ended == ([0.0] if woken else [0.0, COST_NS]), "its window alone pays for the probes"
    return rows


def test_its_rows_belong_to_the_window_that_it_is() -> None:
    parts = Parts()
    assert taken(made(parts)) == [CommandPart(9, "record_read", 7)]
    assert parts.calls == ["attach", "begin", "detach"]


def test_a_disturbed_stretch_is_dropped_and_detached() -> None:
    parts = Parts()
    assert taken(made(parts), woken=True) == []
    assert parts.calls[-1] == "detach"


def test_without_probes_none_is_ever_due(clock: list[int]) -> None:
    clock[0] += 1 << 61
    assert not NO_STRETCHES.is_due()


@pytest.mark.parametrize(
    ("duration_s", "mean_s"), [(None, 6.0), (10.0, 2.0), (84.0, 6.0), (3600.0, 12.0)]
)
def test_recordings_of_some_length_have_enough_of_them(
    duration_s: float | None, mean_s: float
) -> None:
    assert interval_s(duration_s) == mean_s
