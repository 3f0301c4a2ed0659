# SPDX-License-Identifier: GPL-2.0-only
"""Many of something: handshakes a second, a window's samples, threads.

Handshake records are taken out by time, not by window. Emptying a map takes a look at each of its
buckets: that of samples has only the room needed. The clock of a process is a sum over its threads.
"""

import ctypes
import json
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tlstax.collectors.capture.schema import Handshake, Loss
from tlstax.collectors.recording.programs.ledger_layout import SampleKey
from tlstax.collectors.recording.stream.definition import definition
from tlstax.collectors.recording.stream.frames import Reading, read_frames
from tlstax.tests.kernel.recorder_runs import (
    OK,
    PROGRAM,
    SANITIZED,
    Record,
    await_attached,
    frames_named,
    frames_of,
    last_of,
    plan_text,
    queue_bytes,
    rows_of,
)
from tlstax.tests.patience import COMMAND_S
from tlstax.tests.processes import process_cpu_ns

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]
THREADS, RATE_PER_S, SECONDS = 4, 5000, 6
LEAST = 10_000
"""Some seconds of records would fit into the programs' memory."""
ROOM_LEAST, ROOM_MOST = 1024, 16384
HASH, STACK_TRACE = "1", "7"  # BPF_MAP_TYPE_*
SLOTS, ROUNDS, SLOT_BYTES = 1024, 4, 64
DRAINED_S = 1.2
"""Longer than the recorder leaves between two looks, and than a window."""
MANY, ORDERS, SPIN_US, CALM_S = 300, 5, 2000, 0.6
"""Threads, of which the recorder does not ask the clock in each window; half of them spin."""
CROWD, USED_BYTES = 4000, 2_900_000
"""Threads, and of a queue of 3 MB: all cells of all of them would be 18 MB."""
RING, HOPS, QUICK_S, LONGEST_S = 1000, 20_000, 6, 1.0
"""Threads that wake each other, while a reader is slow and then is not: dearer than the budget."""
THREADS_OF_AIM, MEMORY_BYTES, SLOT_MOST_BYTES = 1000, 10_000_000, 3000
"""The design allows so much resident, as much of the kernel's memory beside stacks and slots, and
so much for the slot of a thread."""
OF_MAPS = "anon_inode:bpf-map"
KEY_BYTES = f"{ctypes.sizeof(SampleKey)}"


def crowd_of(
    repository: Path, spawn: Record
) -> tuple["subprocess.Popen[bytes]", Callable[[str], None]]:
    """The program of many threads, and what gives it an order and waits for its answer."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    crowd = spawn([str(repository / "tests/testprogs/bin/crowd")], **pipes)

    def order(what: str) -> None:
        assert crowd.stdin is not None
        assert crowd.stdout is not None
        crowd.stdin.write(f"{what}\n".encode())
        crowd.stdin.flush()
        assert crowd.stdout.readline()

    return crowd, order


class SlowReader:
    """Takes 20 KB a second of a recorder's stream, until it is told to read as fast as it can."""

    def __init__(self, recorder: "subprocess.Popen[bytes]") -> None:
        assert recorder.stdout is not None
        self.is_slow = threading.Event()
        self.is_slow.set()
        self._from = recorder.stdout.fileno()
        self._parts: list[bytes] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while part := os.read(self._from, 4096):
            self._parts.append(part)
            if self.is_slow.is_set():
                time.sleep(0.2)

    def rest(self) -> bytes:
        """All of the stream, when it has ended."""
        self.is_slow.clear()
        self._thread.join(COMMAND_S)
        return b"".join(self._parts)


@pytest.mark.timing
def test_five_thousand_handshakes_a_second_lose_none(
    repository: Path, tlstax: list[str], spawn: Record, tmp_path: Path
) -> None:
    program = repository / "tests/testprogs/bin/handshakes"
    words = [program, THREADS, RATE_PER_S, SECONDS]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    server = spawn([str(word) for word in words], **pipes)
    assert server.stdin is not None
    assert server.stdout is not None
    assert b"ready" in server.stdout.readline()
    capture = tmp_path / "a"
    options = ["--budget", "none", "--window", "1m", "--quiet", "-o", str(capture)]
    recorder = spawn([*tlstax, "attach", str(server.pid), *options], stderr=subprocess.PIPE)
    assert recorder.stderr is not None
    assert b"attached to" in recorder.stderr.readline()
    server.stdin.write(b"g")
    server.stdin.flush()
    done = json.loads(server.stdout.readline())
    time.sleep(0.1)
    recorder.terminate()
    _, errors = recorder.communicate(timeout=COMMAND_S)
    assert recorder.returncode == 0, errors
    assert Counter(row.outcome for row in rows_of(capture, Handshake)) == {
        "success": done["handshakes"]
    }
    assert not [row for row in rows_of(capture, Loss) if "handshake" in row.kind]
    assert done["handshakes"] >= LEAST, "the host was too busy for a storm"


def maps_of(pid: int) -> list[dict[str, str]]:
    """What the kernel says of each map that a process holds open, by any number of descriptors."""
    found: dict[str, dict[str, str]] = {}
    for file in Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            lines = file.read_text().splitlines()
        except FileNotFoundError:  # it was closed just now
            continue
        fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        if "map_id" in fields:
            found[fields["map_id"]] = fields
    return list(found.values())


def samples_room(pid: int) -> int:
    """Entries that the recorder's map of samples has room for."""
    for fields in maps_of(pid):
        if (fields["map_type"], fields["key_size"]) == (HASH, KEY_BYTES):
            return int(fields["max_entries"])
    pytest.fail("no map has such keys")


def resident_bytes(pid: int) -> int:
    """Of a process, without the maps' memory, which the kernel counts as its own."""
    found, is_own = 0, True
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if not line.split(maxsplit=1)[0].endswith(":"):
            is_own = OF_MAPS not in line
        elif line.startswith("Rss:") and is_own:
            found += int(line.split()[1]) * 1024
    return found


def test_memory_with_a_thousand_threads_is_what_the_design_allows(
    repository: Path, spawn: Record, tmp_path: Path
) -> None:
    """The kernel's for the programs' maps, and what is resident of the recorder itself."""
    crowd, order = crowd_of(repository, spawn)
    order(f"+ {THREADS_OF_AIM}")
    plan, stream = tmp_path / "a.plan", tmp_path / "a.stream"
    plan.write_text(plan_text(crowd.pid, repository))
    command = [PROGRAM, "--plan", plan, "--pid", crowd.pid, "--window", "200ms"]
    with stream.open("wb") as to:
        recorder = spawn([str(part) for part in command], stdout=to, stderr=subprocess.PIPE)
        await_attached(recorder)
        for _ in range(ORDERS):
            order(f"! {SPIN_US}")
        time.sleep(CALM_S)
        maps, own_bytes = maps_of(recorder.pid), resident_bytes(recorder.pid)
        recorder.send_signal(signal.SIGTERM)
        recorder.communicate(timeout=COMMAND_S)
    assert recorder.returncode == OK
    assert last_of(stream.read_bytes(), "window").account_count > THREADS_OF_AIM
    start = last_of(stream.read_bytes(), "start")
    assert start.slots_count > THREADS_OF_AIM
    assert start.slots_bytes <= start.slots_count * SLOT_MOST_BYTES
    stacks = [int(one["memlock"]) for one in maps if one["map_type"] == STACK_TRACE]
    assert len(stacks) == 2
    held_bytes = sum(int(one["memlock"]) for one in maps) - sum(stacks)
    assert start.slots_bytes < held_bytes <= start.slots_bytes + MEMORY_BYTES
    if not SANITIZED:  # these keep a shadow of all memory
        assert own_bytes <= MEMORY_BYTES


@pytest.mark.parametrize(
    ("hz", "window", "longest_s"), [(99, "1s", 10), (999, "1s", 10), (99, "60s", 60), (0, "1s", 0)]
)
def test_the_map_of_samples_has_room_for_the_longest_window(
    recorded_server: "subprocess.Popen[bytes]", record_it: Record, hz: int, window: str,
    longest_s: int,
) -> None:  # fmt: skip
    recorder = record_it("--sample-hz", f"{hz}", "--window", window)
    await_attached(recorder)
    room = samples_room(recorder.pid)
    recorder.send_signal(signal.SIGTERM)
    recorder.communicate(timeout=COMMAND_S)
    assert recorder.returncode == OK
    wanted = hz * os.sysconf("SC_NPROCESSORS_ONLN") * longest_s
    assert room == min(ROOM_MOST, max(ROOM_LEAST, wanted))


@pytest.mark.parametrize("level", ["handshake", "record"])
def test_threads_that_come_and_go_without_a_ledger_are_not_told(
    repository: Path, spawn: Record, tmp_path: Path, level: str
) -> None:
    """Who reads thousands of them a second takes more than all else; their room is used again."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    crowd = spawn([str(repository / "tests/testprogs/bin/crowd")], **pipes)
    assert crowd.stdin is not None
    assert crowd.stdout is not None
    plan, stream = tmp_path / "a.plan", tmp_path / "a.stream"
    plan.write_text(plan_text(crowd.pid, repository))
    command = [PROGRAM, "--plan", plan, "--pid", crowd.pid, "--level", level, "--slots", SLOTS]
    with stream.open("wb") as to:
        recorder = spawn([str(part) for part in command], stdout=to, stderr=subprocess.PIPE)
        await_attached(recorder)
        for _ in range(ROUNDS):
            crowd.stdin.write(f"c {SLOTS // 2}\n".encode())
            crowd.stdin.flush()
            assert crowd.stdout.readline()
            time.sleep(DRAINED_S)
        recorder.send_signal(signal.SIGTERM)
        recorder.communicate(timeout=COMMAND_S)
    assert recorder.returncode == OK
    with stream.open("rb") as file:
        frames = list(read_frames(file, Reading()))
    told = sum(len(one.content) for one in frames if one.type == definition().number("SLOT"))
    whole_bytes = ROUNDS * SLOTS // 2 * SLOT_BYTES
    assert told > whole_bytes if level == "record" else told < whole_bytes / 10
    assert last_of(stream.read_bytes(), "window").untracked_count == 0


@pytest.mark.timing
def test_cpu_time_of_many_threads_goes_on_between_two_readings_of_its_clock(
    repository: Path, spawn: Record, tmp_path: Path
) -> None:
    """While the process rests, each window says what its clock says then."""
    crowd, order = crowd_of(repository, spawn)
    order(f"+ {MANY}")
    plan, stream = tmp_path / "a.plan", tmp_path / "a.stream"
    plan.write_text(plan_text(crowd.pid, repository))
    command = [PROGRAM, "--plan", plan, "--pid", crowd.pid, "--window", "200ms"]
    rests = []
    with stream.open("wb") as to:
        recorder = spawn([str(part) for part in command], stdout=to, stderr=subprocess.PIPE)
        await_attached(recorder)
        for _ in range(ORDERS):
            order(f"! {SPIN_US}")
            cpu_ns = -1
            while cpu_ns != (cpu_ns := process_cpu_ns(crowd.pid)):
                time.sleep(0.3)  # who wants a CPU on a busy host has it by then
            began_ns = time.monotonic_ns()
            time.sleep(CALM_S)
            rests.append((began_ns, time.monotonic_ns(), cpu_ns))
        recorder.send_signal(signal.SIGTERM)
        recorder.communicate(timeout=COMMAND_S)
    assert recorder.returncode == OK
    windows = [row for row in frames_named("window", stream.read_bytes()) if not row.has_counts]
    said = [
        (window.process_cpu_ns, cpu_ns)
        for window in windows
        for began_ns, ended_ns, cpu_ns in rests
        if began_ns < window.end_ns < ended_ns
    ]
    assert len({cpu_ns for _, cpu_ns in said}) > 2, "each order has a window after it, but at first"
    for found_ns, told_ns in said:
        assert found_ns == pytest.approx(told_ns, rel=0.02, abs=5e6)


def test_a_slow_reader_of_many_threads_gets_their_accounts_at_last(
    repository: Path, spawn: Record, tmp_path: Path
) -> None:
    """After a window without room all that was in vain is sent again: it must fit in the queue."""
    crowd, order = crowd_of(repository, spawn)
    order(f"+ {CROWD}")
    plan = tmp_path / "a.plan"
    plan.write_text(plan_text(crowd.pid, repository))
    command = [PROGRAM, "--plan", str(plan), "--pid", str(crowd.pid), "--queue", "3M"]
    command += ["--window", "50ms"]
    recorder = spawn(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pipesize=4096)
    reader = SlowReader(recorder)
    await_attached(recorder)
    while queue_bytes(recorder.pid) < USED_BYTES:
        order("! 50")
    for _ in range(10):
        order("! 50")
    recorder.terminate()
    stream = reader.rest()
    assert recorder.stderr is not None
    assert recorder.wait(COMMAND_S) == OK, recorder.stderr.read()
    assert last_of(stream, "window").merged_count > 0
    assert last_of(stream, "end").merged_count > 0
    assert frames_of(stream)[1].why_ended == ""


@pytest.mark.timing
@pytest.mark.parametrize(("queue", "slow_s"), [("256K", 6), ("512K", 13)], ids=["trial", "later"])
def test_a_slow_reader_keeps_nothing_attached_beyond_a_budget(
    repository: Path, spawn: Record, tmp_path: Path, queue: str, slow_s: float
) -> None:
    """A dense window without room ends when it would have, as part of one with less."""
    crowd, order = crowd_of(repository, spawn)
    order(f"+ {RING}")
    plan = tmp_path / "a.plan"
    plan.write_text(plan_text(crowd.pid, repository))
    command = [PROGRAM, "--plan", str(plan), "--pid", str(crowd.pid), "--queue", queue]
    command += ["--budget", "5%", "--window", "200ms"]
    recorder = spawn(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pipesize=4096)
    reader = SlowReader(recorder)
    await_attached(recorder)
    until_s = time.monotonic() + slow_s
    while time.monotonic() < until_s + QUICK_S:
        order(f"p {HOPS}")
        if time.monotonic() > until_s:
            reader.is_slow.clear()
    recorder.terminate()
    windows = frames_named("window", reader.rest())
    assert recorder.stderr is not None
    assert recorder.wait(COMMAND_S) == OK, recorder.stderr.read()
    ends = [(before.end_ns, row) for before, row in pairwise(windows)]
    dense_s = [(row.end_ns - began_ns) / 1e9 for began_ns, row in ends if row.level == b"record"]
    assert windows[-1].merged_count > 0
    assert dense_s, "when there is room"
    assert max(dense_s) < LONGEST_S
