# SPDX-License-Identifier: GPL-2.0-only
"""The kernel times the programs in few windows of a recording all the time.

The process is threads that send each other a byte in turn, so that each window is like the last.
"""

import subprocess
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tlstax.collectors.placement.planning import plan_in_child
from tlstax.collectors.preflight.safety import Safety
from tlstax.collectors.recording.stream.plan_file import plan_file_text
from tlstax.tests.kernel.recorder_runs import OK, PROGRAM, Record, Started, frames_named
from tlstax.tests.patience import COMMAND_S

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes"), pytest.mark.timing]
LOAD_MS, WORK_US, PAUSE_US = 60_000, 200, 100
FEW = 4  # the trial, and windows until 2,000 runs of the programs at probes are known


@pytest.mark.parametrize("budget", [(), ("--budget", "50%")], ids=["none", "half"])
def test_few_windows_are_timed_and_all_have_their_cost(
    program: Path, started: Started, spawn: Record, repository: Path, tmp_path: Path,
    budget: tuple[str, ...],
) -> None:  # fmt: skip
    process = started(program, "load", 1, LOAD_MS, WORK_US, PAUSE_US)
    found, plan = plan_in_child(process.pid, extra=repository / "tests/testprogs")
    plan_path, stream = tmp_path / "load.plan", tmp_path / "load.stream"
    plan_path.write_text(plan_file_text(found, plan, Safety()))
    assert process.stdin is not None
    process.stdin.write(b"g")
    time.sleep(0.2)
    command = [PROGRAM, "--plan", plan_path, "--pid", process.pid, "--output", stream, *budget]
    command += ["--for", "9s", "--window", "500ms"]
    recorder = spawn([str(part) for part in command], stderr=subprocess.PIPE)
    _, said = recorder.communicate(timeout=COMMAND_S)
    assert recorder.returncode == OK, said
    base, *windows = frames_named("window", stream.read_bytes())
    assert {bytes(window.level) for window in windows} == {b"record"}
    assert not windows[-1].timed
    assert 0 < sum(bool(window.timed) for window in windows) <= FEW
    rates = {is_timed: costs([base, *windows], is_timed) for is_timed in (False, True)}
    assert min(rates[False]) > 0, "those that are not timed have a cost, too"
    assert median(rates[False]) == pytest.approx(median(rates[True]), rel=0.5)


def costs(windows: list[Any], is_timed: bool) -> list[float]:
    """What windows say that probes and events cost, by time."""
    return [
        (after.probes_ns + after.scheduler_ns) / (after.end_ns - before.end_ns)
        for before, after in pairwise(windows)
        if bool(after.timed) == is_timed
    ] or [0.0]
