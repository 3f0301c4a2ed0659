# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax probes plan --ssh --output`: plans of another host, with which a recorder records."""

import subprocess
from pathlib import Path

import pytest

from tlstax.collectors.host.features import HOST
from tlstax.collectors.recording.stream.plan_file import read_plan_file
from tlstax.collectors.recording.stream.replay import Replay
from tlstax.tests.kernel.recorder_runs import PROGRAM
from tlstax.tests.kernel.remote.remote_host import RemoteHost
from tlstax.tests.kernel.remote.sessions import GONE_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]


@pytest.mark.skipif(not HOST.socket_events, reason="this kernel lacks events of sockets")
def test_a_plan_with_calibration_stretches(
    box: RemoteHost, environment: dict[str, str], recorded_server: "subprocess.Popen[bytes]",
    repository: Path, tlstax: list[str], tmp_path: Path,
) -> None:  # fmt: skip
    pid, plan, stream = str(recorded_server.pid), tmp_path / "a.plan", tmp_path / "a.stream"
    command = [
        *tlstax, "probes", "plan", "--ssh", "box", "--sudo", pid, "--level", "flow",
        "--calibrate", "--output", plan, "--definitions", repository / "tests/testprogs",
    ]  # fmt: skip
    words = [str(part) for part in command]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    box.await_nothing_left(GONE_SECONDS)
    made = read_plan_file(plan.read_text())
    assert made.stretches is not None
    assert len(made.stretches.sites) > len(made.plan.sites)
    recorder = [str(part) for part in (PROGRAM, "--plan", plan, "--pid", pid, "--for", "4s")]
    recorder += ["--output", str(stream), "--calibrate", "600ms"]
    subprocess.run(recorder, check=True, capture_output=True)
    with stream.open("rb") as file:
        replay, stretches_count = Replay(file), 0
        while replay.next_window():
            stretches_count += bool(replay.window.is_stretch)
    assert stretches_count
