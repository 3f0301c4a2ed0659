# SPDX-License-Identifier: GPL-2.0-only
"""What the other host's shell does with what it receives: nothing of it may stay there."""

import subprocess
import time
from pathlib import Path

import pytest

from tlstax.collectors.remote.destination import Destination
from tlstax.collectors.remote.script import script

STARTED = b'#!/bin/sh\necho "$0 $@"; ls -d "$0"; cat\n'


def run(there: Path, program: bytes, sent: bytes, *, sudo: bool = False, size: int = 0) -> str:
    """Run the script as ssh does; what was written to both outputs."""
    destination = Destination("db1", sudo, str(there))
    command = destination.command(script(destination, size or len(program)))[-1]
    done = subprocess.run(["sh", "-c", command], input=sent, capture_output=True, check=False)
    return (done.stdout + done.stderr).decode()


def test_the_program_runs_and_reads_what_follows(tmp_path: Path) -> None:
    said = run(tmp_path, STARTED, STARTED + b"a request\n")
    assert "tlstax-recorder --serve --remove-self\n" in said
    assert said.endswith("a request\n")
    assert list(tmp_path.iterdir()) == []


def test_an_installed_one_is_run_as_it_is(tmp_path: Path) -> None:
    installed = tmp_path / "tlstax-recorder"
    destination = Destination("db1", recorder=str(installed))
    command = destination.command(script(destination, 7))[-1]
    assert "'" not in script(destination, 7)
    assert "sudo -n" in script(Destination("db1", sudo=True, recorder=str(installed)), 7)
    for word in ("absent", "there"):
        done = subprocess.run(
            ["sh", "-c", command], input=b"a request\n", capture_output=True, check=False
        )
        if word == "absent":
            assert done.returncode == 3
            assert f"no {installed} there that can be executed" in done.stderr.decode()
            installed.write_bytes(STARTED)
            installed.chmod(0o755)
    assert done.stdout.decode() == f"{installed} --serve\n{installed}\na request\n"
    assert list(tmp_path.iterdir()) == [installed]


@pytest.mark.parametrize("received", [0, 1, len(STARTED) - 1])
def test_a_line_that_is_cut_while_copying_leaves_nothing(tmp_path: Path, received: int) -> None:
    assert "the line was cut" in run(tmp_path, STARTED, STARTED[:received])
    assert list(tmp_path.iterdir()) == []


def test_no_room_is_not_called_a_line_that_was_cut(tmp_path: Path) -> None:
    destination = Destination("db1", directory=str(tmp_path))
    command = destination.command(script(destination, 4096))[-1]
    limited = f"ulimit -f 1; {command}"  # as a directory in memory that is full
    done = subprocess.run(
        ["sh", "-c", limited], input=b"x" * 4096, capture_output=True, check=False
    )
    assert f"no room for 4096 bytes in {tmp_path}: give --remote-dir" in done.stderr.decode()
    assert done.returncode == 3
    assert list(tmp_path.iterdir()) == []


def is_received(pid: int, there: Path) -> bool:
    """Whether the shell has opened the file that it receives into."""
    try:
        return str(Path(f"/proc/{pid}/fd/3").readlink()).startswith(f"{there}/tlstax-")
    except FileNotFoundError:
        return False


def test_while_it_is_received_it_has_no_name(tmp_path: Path) -> None:
    """A shell that is killed then (SIGKILL) leaves nothing."""
    destination = Destination("db1", directory=str(tmp_path))
    command = destination.command(script(destination, 1000))[-1]
    with subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE) as shell:
        assert shell.stdin is not None
        shell.stdin.write(b"x" * 999)
        shell.stdin.flush()
        while not is_received(shell.pid, tmp_path):
            assert shell.poll() is None
        end_s = time.monotonic() + 10
        while list(tmp_path.iterdir()):
            assert time.monotonic() < end_s
        shell.kill()
        shell.stdin.close()
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_does_not_start_is_removed(tmp_path: Path) -> None:
    run(tmp_path, b"#!/nowhere/sh\n", b"#!/nowhere/sh\n")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    assert "cannot be written" in run(tmp_path / "none", STARTED, STARTED)


@pytest.mark.parametrize("directory", ["", "/var/tmp"])
@pytest.mark.parametrize("sudo", [False, True])
def test_no_quote_ends_it_early(directory: str, sudo: bool) -> None:
    text = script(Destination("db1", sudo, directory), 1000)
    assert "'" not in text
    assert "\n" not in text, "csh takes no line break in quotes"
    assert ("sudo -n" in text) == sudo
    subprocess.run(["sh", "-n", "-c", text], check=True)
