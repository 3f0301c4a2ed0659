# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax attach` that loses its terminal, its disk or the race for a capture."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tlstax import TlstaxError
from tlstax.collectors.capture.schema import Handshake, Meta, Window
from tlstax.tests.kernel.recorder_runs import (
    GONE_SECONDS,
    HANDSHAKES,
    IO,
    OK,
    USAGE,
    Breakpoints,
    await_no_probes,
    rows_of,
    serve,
)
from tlstax.tests.patience import COMMAND_S
from tlstax.tests.processes import children_of

Attach = Callable[..., "subprocess.Popen[bytes]"]
NAME = "tlstax-recorder"
GONE_PID = "1073741823"  # more than the kernel's most pids
pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]


@pytest.fixture
def attach(
    recorded_server: "subprocess.Popen[bytes]", tlstax: list[str], repository: Path,
    spawn: Attach, breakpoints: Breakpoints,
) -> Attach:  # fmt: skip
    """Start `tlstax attach` in a shell, and wait until it records.

    Its probes come and go before that, while it measures what they cost.
    """

    def start(
        capture: Path, *more: str, shell: str = "exec", streams: str = "", waits: bool = True
    ) -> "subprocess.Popen[bytes]":
        words = [*tlstax, "attach", str(recorded_server.pid), "-o", str(capture), *more]
        words += ["--window", "200ms", "--definitions", str(repository / "tests/testprogs")]
        process = spawn(
            ["bash", "-c", f'{shell} "$@" {streams}', "bash", *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        before_s = time.monotonic()
        earlier = capture.stat().st_ino if capture.exists() else 0
        while waits and not (has_window(capture, earlier) and breakpoints(recorded_server.pid)):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < before_s + COMMAND_S
            time.sleep(0.1)
        return process

    return start


def has_window(capture: Path, earlier: int) -> bool:
    """Whether a capture is there which is not the earlier one, and has a window."""
    if not capture.exists() or capture.stat().st_ino == earlier:
        return False
    with suppress(TlstaxError):  # nothing was stored yet
        return bool(rows_of(capture, Window))
    return False


def ended(process: "subprocess.Popen[bytes]") -> tuple[int, str]:
    """Exit status, and what it said."""
    _, errors = process.communicate(timeout=COMMAND_S)
    assert b"Traceback" not in errors
    return process.returncode, errors.decode()


def is_whole(capture: Path) -> bool:
    return any(row.key == "end_monotonic_ns" for row in rows_of(capture, Meta))


@pytest.mark.parametrize(
    "streams", ["2>/dev/full", "2>&-", ">&- 2>&-", "<&- >&- 2>&-", "2> >(head -n 1 >/dev/null)"]
)
def test_a_lost_terminal_ends_no_recording(
    recorded_server: "subprocess.Popen[bytes]", attach: Attach, tmp_path: Path, streams: str,
    breakpoints: Breakpoints,
) -> None:  # fmt: skip
    capture = tmp_path / "a.tlstax"
    process = attach(capture, streams=streams)
    serve(recorded_server)
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    assert ended(process)[0] == OK
    assert is_whole(capture)
    assert len(rows_of(capture, Handshake)) == HANDSHAKES
    assert breakpoints(recorded_server.pid) == 0


def test_a_recorder_that_is_killed_before_its_first_window_is_said_so(
    attach: Attach, tmp_path: Path
) -> None:
    process = attach(tmp_path / "a.tlstax", waits=False)
    before_s = time.monotonic()
    while not (found := [pid for pid, name in children_of(process.pid).items() if name == NAME]):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < before_s + COMMAND_S
    os.kill(found[0], signal.SIGKILL)
    status, said = ended(process)
    assert status != OK
    assert "the recorder was killed by signal 9" in said
    assert "try again" in said
    assert not (tmp_path / "a.tlstax").exists()


def test_a_closed_terminal_ends_it_in_order(
    recorded_server: "subprocess.Popen[bytes]", attach: Attach, tmp_path: Path,
    breakpoints: Breakpoints,
) -> None:  # fmt: skip
    process = attach(tmp_path / "a.tlstax")
    process.send_signal(signal.SIGHUP)
    assert ended(process)[0] == OK
    assert is_whole(tmp_path / "a.tlstax")
    assert breakpoints(recorded_server.pid) == 0


def test_nohup_goes_on(attach: Attach, tmp_path: Path, breakpoints: Breakpoints) -> None:
    process = attach(tmp_path / "a.tlstax", shell="exec nohup")
    process.send_signal(signal.SIGHUP)
    time.sleep(2)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == OK


def test_ctrl_z_does_not_stop_it(
    recorded_server: "subprocess.Popen[bytes]", attach: Attach, tmp_path: Path
) -> None:
    """The recorder, in a process group of its own, would record on for nobody."""
    process = attach(tmp_path / "a.tlstax")
    process.send_signal(signal.SIGTSTP)
    serve(recorded_server)
    process.send_signal(signal.SIGTSTP)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    code, said = ended(process)
    assert code == OK, said
    assert said.count("Ctrl-Z is ignored") == 1
    assert is_whole(tmp_path / "a.tlstax")
    assert len(rows_of(tmp_path / "a.tlstax", Handshake)) == HANDSHAKES


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for the start of a capture."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tlstax-test", str(folder)]
    subprocess.run(mount, check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


def fill(path: Path) -> None:
    """Write until there is no room."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    with suppress(OSError):
        while os.write(descriptor, bytes(4096)):
            pass
    os.close(descriptor)


@pytest.mark.timing
def test_a_full_disk_keeps_what_was_recorded(
    recorded_server: "subprocess.Popen[bytes]", attach: Attach, disk: Path, breakpoints: Breakpoints
) -> None:
    process = attach(disk / "a.tlstax")
    serve(recorded_server)
    fill(disk / "other")
    most_s = GONE_SECONDS + 0.2  # the write that fails is that of the next window
    assert await_no_probes(breakpoints, recorded_server.pid, most_s) <= most_s
    code, said = ended(process)
    assert code == IO, said
    assert "finished windows are kept" in said
    assert breakpoints(recorded_server.pid) == 0
    assert len(rows_of(disk / "a.tlstax", Window)) > 0


# Planning works with so few descriptors, attaching does not. A client is looked for before that.
@pytest.mark.parametrize(
    ("shell", "more"), [("ulimit -n 40; exec", ()), ("exec", ("--client", GONE_PID))]
)
def test_force_keeps_the_earlier_capture_of_a_recording_that_fails(
    attach: Attach, tmp_path: Path, leftover: Callable[[], set[tuple[str, int]]], shell: str,
    more: tuple[str, ...],
) -> None:  # fmt: skip
    capture = tmp_path / "a.tlstax"
    first = attach(capture)
    first.send_signal(signal.SIGINT)
    assert ended(first)[0] == OK
    before = capture.read_bytes()
    second = attach(capture, "--force", *more, shell=shell, waits=False)
    code, said = ended(second)
    assert code not in (OK, USAGE), said
    assert capture.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [capture.name]


def test_two_recordings_with_force_do_not_lose_both(
    recorded_server: "subprocess.Popen[bytes]", attach: Attach, tmp_path: Path
) -> None:
    capture = tmp_path / "a.tlstax"
    first = attach(capture, "--force")
    time.sleep(1)
    second = attach(capture, "--force", waits=False)
    code, said = ended(second)
    assert code == USAGE, said
    assert "another recording writes it" in said
    serve(recorded_server)
    time.sleep(1)
    first.send_signal(signal.SIGINT)
    assert ended(first)[0] == OK
    assert is_whole(capture)
    assert len(rows_of(capture, Handshake)) == HANDSHAKES
