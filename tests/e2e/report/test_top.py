# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax top` in a real pseudo-terminal, on a real server under load."""

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tlstax import ExitCode
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Frame, Window
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.mariadb import PrivateServer

DEMO = Path(__file__).resolve().parents[3] / "docs/demo/demo.tlstax"
TOP = [sys.executable, "-m", "tlstax", "top"]
PATIENCE_S = 90.0
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture(scope="module")
def busy_server() -> Iterator[PrivateServer]:
    """A server with a storm of connects until the tests are over."""
    over = threading.Event()
    with PrivateServer() as server:
        driver = Sysbench.of_server(server, table_rows=1)

        def storm() -> None:
            while not over.is_set():
                driver.run(Load(SCENARIOS["connect"], 1, 2), "tls")

        thread = threading.Thread(target=storm)
        thread.start()
        yield server
        over.set()
        thread.join()


class Terminal:
    """A terminal of 80x24 with a program in it."""

    def __init__(self, descriptor: int, process: "subprocess.Popen[bytes]") -> None:
        self.descriptor, self.process = descriptor, process
        self.received = ""

    def await_text(self, pattern: str, since: int = 0) -> None:
        """Read until it is shown."""
        deadline = time.monotonic() + PATIENCE_S
        while not re.search(pattern, ESCAPES.sub("", self.received[since:])):
            assert time.monotonic() < deadline, self.received[-3000:]
            self.read(0.2)
            assert self.process.poll() is None or re.search(pattern, self.received), self.received

    def read(self, seconds: float) -> None:
        ready, _, _ = select.select([self.descriptor], [], [], seconds)
        if ready:
            try:
                self.received += os.read(self.descriptor, 65536).decode("utf-8", "replace")
            except OSError:  # the last user of the terminal is gone
                return

    def press(self, key: str) -> int:
        """Type, and say what was received until now."""
        os.write(self.descriptor, key.encode())
        return len(self.received)

    def await_end(self, last: str = "") -> int:
        """Until it has ended and its last words are there, which may come some time after."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.received[-3000:]
            self.read(0.2)
        while not self.received.rstrip().endswith(last):
            assert time.monotonic() < deadline, self.received[-3000:]
            self.read(0.2)
        return self.process.wait()


@contextmanager
def terminal(arguments: list[str], **environment: str) -> Iterator[Terminal]:
    """Run `tlstax top` in one."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    settings = termios.tcgetattr(follower)
    process = subprocess.Popen(
        [*TOP, *arguments],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "", "LINES": "", **environment},
    )
    try:
        yield Terminal(leader, process)
        assert termios.tcgetattr(follower) == settings
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(leader)
        os.close(follower)


def recorders(pid: int) -> list[str]:
    """Processes of tlstax that are attached to a server."""
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return [line for line in found.stdout.splitlines() if f"tlstax attach {pid} " in line]


def last_picture(text: str) -> list[str]:
    """The lines of the last whole picture; of the next one the beginning may have arrived."""
    whole = [part for part in text.split("\x1b[H") if "\x1b[J" in part]
    picture = whole[-1].split("\x1b[J")[0]
    return [ESCAPES.sub("", line).rstrip() for line in picture.split("\r\n")]


def test_it_shows_the_storm_and_leaves_a_capture(
    busy_server: PrivateServer, tmp_path: Path
) -> None:
    output = tmp_path / "kept.tlstax"
    arguments = [str(busy_server.pid), "-o", str(output), "--budget", "none"]
    with terminal(arguments) as shown:
        shown.await_text(r"handshakes [1-9][\d,.]*/s.*\n(.|\n)*handshake +[1-9]")
        shown.await_text(r"bignum\)")  # names, although the recorder has none yet
        since = shown.press("s")
        shown.await_text("functions by category", since)
        since = shown.press("p")
        shown.await_text("PAUSED", since)
        shown.press("p")
        picture = last_picture(shown.received)
        assert len(picture) <= 24
        assert max(map(len, picture)) <= 80
        assert "\x1b[32m" in shown.received
        assert recorders(busy_server.pid)
        shown.press("q")
        assert shown.await_end("explains it") == 0
        assert "\x1b[?1049l" in shown.received
    assert recorders(busy_server.pid) == []
    with CaptureReader.open(output) as reader:
        assert len(list(reader.rows(Window))) >= 2
        assert any(frame.source != "none" for frame in reader.rows(Frame))


def test_without_colour_and_on_hang_up_nothing_stays(busy_server: PrivateServer) -> None:
    with terminal([str(busy_server.pid), "--budget", "none"], NO_COLOR="1") as shown:
        shown.await_text(r"handshake +[1-9]")
        assert not re.search(r"\x1b\[\d+m", shown.received)
        shown.process.send_signal(signal.SIGTERM)
        assert shown.await_end() == 0
    assert recorders(busy_server.pid) == []


def test_pictures_for_scripts(busy_server: PrivateServer) -> None:
    ended = subprocess.run(
        [*TOP, str(busy_server.pid), "--count", "2", "--every", "0.5s", "--budget", "none"],
        capture_output=True, text=True, timeout=PATIENCE_S, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("tlstax top ") == 2
    assert "\x1b" not in ended.stdout
    assert re.search(r"handshakes [1-9]", ended.stdout)


def test_a_killed_display_takes_its_recorder_with_it(busy_server: PrivateServer) -> None:
    with subprocess.Popen(
        [*TOP, str(busy_server.pid), "--count", "1000", "--budget", "none"],
        stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
    ) as display:  # fmt: skip
        assert display.stdout is not None
        assert b"tlstax top" in display.stdout.readline()
        assert recorders(busy_server.pid)
        display.kill()
    deadline = time.monotonic() + PATIENCE_S
    while recorders(busy_server.pid):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_several_servers_have_a_line_each(busy_server: PrivateServer, tmp_path: Path) -> None:
    """One of them is killed meanwhile: the other's line goes on."""
    folder = tmp_path / "captures"
    folder.mkdir()
    other = folder / "mysqld-1.tlstax"  # of another recording, which still writes it
    shutil.copy(DEMO, other)
    os.utime(other, (time.time() + 3600,) * 2)
    with PrivateServer() as idle:
        pids = [str(busy_server.pid), str(idle.pid)]
        with terminal([*pids, "-o", str(folder), "--budget", "none"]) as shown:
            shown.await_text(r"tlstax top  2 servers")
            shown.await_text(rf"\S+ {busy_server.pid} +[1-9]")
            shown.await_text(rf"\S+ {idle.pid} +0")
            os.kill(idle.pid, signal.SIGKILL)
            since = len(shown.received)
            shown.await_text(rf"\S+ {idle.pid} +ended: it exited or was killed", since)
            shown.await_text(rf"\S+ {busy_server.pid} +[1-9]", since)
            picture = last_picture(shown.received)
            assert (len(picture), max(map(len, picture)) <= 80) == (24, True)
            shown.press("q")
            assert shown.await_end() == ExitCode.TARGET
        assert f"process {idle.pid} ended while it was recorded" in shown.received
    assert recorders(busy_server.pid) == []
    names = {path.name.rpartition("-")[2] for path in folder.iterdir() if path != other}
    assert names == {f"{pid}.tlstax" for pid in pids}
    again = subprocess.run(
        [*TOP, str(folder), "--once"], capture_output=True, text=True, timeout=PATIENCE_S,
        check=True,
    )  # fmt: skip
    assert re.search(rf"\S+ {busy_server.pid} +[1-9]", again.stdout)
    assert "2 servers" in again.stdout
    assert str(other) in again.stderr


def test_what_attach_refuses_top_refuses() -> None:
    with subprocess.Popen(["sleep", "300"]) as other:
        ended = subprocess.run(
            [*TOP, str(other.pid), "--once"],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        other.kill()
    assert ended.returncode == ExitCode.TARGET
    assert ended.stderr.startswith("tlstax: ")
    assert "Traceback" not in ended.stderr
