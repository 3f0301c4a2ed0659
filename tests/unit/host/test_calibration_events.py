# SPDX-License-Identifier: GPL-2.0-only
"""Prices of events: of those that the measured loop causes, and none of what did not run."""

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace
from typing import Final

import pytest

from tlstax.collectors.host.probe_costs import calibration_events
from tlstax.collectors.host.probe_costs.calibration_events import ROUNDS

OWN: Final = 800
INTERRUPTED: Final = """
import os, signal, time
from pathlib import Path
from tlstax.collectors.host.probe_costs.calibration_events import _partner
try:
    with _partner():
        child = int(Path(f"/proc/self/task/{os.getpid()}/children").read_text())
        os.kill(child, signal.SIGINT)
finally:
    print("left", flush=True)
"""


@pytest.fixture
def loop() -> Iterator[SimpleNamespace]:
    """A loop of 800 events that takes 1000 ns an event longer while a program is attached."""
    made = SimpleNamespace(is_attached=False, counted=0, seen=OWN)
    descriptors: list[int] = []

    def attach(_: int) -> int:
        made.is_attached = True
        descriptors.append(os.open(os.devnull, os.O_RDONLY))
        return descriptors[-1]

    def run() -> int:
        was_attached, made.is_attached = made.is_attached, False
        made.counted += made.seen if was_attached else 0
        return 5_000_000 + (1000 * OWN if was_attached else 0)

    made.run = run
    made.bpf = SimpleNamespace(open_raw_tracepoint=attach, read_counter=lambda _: made.counted)
    yield made
    for descriptor in descriptors:
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(descriptor)


@pytest.mark.parametrize("seen", [OWN, 4 * OWN])
def test_events_of_other_processes_do_not_make_one_cheaper(
    monkeypatch: pytest.MonkeyPatch, loop: SimpleNamespace, seen: int
) -> None:
    """All CPUs of the host count."""
    monkeypatch.setattr(calibration_events, "bpf", loop.bpf)
    loop.seen = seen
    assert calibration_events._costs_ns(1, 2, loop.run, OWN) == [1000.0] * ROUNDS


@pytest.mark.parametrize("seen", [0, OWN - 1])
def test_a_program_that_did_not_run_has_no_price(
    monkeypatch: pytest.MonkeyPatch, loop: SimpleNamespace, seen: int
) -> None:
    monkeypatch.setattr(calibration_events, "bpf", loop.bpf)
    loop.seen = seen
    assert calibration_events._costs_ns(1, 2, loop.run, OWN) == []


def test_a_program_that_is_refused_has_no_price(
    monkeypatch: pytest.MonkeyPatch, loop: SimpleNamespace
) -> None:
    tries = count()

    def refuse(_: int) -> int:
        next(tries)
        raise PermissionError

    loop.bpf.open_raw_tracepoint = refuse
    monkeypatch.setattr(calibration_events, "bpf", loop.bpf)
    assert calibration_events._costs_ns(1, 2, loop.run, OWN) == []
    assert next(tries) == 1


def test_ctrl_c_does_not_make_a_second_tlstax_of_the_partner() -> None:
    """The terminal sends it to both processes."""
    command = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert (done.stdout, done.stderr) == ("left\n", "")
