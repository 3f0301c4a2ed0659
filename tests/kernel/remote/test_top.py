# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax top --ssh`: it shows what a recorder on another host sends, and leaves nothing there."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tlstax.collectors.capture.schema import Frame, Handshake, Meta
from tlstax.tests.kernel.recorder_runs import HANDSHAKES, IO, OK, Leftover, Started, rows_of, serve
from tlstax.tests.kernel.remote.remote_host import RemoteHost
from tlstax.tests.kernel.remote.sessions import GONE_SECONDS, Attach, said, ssh_of

SCREEN = "tlstax top  "
HANDSHAKES_SHOWN = r"\nhandshake +[1-9]"
pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]
Top = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def top(
    environment: dict[str, str], spawn: Attach, repository: Path, tlstax: list[str],
    recorded_server: "subprocess.Popen[bytes]", tmp_path: Path,
) -> Top:  # fmt: skip
    """Watch the server of the test over ssh; its first screen has been printed."""

    def run(*options: object) -> "subprocess.Popen[str]":
        command = [
            *tlstax, "top", "--ssh", "box", "--sudo", recorded_server.pid, "--budget", "none",
            "--definitions", repository / "tests/testprogs", "--every", "0.5s", "--over", "60s",
            *options,
        ]  # fmt: skip
        process = spawn(
            [str(part) for part in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**environment, "TMPDIR": str(tmp_path)},
        )
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.readline()
        assert first.startswith(SCREEN), process.stderr.read()
        assert f" {recorded_server.pid} on box " in first
        return process

    return run


def await_screen(process: "subprocess.Popen[str]", pattern: str) -> None:
    """Until a screen shows that."""
    assert process.stdout is not None
    screen = ""
    for line in process.stdout:
        screen = line if line.startswith(SCREEN) else screen + line
        if re.search(pattern, screen):
            return
    pytest.fail(f"no screen shows it: {screen}")


def test_it_shows_another_host_and_keeps_the_recording(
    top: Top, box: RemoteHost, capture: Path, leftover: Leftover,
    recorded_server: "subprocess.Popen[bytes]",
) -> None:  # fmt: skip
    process = top("--count", 1000, "-o", capture)
    serve(recorded_server)
    await_screen(process, HANDSHAKES_SHOWN)
    await_screen(process, r"% (?!kernel).*, handshake")  # a function of the library has its name
    process.send_signal(signal.SIGINT)
    assert "explains it" in said(process, OK)
    box.await_nothing_left(GONE_SECONDS)
    assert leftover() == set()
    assert [row.outcome for row in rows_of(capture, Handshake)] == ["success"] * HANDSHAKES
    assert any(row.source == "kallsyms" for row in rows_of(capture, Frame)), "it was ended in order"


def test_a_killed_display_leaves_nothing_there(
    top: Top, box: RemoteHost, capture: Path, leftover: Leftover,
    recorded_server: "subprocess.Popen[bytes]",
) -> None:  # fmt: skip
    process = top("--count", 1000, "-o", capture)
    assert box.processes("tlstax-recorder")
    process.kill()
    process.wait()
    box.await_nothing_left(4 * GONE_SECONDS)
    assert leftover() == set()
    end_s = time.monotonic() + 4 * GONE_SECONDS
    while "target_ending" not in {row.key for row in rows_of(capture, Meta)}:
        assert time.monotonic() < end_s, "the recording did not end in order"
        time.sleep(0.1)


def test_a_line_that_is_cut_is_told(
    top: Top, box: RemoteHost, capture: Path, leftover: Leftover, tmp_path: Path,
    recorded_server: "subprocess.Popen[bytes]",
) -> None:  # fmt: skip
    process = top("--count", 1000)
    serve(recorded_server)
    await_screen(process, HANDSHAKES_SHOWN)
    os.kill(ssh_of(process), signal.SIGKILL)
    text = said(process, IO)
    assert "the line to box was cut" in text
    assert "Traceback" not in text
    box.await_nothing_left(GONE_SECONDS)
    assert leftover() == set()
    assert not list(tmp_path.glob("tlstax-*")), "nor is anything left here"


def test_what_attach_refuses_top_refuses(
    environment: dict[str, str], tlstax: list[str], box: RemoteHost
) -> None:
    """In one sentence, with the exit status of attach."""
    for words, code, what in (
        (["top", "--ssh", "box", "--name", "no-such-name", "--once"], 3, "password is required"),
        (
            ["top", "--sudo", "1", "--once"],
            2,
            "--sudo, --remote-dir or --remote-recorder was given without --ssh",
        ),
    ):
        sudo = ["--sudo"] if "--ssh" in words else []
        sudoers = box.folder / "sudoers"
        sudoers.chmod(0o600)
        sudoers.write_text("root ALL=(ALL) ALL\n")
        sudoers.chmod(0o440)
        done = subprocess.run(
            [*tlstax, *words, *sudo], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr
        assert what in done.stderr
        assert "Traceback" not in done.stderr


def test_several_servers_of_that_host(
    environment: dict[str, str], spawn: Attach, repository: Path, tlstax: list[str],
    program: Path, started: Started, tmp_path: Path, box: RemoteHost, leftover: Leftover,
) -> None:  # fmt: skip
    servers = [started(program, "tls", "s" * HANDSHAKES) for _ in range(2)]
    command = [*tlstax, "top", "--ssh", "box", "--sudo", *(str(one.pid) for one in servers)]
    command += ["--definitions", str(repository / "tests/testprogs"), "--budget", "none"]
    process = spawn(
        [*command, "--every", "0.5s", "--over", "60s"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment, "TMPDIR": str(tmp_path)},
    )
    await_screen(process, "2 servers on box")
    for server in servers:
        serve(server)
        await_screen(process, rf"truth {server.pid} +[1-9]")
    process.send_signal(signal.SIGINT)
    said(process, OK)
    box.await_nothing_left(GONE_SECONDS)
    assert leftover() == set()
