# SPDX-License-Identifier: GPL-2.0-only
"""One recorder for several processes: what ends one of them ends nothing else."""

import io
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tlstax.__main__ import main
from tlstax.collectors.capture.schema import Handshake, Meta
from tlstax.collectors.recording.stream.definition import definition
from tlstax.collectors.recording.stream.frames import Reading, read_frames, record, targets_of
from tlstax.collectors.recording.stream.replay import Replay
from tlstax.tests.kernel.recorder_runs import (
    OK,
    PROGRAM,
    TARGET,
    USAGE,
    Breakpoints,
    Leftover,
    Record,
    Started,
    await_attached,
    await_no_probes,
    dumped,
    maps_of,
    plan_text,
    rows_of,
    serve,
)
from tlstax.tests.patience import COMMAND_S

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]
COUNTS, PAUSE_S, GONE_S, HEARTBEAT_S = (5, 9), 0.5, 3.0, 2.5
NO_PID, FAILED, IDLE_S, READ_S = 1 << 29, 1, 2.2, 8.0
READER = """
import time
while True:
    until = time.process_time() + 0.004
    while time.process_time() < until:
        pass
    time.sleep(0.096)
"""
Process = subprocess.Popen[bytes]
Several = tuple[Process, list[Process]]


@pytest.fixture
def servers(program: Path, started: Started) -> list[Process]:
    return [started(program, "tls", "s" * count) for count in COUNTS]


@pytest.fixture
def record_all(
    servers: list[Process], spawn: Record, repository: Path, tmp_path: Path
) -> Callable[..., Process]:
    """Start the recorder on some processes, with options for all."""

    def run(
        pids: list[int],
        *of_the_last: str,
        of_each: Sequence[str] = ("--window", "100ms"),
        keep_going: bool = False,
    ) -> Process:
        command = [str(PROGRAM), "--output", str(tmp_path / "a.stream")]
        command += ["--keep-going"] * keep_going
        plan = tmp_path / "a.plan"
        plan.write_text(plan_text(servers[0].pid, repository))  # all run the same program
        for pid in pids:
            command += ["--next"] * (pid != pids[0])
            command += ["--plan", str(plan), "--pid", str(pid), *of_each]
        return spawn([*command, *of_the_last], stderr=subprocess.PIPE)

    return run


@pytest.fixture
def several(servers: list[Process], record_all: Callable[..., Process]) -> Several:
    recorder = record_all([server.pid for server in servers])
    for _ in servers:
        await_attached(recorder)
    return recorder, servers


def end_of(stream: Path, target: int) -> Replay:
    """A target's stream, read to its end."""
    with stream.open("rb") as file:
        replay = Replay(file, target=target)
        while replay.next_window():
            pass
    assert replay.reading.why_ended == ""
    return replay


def test_one_that_ends_leaves_the_others(
    several: Several, tmp_path: Path, breakpoints: Breakpoints, leftover: Leftover
) -> None:
    recorder, (first, second) = several
    serve(first)
    first.kill()
    first.wait()
    time.sleep(PAUSE_S)
    assert recorder.poll() is None
    assert breakpoints(second.pid) > 10
    serve(second)
    time.sleep(PAUSE_S)
    recorder.terminate()
    _, errors = recorder.communicate(timeout=COMMAND_S)
    assert recorder.returncode == OK, errors
    assert breakpoints(second.pid) == 0
    assert leftover() == set()
    said = errors.decode().splitlines()[0]
    assert said.startswith(f"tlstax-recorder: process {first.pid} ended while it was recorded:")
    ends = [end_of(tmp_path / "a.stream", target).end for target in (0, 1)]
    assert [int(end.exit_code) for end in ends] == [TARGET, OK]
    assert ends[0].ending == b"it exited or was killed"
    assert ends[0].time_ns < ends[1].time_ns
    assert ends[0].windows_count < ends[1].windows_count


def test_each_has_its_own_budget(
    servers: list[Process], record_all: Callable[..., Process], tmp_path: Path
) -> None:
    recorder = record_all([server.pid for server in servers], "--budget", "10%", "--or-everything")
    for _ in servers:
        await_attached(recorder)
    time.sleep(PAUSE_S)
    for server in servers:
        serve(server)
    recorder.terminate()
    _, errors = recorder.communicate(timeout=COMMAND_S)
    assert recorder.returncode == OK, errors
    first, second = (end_of(tmp_path / "a.stream", target) for target in (0, 1))
    assert first.budget is None
    assert second.budget.share_ppm == 100_000
    assert {first.start.level, second.start.level} == {b"record"}


@pytest.mark.timing
@pytest.mark.parametrize(("count", "levels"), [(1, {b"record", b"signature"}), (6, {b"record"})])
def test_who_reads_is_paid_for_in_equal_parts(
    started: Started, program: Path, record_all: Callable[..., Process], spawn: Record,
    tmp_path: Path, count: int, levels: set[bytes],
) -> None:  # fmt: skip
    """It uses 4 % of a CPU: more than each may cost, but not a sixth of it."""
    reader = spawn([sys.executable, "-c", READER])
    servers = [started(program, "tls", "s") for _ in range(count)]
    words = ("--budget", "2.5%", "--floor-cpus", "1", "--reader", str(reader.pid))
    recorder = record_all([server.pid for server in servers], of_each=words)
    for _ in servers:
        await_attached(recorder)
    time.sleep(READ_S)
    recorder.terminate()
    _, errors = recorder.communicate(timeout=COMMAND_S)
    assert recorder.returncode == OK, errors
    for number in range(count):
        with (tmp_path / "a.stream").open("rb") as file:
            replay = Replay(file, target=number)
            found = {bytes(replay.window.level)}
            while replay.next_window():
                found.add(bytes(replay.window.level))
        assert found == levels


def test_it_ends_with_the_last_one(
    several: Several, tmp_path: Path, breakpoints: Breakpoints
) -> None:
    recorder, servers = several
    for server in servers:
        server.kill()
        server.wait()
    _, errors = recorder.communicate(timeout=COMMAND_S)
    assert recorder.returncode == TARGET, errors
    for target in (0, 1):
        assert int(end_of(tmp_path / "a.stream", target).end.exit_code) == TARGET


def test_a_killed_recorder_leaves_nothing(
    several: Several, breakpoints: Breakpoints, leftover: Leftover
) -> None:
    recorder, servers = several
    recorder.kill()
    recorder.communicate(timeout=COMMAND_S)
    for server in servers:
        assert await_no_probes(breakpoints, server.pid, GONE_S) < GONE_S
    assert leftover() == set()


@pytest.mark.timing
@pytest.mark.skipif(shutil.which("bpftool") is None, reason="bpftool reads the map")
def test_the_programs_of_all_are_idle_while_it_is_frozen(
    servers: list[Process], record_all: Callable[..., Process]
) -> None:
    """They have one heartbeat, which stops for all of them."""
    recorder = record_all([server.pid for server in servers])
    for _ in servers:
        await_attached(recorder)
    mine = maps_of(recorder.pid, "hits")
    assert len(mine) == len(servers)
    children = Path(f"/proc/{recorder.pid}/task/{recorder.pid}/children").read_text().split()
    (watchdog,) = map(int, children)
    os.kill(watchdog, signal.SIGSTOP)
    recorder.send_signal(signal.SIGSTOP)
    try:
        time.sleep(IDLE_S)
        counted = [dumped(hits) for hits in mine]
        for server in servers:
            serve(server)
        assert [dumped(hits) for hits in mine] == counted
    finally:
        recorder.send_signal(signal.SIGCONT)  # it finds out for itself
    _, errors = recorder.communicate(timeout=COMMAND_S)
    assert recorder.returncode == FAILED, errors


def test_one_that_cannot_be_recorded_is_named_and_nothing_is_attached(
    servers: list[Process], record_all: Callable[..., Process], tmp_path: Path,
    breakpoints: Breakpoints,
) -> None:  # fmt: skip
    recorder = record_all([servers[0].pid, NO_PID])
    _, errors = recorder.communicate(timeout=COMMAND_S)
    assert recorder.returncode == TARGET
    assert f"process {NO_PID} cannot be recorded: there is no such process" in errors.decode()
    assert breakpoints(servers[0].pid) == 0


@pytest.mark.parametrize("order", [(0, None, 1), (None, 0, 1), (0, 1, None)])
def test_one_that_cannot_be_recorded_is_left_out(
    servers: list[Process], record_all: Callable[..., Process], tmp_path: Path, leftover: Leftover,
    order: tuple[int | None, ...],
) -> None:  # fmt: skip
    """Also the first one, whose heartbeat the others would have."""
    pids = [NO_PID if at is None else servers[at].pid for at in order]
    recorder = record_all(pids, keep_going=True)
    assert recorder.stderr is not None
    line = recorder.stderr.readline().decode()
    assert f": process {NO_PID} cannot be recorded: there is no such" in line
    for _ in servers:
        await_attached(recorder)
    time.sleep(HEARTBEAT_S)
    for server in servers:
        serve(server)
    recorder.terminate()
    _, errors = recorder.communicate(timeout=COMMAND_S)
    assert recorder.returncode == OK, errors
    assert leftover() == set()
    for number, at in enumerate(order):
        if at is not None:
            end = end_of(tmp_path / "a.stream", number)
            assert (int(end.end.exit_code), end.pid) == (OK, servers[at].pid)
            capture = tmp_path / f"{end.pid}.tlstax"
            words = ["--pid", str(end.pid), "-o", str(capture)]
            assert main(["import", str(tmp_path / "a.stream"), *words]) == OK
            assert len(rows_of(capture, Handshake)) == COUNTS[at]
    content, absent = (tmp_path / "a.stream").read_bytes(), order.index(None)
    reading = Reading(target=absent)
    (frame,) = read_frames(io.BytesIO(content), reading)
    assert frame.type == definition().number("ERROR")
    assert record("error", frame.content).exit_code == TARGET


def test_all_that_cannot_be_recorded_are_none(
    record_all: Callable[..., Process], tmp_path: Path
) -> None:
    recorder = record_all([NO_PID, NO_PID + 1], keep_going=True)
    _, errors = recorder.communicate(timeout=COMMAND_S)
    assert recorder.returncode == TARGET, errors
    assert b"attached" not in errors


def test_each_is_imported_by_its_pid(
    several: Several, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorder, servers = several
    time.sleep(HEARTBEAT_S)  # the programs of each know that it still runs
    for server in servers:
        serve(server)
    recorder.terminate()
    recorder.communicate(timeout=COMMAND_S)
    stream, pids = tmp_path / "a.stream", [server.pid for server in servers]
    assert list(targets_of(io.BytesIO(stream.read_bytes()))) == pids
    for pid, count in zip(pids, COUNTS, strict=True):
        capture = tmp_path / f"{pid}.tlstax"
        assert main(["import", str(stream), "--pid", str(pid), "-o", str(capture)]) == OK
        assert len(rows_of(capture, Handshake)) == count
        meta = {row.key: row.value for row in rows_of(capture, Meta)}
        assert meta["target_ending"] == "it was running"
    capsys.readouterr()
    for words in ([], ["--pid", str(NO_PID)]):
        assert main(["import", str(stream), "-o", str(tmp_path / "b.tlstax"), *words]) == USAGE
        assert f"{pids[0]}, {pids[1]}" in capsys.readouterr().err
        assert not (tmp_path / "b.tlstax").exists()


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ((), ("--output", "x"), "stand before the first --next"),
        ((), ("--for", "1s"), "stand before the first --next"),
        ((), ("--queue", "1M"), "stand before the first --next"),
        ((), ("--control",), "stand before the first --next"),
        ((), ("--keep-going",), "stand before the first --next"),
        (("--control",), ("--budget", "5%"), "--control does not go with --budget"),
        ((), ("--prices",), "--prices goes with no other option"),
    ],
)
def test_options_for_all_stand_before_the_first_next(
    plan_path: Path, recorded_server: Process, first: tuple[str, ...], second: tuple[str, ...],
    said: str,
) -> None:  # fmt: skip
    one = ["--plan", str(plan_path), "--pid", str(recorded_server.pid)]
    done = subprocess.run(
        [str(PROGRAM), *one, *first, "--next", *one, *second],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_S, check=False,
    )  # fmt: skip
    assert done.returncode == USAGE
    assert said in done.stderr.decode()
    assert done.stdout == b""


@pytest.mark.parametrize(
    ("pids", "said"),
    [
        (range(NO_PID, NO_PID + 17), "one recorder records 16 processes at most"),
        ((NO_PID, NO_PID + 1, NO_PID), f"process {NO_PID} was given twice"),
    ],
)
def test_too_many_and_one_twice_are_refused(
    plan_path: Path, pids: Sequence[int], said: str
) -> None:
    words = [word for pid in pids for word in ("--next", "--plan", str(plan_path), "--pid", pid)]
    command = [str(PROGRAM), *map(str, words[1:])]
    done = subprocess.run(command, capture_output=True, timeout=COMMAND_S, check=False)
    assert done.returncode == USAGE
    assert said in done.stderr.decode()
