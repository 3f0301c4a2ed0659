# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax probes plan --ssh --output`: plans of another host, with which a recorder records."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tlstax import ExitCode
from tlstax.collectors.capture.schema import Calibration, Probe
from tlstax.collectors.host.features import HOST
from tlstax.collectors.host.probe_costs.prices import HostCosts
from tlstax.collectors.recording.stream.plan_file import read_plan_file
from tlstax.collectors.recording.stream.replay import Replay
from tlstax.tests.kernel.recorder_runs import PROGRAM, Leftover, rows_of
from tlstax.tests.kernel.remote.remote_host import RemoteHost
from tlstax.tests.kernel.remote.sessions import GONE_SECONDS, Attach, line_of, said

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


@pytest.mark.alone
def test_hits_have_the_price_of_the_other_host(
    box: RemoteHost, environment: dict[str, str], recorded_server: "subprocess.Popen[bytes]",
    repository: Path, tlstax: list[str], tmp_path: Path, leftover: Leftover,
) -> None:  # fmt: skip
    """Its recorder measures once, on its own code; plan, budget and report then use that."""
    pid, capture = str(recorded_server.pid), tmp_path / "a.tlstax"
    rest = ["--ssh", "box", "--sudo", pid, "--definitions", str(repository / "tests/testprogs")]

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [*tlstax, *words], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "the costs of another machine" not in done.stderr
        box.await_nothing_left(GONE_SECONDS)
        return done

    document = json.loads(run("probes", "plan", "--json", *rest).stdout)
    prices = document["prices"]
    assert prices["measured"]
    assert 1 <= prices["cpus_count"] <= (os.cpu_count() or 1)
    costs_ns = {site["cost_ns"] for site in document["sites"]}
    assert costs_ns <= {0.0, prices["emulated_ns"], prices["stepped_ns"]}
    assert prices["emulated_ns"] != HostCosts().prices.emulated_ns
    (kept,) = (tmp_path / "cache/tlstax/prices").iterdir()
    content = json.loads(kept.read_text())
    run("attach", *rest, "-o", str(capture), "--for", "1s", "--window", "200ms", "--budget", "5%")
    assert json.loads(kept.read_text()) == content, "it was not measured again"
    assert leftover() == set()
    assert {row.cost_ns for row in rows_of(capture, Probe) if row.kind.startswith("u")} <= costs_ns
    rows = rows_of(capture, Calibration)
    assert [list(row) for row in rows] == content["rows"]
    assert {row.cpus_count for row in rows} >= {1}


@pytest.mark.parametrize("ended", ["line", "recorder"])
def test_nothing_stays_of_a_measurement_that_is_cut(
    box: RemoteHost, environment: dict[str, str], recorded_server: "subprocess.Popen[bytes]",
    spawn: Attach, tlstax: list[str], leftover: Leftover, ended: str,
) -> None:  # fmt: skip
    command = [*tlstax, "probes", "plan", "--ssh", "box", "--sudo", str(recorded_server.pid)]
    process = spawn(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not box.processes("tlstax-prices"):
        assert process.poll() is None, process.communicate()
    victims = [line_of(process)] if ended == "line" else box.processes("tlstax-recorder")
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    assert "box cannot be recorded" in said(process, ExitCode.HOST)
    box.await_nothing_left(GONE_SECONDS)
    assert leftover() == set()
