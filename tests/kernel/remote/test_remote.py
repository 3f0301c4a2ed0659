# SPDX-License-Identifier: GPL-2.0-only
"""Recording over ssh: what is recorded, how it ends, and that nothing stays on the other host.

The sshd is real, in network and mount namespaces of its own; its user may only sudo the recorder.
`make test-ssh` runs all of it; `make test` leaves out what waits long.
"""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tlstax.collectors.capture.schema import Frame, Handshake, Ledger, Meta, Window
from tlstax.collectors.remote.remote_recording import RecordRequest
from tlstax.tests import least_budget
from tlstax.tests.kernel.recorder_runs import (
    HANDSHAKES,
    IO,
    OK,
    TARGET,
    Breakpoints,
    Leftover,
    Started,
    rows_of,
    serve,
)
from tlstax.tests.kernel.remote.remote_host import RemoteHost
from tlstax.tests.kernel.remote.sessions import (
    GONE_SECONDS,
    Attach,
    await_line,
    line_of,
    said,
    ssh_of,
)

HOST, BUDGET = 3, 7
SILENCE_SECONDS, STALL_SECONDS = 20.0, 10.0
pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]


def test_a_recording_is_whole_and_leaves_nothing(
    attach: Attach, box: RemoteHost, capture: Path, breakpoints: Breakpoints, leftover: Leftover,
    recorded_server: "subprocess.Popen[bytes]",
) -> None:  # fmt: skip
    process = attach("--sample-hz", "999")
    assert box.files() == [], "it deleted itself when it was started"
    assert len(box.processes("tlstax-recorder")) == 1
    assert breakpoints(recorded_server.pid) > 10
    serve(recorded_server)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    said(process, OK)
    box.await_nothing_left(GONE_SECONDS)
    assert leftover() == set()
    assert sorted(path.name for path in capture.parent.glob("a.*")) == ["a.tlstax"]
    assert [row.outcome for row in rows_of(capture, Handshake)] == ["success"] * HANDSHAKES
    assert len(rows_of(capture, Window)) >= 3
    assert sum(row.time_ns for row in rows_of(capture, Ledger)) > 0
    meta = {row.key: row.value for row in rows_of(capture, Meta)}
    assert meta["target_ending"] == "it was running"
    assert any(not row.symbol.startswith("[") for row in rows_of(capture, Frame))


def test_another_folder_is_used_and_left_empty(
    attach: Attach, box: RemoteHost, capture: Path, recorded_server: "subprocess.Popen[bytes]"
) -> None:
    home = box.folder / "home"
    process = attach("--remote-dir", str(home))
    (recorder,) = box.processes("tlstax-recorder")
    assert os.readlink(f"/proc/{recorder}/exe").startswith(str(home))
    serve(recorded_server)
    process.send_signal(signal.SIGINT)
    said(process, OK)
    box.await_nothing_left(GONE_SECONDS)
    assert list(home.iterdir()) == []
    assert [row.outcome for row in rows_of(capture, Handshake)] == ["success"] * HANDSHAKES


def test_an_installed_recorder_is_run_and_stays(
    attach: Attach, box: RemoteHost, capture: Path, recorded_server: "subprocess.Popen[bytes]"
) -> None:
    """By the line of sudoers that lets nobody exchange it."""
    process = attach("--remote-recorder", str(box.installed))
    (recorder,) = box.processes("tlstax-recorder")
    assert os.readlink(f"/proc/{recorder}/exe") == str(box.installed)
    serve(recorded_server)
    process.send_signal(signal.SIGINT)
    said(process, OK)
    box.await_nothing_left(GONE_SECONDS)
    assert box.installed.exists()
    assert [row.outcome for row in rows_of(capture, Handshake)] == ["success"] * HANDSHAKES


def test_no_python_runs_there_while_it_is_attached(attach: Attach, box: RemoteHost) -> None:
    """Nor anything else but the recorder and what carries its stream."""
    attach()
    links = [os.readlink(f"/proc/{pid}/exe") for pid in box.processes()]
    programs = {Path(link).name.removesuffix(" (deleted)") for link in links}
    assert "tlstax-recorder" in programs
    assert programs <= {"tlstax-recorder", "sshd", "sudo", "dash", "bash", "sh"}


def test_a_budget_is_kept_there(
    attach: Attach, box: RemoteHost, capture: Path, leftover: Leftover,
    recorded_server: "subprocess.Popen[bytes]",
) -> None:  # fmt: skip
    process = attach("--budget", "50%")
    serve(recorded_server)
    process.send_signal(signal.SIGINT)
    text = said(process, OK)
    assert "Budget 50% of the server's CPU time: everything, all the time" in text
    box.await_nothing_left(GONE_SECONDS)
    assert leftover() == set()
    meta = {row.key: row.value for row in rows_of(capture, Meta)}
    assert meta["budget_share"] == "0.5"
    assert [row.outcome for row in rows_of(capture, Handshake)] == ["success"] * HANDSHAKES


@pytest.mark.parametrize("tlstax", [least_budget.TLSTAX], ids=["least"])
def test_a_budget_that_nothing_fits_is_refused_there(
    attach: Attach, box: RemoteHost, leftover: Leftover
) -> None:
    process = attach(*least_budget.OPTIONS)
    assert "nothing can be recorded for 0.1%" in said(process, BUDGET)
    box.await_nothing_left(GONE_SECONDS)
    assert leftover() == set()


def test_the_default_budget_is_asked_for() -> None:
    request = RecordRequest(
        Path("x"), False, None, 1.0, 99, None, budget=0.05, budget_is_default=True
    )
    assert request.options(7, False).endswith("--budget 5.000000% --measure-cost --or-everything")


def test_the_level_is_chosen_there_where_its_plan_has_stretches() -> None:
    request = RecordRequest(
        Path("x"), False, None, 1.0, 99, None, calibration_s=6, chooses_level=True, budget=0.05
    )
    assert request.options(7, True).endswith("--calibrate 6.000s --choose-level --measure-cost")
    assert "--c" not in request.options(7, False)


def test_ssh_is_killed(
    attach: Attach, box: RemoteHost, capture: Path, leftover: Leftover,
    recorded_server: "subprocess.Popen[bytes]",
) -> None:  # fmt: skip
    process = attach()
    serve(recorded_server)
    time.sleep(1)
    os.kill(ssh_of(process), signal.SIGKILL)
    assert "the line to box was cut" in said(process, IO)
    box.await_nothing_left(GONE_SECONDS)
    assert leftover() == set()
    assert len(rows_of(capture, Handshake)) == HANDSHAKES, "what was received is there"


def test_a_user_without_the_right(
    box: RemoteHost, spawn: Attach, recorded_server: "subprocess.Popen[bytes]", tlstax: list[str],
    capture: Path,
) -> None:  # fmt: skip
    """Sudo refuses another executable, however it is called; the refusal is told."""
    sudoers = box.folder / "sudoers"
    sudoers.chmod(0o600)
    sudoers.write_text(re.sub("sha256:........", "sha256:00000000", sudoers.read_text()))
    sudoers.chmod(0o440)
    command = [
        *tlstax, "attach", "--ssh", "box", "--sudo", str(recorded_server.pid), "-o", capture,
        "--budget", "none",
    ]  # fmt: skip
    process = spawn(
        command,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PATH": f"{box.path}:{os.environ['PATH']}"},
    )
    text = said(process, HOST)
    assert "box cannot be recorded: " in text
    assert "sudo: a password is required" in text
    assert "docs/agentless.md" in text
    assert box.files() == []
    assert not capture.exists()


@pytest.mark.long
def test_tlstax_is_killed(
    attach: Attach, box: RemoteHost, capture: Path, leftover: Leftover, tlstax: list[str],
    recorded_server: "subprocess.Popen[bytes]",
) -> None:  # fmt: skip
    process = attach("--sample-hz", "999")
    serve(recorded_server)
    time.sleep(1)
    process.kill()
    process.wait()
    box.await_nothing_left(GONE_SECONDS)
    assert leftover() == set()
    assert capture.stat().st_mode & 0o777 == 0o600
    assert len(rows_of(capture, Handshake)) == HANDSHAKES
    assert not any(row.source == "dynsym" for row in rows_of(capture, Frame))
    environment = {**os.environ, "XDG_CACHE_HOME": str(capture.parent / "cache")}
    subprocess.run([*tlstax, "symbolize", capture], check=True, env=environment)
    assert any(row.source == "dynsym" for row in rows_of(capture, Frame))


@pytest.mark.long
@pytest.mark.parametrize("name", ["tlstax-recorder", "sudo", "sh"])
def test_the_other_end_is_killed(
    attach: Attach, box: RemoteHost, capture: Path, leftover: Leftover,
    recorded_server: "subprocess.Popen[bytes]", name: str,
) -> None:  # fmt: skip
    process = attach()
    serve(recorded_server)
    time.sleep(1)
    os.kill(max(box.processes(name)), signal.SIGKILL)
    if name == "tlstax-recorder":
        assert "the line to box was cut" in said(process, IO)
    else:
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    box.await_nothing_left(GONE_SECONDS)
    assert leftover() == set()
    assert len(rows_of(capture, Handshake)) == HANDSHAKES


def test_a_stopped_recorder_ends_with_its_sudo(
    attach: Attach, box: RemoteHost, capture: Path, leftover: Leftover
) -> None:
    """It stops itself when its command is stopped."""
    process = attach()
    (recorder,) = box.processes("tlstax-recorder")
    os.kill(recorder, signal.SIGSTOP)
    assert "the line to box was cut" in said(process, IO)
    box.await_nothing_left(GONE_SECONDS)
    assert leftover() == set()
    assert rows_of(capture, Meta)


@pytest.mark.long
def test_a_line_that_stalls_loses_nothing(
    attach: Attach, box: RemoteHost, capture: Path, recorded_server: "subprocess.Popen[bytes]"
) -> None:
    process = attach()
    line = line_of(process)
    os.kill(line, signal.SIGSTOP)
    serve(recorded_server)
    time.sleep(STALL_SECONDS)
    os.kill(line, signal.SIGCONT)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    said(process, OK)
    box.await_nothing_left(GONE_SECONDS)
    assert len(rows_of(capture, Handshake)) == HANDSHAKES
    windows = sorted(row.end_ns - row.start_ns for row in rows_of(capture, Window))
    assert len(windows) > STALL_SECONDS / 0.2 * 0.8, "it went on meanwhile"


@pytest.mark.long
def test_a_dead_line(
    attach: Attach, box: RemoteHost, capture: Path, leftover: Leftover,
    recorded_server: "subprocess.Popen[bytes]",
) -> None:  # fmt: skip
    """Nobody is told: neither end sees the connection close."""
    process = attach()
    serve(recorded_server)
    time.sleep(1)
    line = line_of(process)
    os.kill(line, signal.SIGSTOP)
    end_s = time.monotonic() + SILENCE_SECONDS + GONE_SECONDS
    while box.processes("tlstax-recorder") or box.processes("tlstax-watchdog"):
        assert time.monotonic() < end_s
        time.sleep(0.1)
    assert leftover() == set()
    assert box.files() == []
    assert "the line to box was cut" in said(process, IO, 90)
    assert len(rows_of(capture, Handshake)) == HANDSHAKES
    os.kill(line, signal.SIGKILL)


@pytest.mark.long
def test_a_target_that_ends(
    attach: Attach, box: RemoteHost, capture: Path, recorded_server: "subprocess.Popen[bytes]"
) -> None:
    process = attach()
    serve(recorded_server)
    assert recorded_server.stdin is not None
    recorded_server.stdin.write(b"x")
    text = said(process, TARGET)
    assert "it exited or was killed" in text
    assert f"{capture} is complete until then" in text
    box.await_nothing_left(GONE_SECONDS)
    assert len(rows_of(capture, Handshake)) == HANDSHAKES


@pytest.mark.long
@pytest.mark.parametrize("seconds", [0.05, 0.2, 0.4, 0.6, 0.8, 1.0, 1.3, 1.6, 2.0, 2.5])
def test_a_line_that_is_cut_at_any_moment(
    box: RemoteHost, spawn: Attach, tlstax: list[str], capture: Path, started: Started,
    program: Path, leftover: Leftover, seconds: float,
) -> None:  # fmt: skip
    """While it logs in, copies, asks, plans, attaches or records."""
    target = started(program, "tls", "s" * HANDSHAKES)
    command = [
        *tlstax, "attach", "--ssh", "box", "--sudo", str(target.pid), "-o", capture,
        "--budget", "none",
    ]  # fmt: skip
    process = spawn(
        command,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PATH": f"{box.path}:{os.environ['PATH']}",
            "XDG_CACHE_HOME": str(capture.parent / "cache"),
        },
    )
    line = await_line(process)
    time.sleep(seconds)
    os.kill(line, signal.SIGKILL)
    _, text = process.communicate(timeout=60)
    assert process.returncode in (HOST, IO), text
    assert "Traceback" not in text
    box.await_nothing_left(GONE_SECONDS)
    assert leftover() == set()
    assert list(capture.parent.glob("a.*")) in ([], [capture]), text
