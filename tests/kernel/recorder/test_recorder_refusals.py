# SPDX-License-Identifier: GPL-2.0-only
"""What keeps the static recorder from beginning: each is told in a sentence, and nothing stays."""

import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tlstax.collectors.recording.stream.definition import definition
from tlstax.tests.kernel.recorder_runs import (
    IO,
    OK,
    PROGRAM,
    SANITIZED,
    TARGET,
    USAGE,
    Breakpoints,
    Leftover,
    Record,
    Started,
    frames_of,
    plan_text,
)
from tlstax.tests.patience import COMMAND_S

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]
ENOUGH_FILES, SWEEP = 400, 20
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
UNTRUSTED = ["setpriv", "--bounding-set", "-sys_ptrace,-dac_read_search"]


def run(command: list[object], **more: object) -> "subprocess.CompletedProcess[bytes]":
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, timeout=COMMAND_S, check=False, **more)  # type: ignore[call-overload,no-any-return]


@pytest.fixture
def words(recorded_server: "subprocess.Popen[bytes]", plan_path: Path) -> list[object]:
    """A recording of a moment."""
    return [PROGRAM, "--plan", plan_path, "--pid", recorded_server.pid, "--for", "10ms"]


def is_whole(stream: bytes) -> bool:
    return frames_of(stream)[0][definition().number("END")] == 1


@pytest.mark.skipif(SANITIZED, reason="the sanitizers need files of their own")
def test_too_few_open_files_are_never_an_end_in_order(words: list[object]) -> None:
    """Each limit below the one that suffices stops it elsewhere."""

    def limited(limit: int) -> "subprocess.CompletedProcess[bytes]":
        both = (limit, limit)
        return run(words, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, both))

    least, most = 4, ENOUGH_FILES
    while most - least > 1:  # the least that suffices, or nearly
        middle = (least + most) // 2
        least, most = (least, middle) if is_whole(limited(middle).stdout) else (middle, most)
    assert is_whole(limited(ENOUGH_FILES).stdout)
    for limit in range(max(most - SWEEP, 4), most):
        done = limited(limit)
        if not is_whole(done.stdout):
            assert done.returncode != OK, (limit, done.stderr)
            assert b"Too many open files" in done.stderr, (limit, done.stderr)


def test_a_limit_of_the_size_of_files_is_told(words: list[object], tmp_path: Path) -> None:
    """The signal for that would end it before it says anything."""
    limit = (256 << 10, 256 << 10)  # its queue is a file, too
    dense = ["--queue", "256K", "--window", "10ms", "--for", "60s"]
    done = run(
        [*words, *dense, "--output", tmp_path / "x.stream"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
    )
    assert done.returncode == IO, done.stderr
    assert b"File too large" in done.stderr


@pytest.mark.parametrize("how", [">&-", "1</dev/null", "1</"])
def test_a_stream_that_cannot_be_written_is_refused_before_it_attaches(
    words: list[object], how: str
) -> None:
    done = run(["bash", "-c", f'exec "$@" {how}', "bash", *words])
    assert done.returncode == USAGE, done.stderr
    assert b"standard output is closed or cannot be written" in done.stderr
    assert b"attached" not in done.stderr


def test_a_file_of_a_recording_that_never_began_is_not_in_the_way(
    words: list[object], tmp_path: Path, breakpoints: Breakpoints, leftover: Leftover,
    recorded_server: "subprocess.Popen[bytes]",
) -> None:  # fmt: skip
    stream = tmp_path / "x.stream"
    gone = subprocess.Popen(["true"])
    gone.wait()
    lost = [gone.pid if word == recorded_server.pid else word for word in words]
    assert run([*lost, "--output", stream]).returncode == TARGET
    assert not stream.exists()
    assert run([*words, "--output", stream]).returncode == OK
    assert is_whole(stream.read_bytes())
    again = run([*words, "--output", stream])
    assert again.returncode == IO
    assert b"File exists" in again.stderr
    assert is_whole(stream.read_bytes()), "that of another recording stays"
    assert breakpoints(recorded_server.pid) == 0
    assert leftover() == set()


@pytest.mark.skipif(SANITIZED, reason="nobody may not read the sanitizers' program")
def test_who_may_not_look_at_the_process_is_told_so(words: list[object], tmp_path: Path) -> None:
    """And not to plan again: that would not help."""
    for word in words[:3:2]:  # the recorder and the plan, where nobody can read them
        os.chmod(str(word), 0o755)
    folders = [Path(str(words[2])).parent, *Path(str(words[2])).parents]
    closed = [folder for folder in folders if not folder.stat().st_mode & 0o005]
    for folder in closed:
        folder.chmod(folder.stat().st_mode | 0o005)
    done = run([*NOBODY, *words])
    assert done.returncode == TARGET, done.stderr
    assert b"memory map cannot be read: Permission denied. Run as root" in done.stderr
    assert b"plan again" not in done.stderr


def test_files_that_may_not_be_opened_are_no_other_build(words: list[object]) -> None:
    done = run([*UNTRUSTED, *words])
    assert done.returncode == TARGET, done.stderr
    assert b"cannot be opened. Run as root" in done.stderr
    assert b"plan again" not in done.stderr


def await_programs(recorder: "subprocess.Popen[bytes]") -> None:
    """Until it has looked at the process and loads its programs: nothing is attached yet.

    Before it is the recorder it has the files of the tests.
    """
    process = Path(f"/proc/{recorder.pid}")
    while not (
        process.joinpath("exe").samefile(PROGRAM)
        and any("bpf" in link for link in links_of(process / "fd"))
    ):
        assert recorder.poll() is None, recorder.communicate()[1]
        time.sleep(0.001)


def links_of(folder: Path) -> Iterator[str]:
    """Where the links of a folder of /proc lead; one may go while it is read."""
    for entry in folder.iterdir():
        with suppress(FileNotFoundError):
            yield os.readlink(entry)


def test_a_target_that_executes_another_program_before_anybody_watches_for_it(
    program: Path, started: Started, repository: Path, tmp_path: Path, spawn: Record
) -> None:
    """As a script does that starts a server; else a program that is not the plan's is recorded."""
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    script.chmod(0o755)
    target = started(program, "execute", script, "20")
    path = tmp_path / "x.plan"
    path.write_text(plan_text(target.pid, repository))
    recorder = spawn(
        [PROGRAM, "--plan", path, "--pid", str(target.pid), "--for", "1s"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    await_programs(recorder)
    recorder.send_signal(signal.SIGSTOP)
    assert target.stdin is not None
    target.stdin.write(b"g")
    end_s = time.monotonic() + COMMAND_S
    while Path(f"/proc/{target.pid}/comm").read_text() != "sleep\n":
        assert time.monotonic() < end_s
        time.sleep(0.01)
    recorder.send_signal(signal.SIGCONT)
    stream, errors = recorder.communicate(timeout=COMMAND_S)
    assert recorder.returncode == TARGET, errors
    assert b"executed another program while it was being attached to" in errors
    assert frames_of(stream)[0][definition().number("WINDOW")] == 0


def test_a_target_that_ends_while_it_is_attached_to(
    program: Path, started: Started, repository: Path, tmp_path: Path, spawn: Record
) -> None:
    """The kernel refuses probes then: the process is why, not this host."""
    plan = tmp_path / "a.plan"
    for delay_s in (number * 0.02 for number in range(12)):
        target = started(program, "tls", "s")
        plan.write_text(plan_text(target.pid, repository))
        command = [PROGRAM, "--plan", plan, "--pid", str(target.pid)]
        recorder = spawn(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(delay_s)
        target.kill()
        target.wait()
        _, errors = recorder.communicate(timeout=COMMAND_S)
        assert recorder.returncode == TARGET, errors
