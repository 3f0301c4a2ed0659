# SPDX-License-Identifier: GPL-2.0-only
"""The recorder alone takes calibration stretches: windows of their own, at level flow."""

import subprocess
from pathlib import Path

import pytest

from tlstax.collectors.host.features import HOST
from tlstax.collectors.placement.planning import plan_in_child
from tlstax.collectors.preflight.safety import Safety
from tlstax.collectors.recording.by_recorder.stretch_times import STRETCH_MS
from tlstax.collectors.recording.stream.plan_file import plan_file_text
from tlstax.collectors.recording.stream.replay import Replay
from tlstax.probes.model import Level
from tlstax.tests.kernel.recorder_runs import PROGRAM

pytestmark = [
    pytest.mark.root,
    pytest.mark.needs("btf", "uprobes"),
    pytest.mark.skipif(not HOST.socket_events, reason="this kernel lacks events of sockets"),
]
CODE = "import ssl, sys; print('ready', flush=True); sys.stdin.read()"


def test_each_is_a_window_and_the_ledger_goes_on(tmp_path: Path) -> None:
    plan_file, stream = tmp_path / "a.plan", tmp_path / "a.stream"
    with subprocess.Popen(
        ["/usr/bin/python3", "-c", CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        target, plan = plan_in_child(process.pid, Level.FLOW)
        stretches = plan_in_child(process.pid, Level.RECORD)[1]
        plan_file.write_text(plan_file_text(target, plan, Safety(), stretches=stretches))
        command = [str(PROGRAM), "--plan", str(plan_file), "--pid", str(process.pid), "--for", "4s"]
        command += ["--calibrate", "600ms", "--output", str(stream)]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 0, done.stderr
    lengths: dict[bool, list[int]] = {True: [], False: []}
    with stream.open("rb") as file:
        replay = Replay(file)
        last_ns = int(replay.window.end_ns)
        while replay.next_window():
            now = replay.window
            lengths[bool(now.is_stretch)].append(int(now.end_ns) - last_ns)
            last_ns = int(now.end_ns)
            assert (now.level, now.restarts) == (b"flow", 0), "the ledger has no gap"
    assert lengths[True], "there was none"
    assert all(length_ns >= STRETCH_MS * 1_000_000 for length_ns in lengths[True])
    assert len(lengths[False]) >= len(lengths[True]), "other windows lie between them"
