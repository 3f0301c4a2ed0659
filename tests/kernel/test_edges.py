# SPDX-License-Identifier: GPL-2.0-only
"""What happens to a target and its host besides work: stopped, traced, gone; a CPU or a clock."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from tlstax import ExitCode
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Ledger, SampleStack, Window
from tlstax.collectors.placement.planning import plan_in_child
from tlstax.collectors.recording.programs import ledger_layout as layout
from tlstax.tests.kernel.tracing import traced
from tlstax.tests.loader.native import Engine, Options
from tlstax.tests.patience import COMMAND_S
from tlstax.tests.safe_programs import safe_programs

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

TARGET = 4
SPIN_MS, STOP_S = 400, 0.5
SECOND_CPU = Path("/sys/devices/system/cpu/cpu1/online")
KILLED_AFTER_S = (0.3, 0.5, 0.7, 0.9, 1.1)
HOUR_S = 3600

Target = subprocess.Popen[bytes]


@pytest.fixture
def crowd(spawn: Callable[..., Target], repository: Path) -> Target:
    """The program of many threads (tests/testprogs/crowd.c), with two of them."""
    program = repository / "tests/testprogs/bin/crowd"
    process = spawn([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    answer(process)
    order(process, "+ 2")
    answer(process)
    return process


def order(process: Target, text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{text}\n".encode())


def answer(process: Target) -> None:
    assert process.stdout is not None
    assert process.stdout.readline()


@contextmanager
def engine_on(pid: int) -> Iterator[Engine]:
    """The engine, attached."""
    _, plan = plan_in_child(pid)
    engine = Engine(pid, plan, Options(programs=safe_programs()))
    try:
        engine.attach()
        yield engine
    finally:
        engine.close()


def busiest(engine: Engine) -> dict[str, int]:
    """Time by state of the thread that ran most."""
    found = []
    for slot in engine.maps.slots():
        states = [sum(slot.cells[i :: layout.STATE_CELLS]) for i in range(layout.STATE_CELLS)]
        found.append({name: states[index] for name, index in layout.STATE_INDEX.items()})
    return max(found, key=lambda states: states["on_cpu"])


@pytest.mark.timing
def test_a_stopped_thread_is_blocked_and_not_on_a_cpu(crowd: Target) -> None:
    with engine_on(crowd.pid) as engine:
        order(crowd, f"! {SPIN_MS * 1000}")
        time.sleep(SPIN_MS / 2000)
        crowd.send_signal(signal.SIGSTOP)
        time.sleep(STOP_S)
        crowd.send_signal(signal.SIGCONT)
        answer(crowd)
        states = busiest(engine)
    assert states["blocked_other"] == pytest.approx(STOP_S * 1e9, rel=0.1)
    assert states["on_cpu"] == pytest.approx(SPIN_MS * 1e6, rel=0.1)


def attach(tlstax: list[str], pid: int, capture: Path, *more: str) -> list[str]:
    command = [*tlstax, "attach", str(pid), "--quiet", "--budget", "none", "-o", str(capture)]
    return [*command, *more]


def test_a_traced_target_is_recorded_or_refused_in_a_sentence(
    crowd: Target, tlstax: list[str], tmp_path: Path
) -> None:
    command = attach(tlstax, crowd.pid, tmp_path / "a", "--for", "1s")
    with traced(crowd.pid):
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_S, check=False
        )
    assert "Traceback" not in done.stderr
    assert done.returncode == 0 or len(done.stderr.splitlines()) == 1, done.stderr
    order(crowd, "! 1000")
    answer(crowd)


def test_a_stopped_target_is_refused_or_recorded_if_accepted_and_goes_on(
    crowd: Target, tlstax: list[str], tmp_path: Path
) -> None:
    crowd.send_signal(signal.SIGSTOP)
    command = attach(tlstax, crowd.pid, tmp_path / "a", "--for", "1s")
    refused = subprocess.run(
        command, capture_output=True, text=True, timeout=COMMAND_S, check=False
    )
    accepted = [*command, "--accept", "stopped"]
    done = subprocess.run(accepted, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    crowd.send_signal(signal.SIGCONT)
    assert refused.returncode == ExitCode.TARGET
    assert "it is stopped" in refused.stderr
    assert done.returncode == 0, done.stderr
    with CaptureReader.open(tmp_path / "a") as reader:
        assert not sum(row.time_ns for row in reader.rows(Ledger) if row.state == "on_cpu")
    order(crowd, "! 1000")
    answer(crowd)


@pytest.mark.parametrize("after_s", KILLED_AFTER_S)
def test_a_target_that_ends_while_it_is_planned_is_one_error(
    crowd: Target, tlstax: list[str], tmp_path: Path, after_s: float
) -> None:
    """Killed at some moment between the start of Python and the first window."""
    killer = threading.Timer(after_s, crowd.kill)
    killer.start()
    command = attach(tlstax, crowd.pid, tmp_path / "a", "--for", "20s")
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    killer.join()
    # Other tests may have probes in the same libraries at the same time.
    told = ("attached to", "preflight (other-probes)")
    errors = [line for line in done.stderr.splitlines() if not any(one in line for one in told)]
    assert done.returncode == TARGET, done.stderr
    assert len(errors) == 1, done.stderr
    assert str(crowd.pid) in errors[0]


@pytest.fixture
def second_cpu() -> Iterator[Path]:
    """The switch of a CPU."""
    assert SECOND_CPU.exists()
    try:
        yield SECOND_CPU
    finally:
        SECOND_CPU.write_text("1")


@pytest.mark.needs("own_machine")
def test_a_cpu_that_comes_back_is_sampled(
    crowd: Target, tlstax: list[str], tmp_path: Path, second_cpu: Path
) -> None:
    """And one that leaves takes nothing with it."""
    os.sched_setaffinity(crowd.pid, {0, 1})
    second_cpu.write_text("0")
    command = attach(tlstax, crowd.pid, tmp_path / "a", "--for", "20s", "--window", "500ms")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as recorder:
        assert recorder.stderr is not None
        assert "attached to" in recorder.stderr.readline()
        second_cpu.write_text("1")
        time.sleep(2)
        second_cpu.write_text("0")
        time.sleep(2)
        second_cpu.write_text("1")
        time.sleep(2)
        for tid in os.listdir(f"/proc/{crowd.pid}/task"):
            os.sched_setaffinity(int(tid), {1})
        order(crowd, "! 2000000")
        answer(crowd)
        recorder.send_signal(signal.SIGINT)
        errors = recorder.stderr.read()
    assert recorder.returncode == 0, errors
    with CaptureReader.open(tmp_path / "a") as reader:
        assert sum(row.sample_count for row in reader.rows(SampleStack)) > 20


@pytest.mark.needs("own_machine")
def test_a_step_of_the_clock_moves_no_window(
    crowd: Target, tlstax: list[str], tmp_path: Path
) -> None:
    command = attach(tlstax, crowd.pid, tmp_path / "a", "--for", "4s", "--window", "500ms")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as recorder:
        assert recorder.stderr is not None
        assert "attached to" in recorder.stderr.readline()
        for step_s in (HOUR_S, -2 * HOUR_S, HOUR_S):
            time.clock_settime(time.CLOCK_REALTIME, time.time() + step_s)
            time.sleep(0.5)
        errors = recorder.stderr.read()
        assert recorder.wait(60) == 0, errors
    with CaptureReader.open(tmp_path / "a") as reader:
        windows = list(reader.rows(Window))
    assert len(windows) >= 4
    assert all(0 < window.end_ns - window.start_ns < 5e9 for window in windows)
    assert all(one.end_ns == two.start_ns for one, two in pairwise(windows))
