# SPDX-License-Identifier: GPL-2.0-only
"""What recording and a probe hit cost in the process, by stretches with and without.

The process is threads that send each other a byte in turn; four dense probes are hit for each.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import pytest

from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Ledger, Probe, ProcessClock, Window
from tlstax.collectors.host import bpf
from tlstax.collectors.host.features import HOST
from tlstax.collectors.host.trial_code import count_program, counter_map, kept
from tlstax.collectors.placement.model import Plan
from tlstax.collectors.placement.planning import plan_in_child
from tlstax.collectors.preflight.safety import Safety
from tlstax.collectors.recording.stream.plan_file import plan_file_text
from tlstax.collectors.recording.stream_recording import import_stream
from tlstax.tests.kernel.recorder_runs import (
    OK,
    PROGRAM,
    Leftover,
    Record,
    Started,
    frames_named,
)
from tlstax.tests.patience import COMMAND_S

pytestmark = [
    pytest.mark.root,
    pytest.mark.needs("btf", "uprobes"),
    pytest.mark.skipif(not HOST.socket_events, reason="this kernel lacks events of sockets"),
]
LOAD_MS, WORK_US, PAIRS_USED = 120_000, 10, 16
CALM_WORK_US, CALM_PAUSE_US, FEW_TIMED = 200, 100, 2
KINDS: Final = ("hit", "whole")
STOLEN_MOST: Final = 0.02
"""CPUs that a hypervisor takes, beyond which times of a second are not comparable."""
SOON_S: Final = 3.0
"""All pairs take longer."""


class Target(NamedTuple):
    process: "subprocess.Popen[bytes]"
    plan: Plan
    path: Path
    program: Path


class Recorded(NamedTuple):
    capture: Path
    price: Any
    """The last estimate of a hit; None: there was none."""
    whole: Any
    """That of a send."""
    per_send_ns: float
    """What windows say that recording cost the process for a send."""


@pytest.fixture
def target(program: Path, started: Started, repository: Path, tmp_path: Path) -> Target:
    process = started(program, "load", 1, LOAD_MS, WORK_US)
    found, plan = plan_in_child(process.pid, extra=repository / "tests/testprogs")
    path = tmp_path / "load.plan"
    path.write_text(plan_file_text(found, plan, Safety()))
    return Target(process, plan, path, program)


def is_busy() -> bool:
    """Whether others take most of this host's CPUs."""
    cpus_count = os.cpu_count() or 1
    return os.getloadavg()[0] > 3 * cpus_count


def stolen_s() -> float:
    """What a hypervisor has taken from this host's CPUs."""
    return int(Path("/proc/stat").read_text().split()[8]) / os.sysconf("SC_CLK_TCK")


def go(target: Target) -> None:
    assert target.process.stdin is not None
    target.process.stdin.write(b"g")
    time.sleep(0.2)


def recorded(target: Target, spawn: Record, *options: str) -> Recorded:
    """Record, with `--measure-cost`."""
    stream, capture = target.path.with_suffix(".stream"), target.path.with_suffix(".tlstax")
    stream.unlink(missing_ok=True)
    command = [PROGRAM, "--plan", target.path, "--pid", target.process.pid, "--measure-cost"]
    command += ["--output", stream, *options]
    recorder = spawn([str(part) for part in command], stderr=subprocess.PIPE)
    _, said = recorder.communicate(timeout=COMMAND_S)
    assert recorder.returncode == OK, said
    with stream.open("rb") as file:
        import_stream(file, stream.name, capture, overwrite=True)
    windows = frames_named("window", stream.read_bytes())
    with CaptureReader.open(capture) as reader:
        sends = sum(row.hits_count for row in reader.rows(Probe) if row.function == "tt_load_write")
    said_ns = sum(window.probes_ns + window.scheduler_ns for window in windows[1:])
    per_send_ns = said_ns / sends if sends else 0.0
    prices, wholes = (frames_named(f"{what}_price", stream.read_bytes()) for what in KINDS)
    return Recorded(
        capture, prices[-1] if prices else None, wholes[-1] if wholes else None, per_send_ns
    )


@contextmanager
def trapped(target: Target) -> Iterator[None]:
    """The process traps at all places of the plan anyway, for a program that counts."""
    with ExitStack() as stack:
        counter = counter_map(stack)
        program = bpf.load_program(
            bpf.ProgramType.KPROBE, count_program(counter), bpf.ATTACH_UPROBE_MULTI
        )
        kept(stack, program)
        path, pid = str(target.program), target.process.pid
        sites = [site for site in target.plan.sites if site.object.path == path]
        offsets = sorted({site.file_offset for site in sites if "load" in site.function})
        assert len(offsets) > 2
        cookies = [0] * len(offsets)
        kept(stack, bpf.attach_uprobe_multi(program, path, offsets, cookies, pid, False))
        yield


@pytest.mark.timing
def test_windows_say_what_recording_was_measured_to_cost(
    target: Target, spawn: Record, leftover: Leftover
) -> None:
    """It costs less where the process traps anyway: the rest are programs.

    On a host that is too busy for a certain figure the windows have the default.
    """
    go(target)
    began = stolen_s(), time.monotonic()
    alone = recorded(target, spawn, "--for", "1s")
    stolen = (stolen_s() - began[0]) / (time.monotonic() - began[1])
    assert leftover() == set()
    whole = alone.whole
    assert whole is not None
    assert whole.is_server_used or is_busy(), (whole.server_low_ns, whole.server_high_ns)
    assert whole.server_low_ns <= whole.server_ns <= whole.server_high_ns
    assert whole.is_server_used == (whole.ratio_ppm > 0 and whole.pairs_count >= PAIRS_USED)
    half_ns = (whole.server_high_ns - whole.server_low_ns) / 2
    if half_ns <= 0.25 * whole.server_ns:
        assert whole.server_told_ns == pytest.approx(whole.server_ns, rel=0.15)
    if whole.is_server_used:
        # The kernel times programs with what a hypervisor takes from their CPU meanwhile.
        bound = 0.2 if stolen < STOLEN_MOST else 0.6
        assert alone.per_send_ns == pytest.approx(whole.server_told_ns, rel=bound)
    with CaptureReader.open(alone.capture) as reader:
        meta, windows = reader.meta(), list(reader.rows(Window))
    assert meta["hit_cost_source"] == ("scaled" if whole.is_server_used else "default")
    assert meta["send_cost_ns"] == str(whole.server_ns)
    assert {row.level for row in windows} == {"full"}, "no stretch is in the recording"
    with CaptureReader.open(alone.capture) as reader:
        (first, *_), rows = list(reader.rows(ProcessClock)), list(reader.rows(Ledger))
    own = [row for row in rows if row.window_id == first.window_id and row.state == "on_cpu"]
    on_cpu_ns = sum(row.time_ns for row in own) - first.handed_ns - first.steal_ns
    assert on_cpu_ns == pytest.approx(first.process_cpu_ns, rel=0.1), "it closes after stretches"
    with trapped(target):
        beside = recorded(target, spawn, "--for", "1s")
    assert beside.whole is not None
    assert beside.whole.server_ns < 0.75 * whole.server_ns


@pytest.mark.timing
def test_with_a_budget_a_stretch_precedes_each_dense_window(target: Target, spawn: Record) -> None:
    """What happens in it is in no ledger."""
    go(target)
    made = recorded(target, spawn, "--budget", "10%", "--for", "20s")
    with CaptureReader.open(made.capture) as reader:
        windows = {row.window_id: row for row in reader.rows(Window)}
        rows = list(reader.rows(Ledger))
    assert made.price is not None, [row.level for row in windows.values()]
    assert made.price.pairs_count >= 8
    ordered = list(windows.values())
    assert all(a.end_ns == b.start_ns for a, b in pairwise(ordered))
    assert {windows[row.window_id].level for row in rows} == {"full"}
    for window in ordered[1:-1]:
        spent_ns = sum(row.time_ns for row in rows if row.window_id == window.window_id)
        length_ns = window.end_ns - window.start_ns
        assert spent_ns <= 4.2 * length_ns, "two threads, main, and short ones"


@pytest.mark.timing
def test_an_idle_process_is_not_waited_for(target: Target, spawn: Record) -> None:
    began_s = time.monotonic()
    made = recorded(target, spawn, "--for", "500ms")
    assert time.monotonic() - began_s < SOON_S
    assert made.price is None
    assert made.whole is None
    with CaptureReader.open(made.capture) as reader:
        assert reader.meta()["hit_cost_source"] == "default"


@pytest.mark.timing
def test_it_ends_while_it_measures(
    target: Target, spawn: Record, leftover: Leftover, breakpoints: Callable[[int], int]
) -> None:
    go(target)
    command = [PROGRAM, "--plan", target.path, "--pid", target.process.pid, "--measure-cost"]
    recorder = spawn(
        [str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    until_s = time.monotonic() + COMMAND_S
    while not breakpoints(target.process.pid) and time.monotonic() < until_s:
        time.sleep(0.02)
    time.sleep(0.3)
    recorder.send_signal(signal.SIGINT)
    began_s = time.monotonic()
    _, said = recorder.communicate(timeout=COMMAND_S)
    assert recorder.returncode == OK, said
    assert time.monotonic() - began_s < SOON_S
    assert breakpoints(target.process.pid) == 0
    assert leftover() == set()


@pytest.mark.timing
@pytest.mark.parametrize("budget", [(), ("--budget", "50%")], ids=["none", "half"])
def test_windows_that_are_not_timed_have_their_cost(
    program: Path, started: Started, spawn: Record, repository: Path, tmp_path: Path,
    budget: tuple[str, ...],
) -> None:  # fmt: skip
    """With a budget all are: rates of long ago would not tell that neighbours became busy."""
    process = started(program, "load", 1, LOAD_MS, CALM_WORK_US, CALM_PAUSE_US)
    found, plan = plan_in_child(process.pid, extra=repository / "tests/testprogs")
    path = tmp_path / "calm.plan"
    path.write_text(plan_file_text(found, plan, Safety()))
    go(Target(process, plan, path, program))
    stream = tmp_path / "calm.stream"
    command = [PROGRAM, "--plan", path, "--pid", process.pid, "--output", stream, *budget]
    command += ["--for", "9s", "--window", "500ms"]
    recorder = spawn([str(part) for part in command], stderr=subprocess.PIPE)
    _, said = recorder.communicate(timeout=COMMAND_S)
    assert recorder.returncode == OK, said
    windows = frames_named("window", stream.read_bytes())
    assert {bytes(window.level) for window in windows} == {b"record"}
    timed_count = sum(bool(window.timed) for window in windows[1:])
    assert timed_count == len(windows) - 1 if budget else 0 < timed_count <= FEW_TIMED
    if not budget:
        untimed, timed = costs(windows, False), costs(windows, True)
        assert median(untimed) == pytest.approx(median(timed), rel=0.5)


def costs(windows: list[Any], is_timed: bool) -> list[float]:
    """What windows say that probes and events cost, by time."""
    return [
        (after.probes_ns + after.scheduler_ns) / (after.end_ns - before.end_ns)
        for before, after in pairwise(windows)
        if bool(after.timed) == is_timed
    ]
