# SPDX-License-Identifier: GPL-2.0-only
"""Every thread has one account, or is counted once as having none."""

import json
import resource
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Ledger, Loss, ProcessClock, System, Thread
from tlstax.collectors.placement.planning import plan_in_child
from tlstax.tests.loader.native import Engine, Options
from tlstax.tests.safe_programs import safe_programs

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

REUSED_TID, REUSED_NS = 31_999, 20_000_000
PATIENCE_S = 60.0
READS_S, IDLE_S = 0.4, 2.4
SHORT_LIVED = 12_000
MANY, ROOM, BESIDE = 5000, 1000, 500
RSS_MOST_BYTES = 160 << 20


class Crowd:
    """The program of many threads (tests/testprogs/crowd.c)."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self.pid = process.pid
        self._read()

    def do(self, order: str, number: int) -> None:
        """Give an order, and wait until it was obeyed."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{order} {number}\n".encode())
        self._read()

    def _read(self) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the crowd has ended"
        self.cpu_ns = int(json.loads(line)["cpu_ns"])

    def tids(self) -> set[int]:
        """Threads that /proc shows."""
        return {int(path.name) for path in Path(f"/proc/{self.pid}/task").iterdir()}

    def cpu_ns_of(self, tids: set[int]) -> int:
        """CPU time of some threads by the scheduler's account, /proc/PID/task/TID/schedstat."""
        paths = (Path(f"/proc/{self.pid}/task/{tid}/schedstat") for tid in tids)
        return sum(int(path.read_text().split()[0]) for path in paths)


@pytest.fixture
def crowd(spawn: Callable[..., "subprocess.Popen[bytes]"], repository: Path) -> Crowd:
    program = repository / "tests/testprogs/bin/crowd"
    assert program.exists(), "run `make testprogs`"
    return Crowd(spawn([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0))


@contextmanager
def engine_on(crowd: Crowd, slots_count: int = 8192) -> Iterator[Engine]:
    """The engine, loaded and not attached."""
    _, plan = plan_in_child(crowd.pid)
    engine = Engine(crowd.pid, plan, Options(slots_count=slots_count, programs=safe_programs()))
    try:
        yield engine
    finally:
        engine.close()


def live_tids(engine: Engine) -> list[int]:
    """The threads that have an account and have not ended."""
    return [slot.tid for slot in engine.maps.slots() if not slot.exited]


def await_ends(engine: Engine, count: int) -> None:
    """Wait until so many accounts have ended: a thread's last switch comes after its join."""
    end_s = time.monotonic() + PATIENCE_S
    while sum(slot.exited for slot in engine.maps.slots()) < count:
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_two_iterators_at_once_make_one_account_of_each_thread(crowd: Crowd) -> None:
    crowd.do("+", 3000)
    with engine_on(crowd) as engine:
        runs = [threading.Thread(target=engine.adopt_threads) for _ in range(2)]
        for run in runs:
            run.start()
        for run in runs:
            run.join()
        assert set(live_tids(engine)) == crowd.tids()
        assert engine.maps.lifecycle().fresh_count == 3001


def test_threads_that_start_under_the_iterator_have_one_account_each(crowd: Crowd) -> None:
    with engine_on(crowd) as engine:
        engine.attach()
        is_over = threading.Event()

        def iterate() -> None:
            while not is_over.is_set():
                engine.adopt_threads()

        runs = [threading.Thread(target=iterate) for _ in range(2)]
        for run in runs:
            run.start()
        crowd.do("c", 4000)
        crowd.do("+", 100)
        is_over.set()
        for run in runs:
            run.join()
        await_ends(engine, 4001)
        assert Counter(live_tids(engine)) == Counter(crowd.tids())
        now = engine.maps.lifecycle()
        assert now.fresh_count == 4000 + 1 + 100 + 1, "an account each, and one for each creator"
        # The kernel may refuse storage to a program that preempts another one which makes some:
        # the iterator comes again, so that nobody stays without an account.
        assert now.untracked_count == 0


def test_threads_without_room_are_counted_once_and_get_the_room_that_others_leave(
    crowd: Crowd,
) -> None:
    with engine_on(crowd, slots_count=40) as engine:
        engine.attach()
        crowd.do("+", 59)
        for _ in range(3):
            crowd.do("!", 100)
            engine.adopt_threads()
        assert len(live_tids(engine)) == 40
        assert engine.maps.lifecycle().untracked_count == 20
        assert engine.loss_counts()["thread_slots_full"] == 20
        crowd.do("-", 30)  # the last ones: 20 without an account, 10 with
        await_ends(engine, 10)
        assert engine.maps.lifecycle().untracked_count == 0
        crowd.do("+", 5)
        assert engine.maps.lifecycle().untracked_count == 5, "nobody has read the ended ones yet"
        for slot in list(engine.maps.slots()):
            if slot.exited:
                engine.maps.recycle(slot.index)
        engine.keep_up()
        assert engine.maps.lifecycle().untracked_count == 0
        assert Counter(live_tids(engine)) == Counter(crowd.tids())
        assert engine.maps.lifecycle().fresh_count == 40


def test_slots_are_used_again_and_again(crowd: Crowd) -> None:
    with engine_on(crowd, slots_count=64) as engine:
        engine.attach()
        for _ in range(20):
            crowd.do("c", 40)
            await_ends(engine, 41)
            for slot in list(engine.maps.slots()):
                if slot.exited:
                    engine.maps.recycle(slot.index)
        now = engine.maps.lifecycle()
        assert now.fresh_count <= 64
        assert now.fresh_count + now.reused_count == 1 + 20 * 41
        assert engine.loss_counts()["thread_slots_full"] == 0
        assert live_tids(engine) == [crowd.pid]


def test_a_thread_id_that_is_used_again_has_two_accounts(crowd: Crowd) -> None:
    with engine_on(crowd) as engine:
        engine.attach()
        crowd.do("r", REUSED_TID)
        crowd.do("r", REUSED_TID)
        await_ends(engine, 2)
        found = [slot for slot in engine.maps.slots() if slot.tid == REUSED_TID]
        assert len({slot.thread_start_ns for slot in found}) == 2
        for slot in found:
            assert sum(slot.cells) == slot.last_ns - slot.first_ns
            assert REUSED_NS <= sum(slot.cells) < 10 * REUSED_NS


@contextmanager
def recorded(
    pid: int, tlstax: list[str], capture: Path, *more: str
) -> Iterator["subprocess.Popen[str]"]:
    """`tlstax attach`, from when it is attached; it ends with the block."""
    command = [*tlstax, "attach", str(pid), "--quiet", "--budget", "none", "-o", str(capture)]
    with subprocess.Popen([*command, *more], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "attached to" in process.stderr.readline()
        yield process
        process.send_signal(signal.SIGINT)
        errors = process.stderr.read()
    assert process.returncode == 0, errors


def test_five_thousand_threads_have_an_account_each(
    crowd: Crowd, tlstax: list[str], tmp_path: Path
) -> None:
    # The room follows from how many files the process may open, as a connection needs one.
    resource.prlimit(crowd.pid, resource.RLIMIT_NOFILE, (2 * MANY, 2 * MANY))
    crowd.do("+", MANY // 2)
    with recorded(crowd.pid, tlstax, tmp_path / "a"):
        crowd.do("+", MANY // 2)
        for _ in range(4):
            crowd.do("!", 200)
    with CaptureReader.open(tmp_path / "a") as reader:
        assert {row.tid for row in reader.rows(Thread)} == crowd.tids()
        (*_, clock) = reader.rows(ProcessClock)
        rss_bytes = max(row.engine_rss_bytes for row in reader.rows(System))
    assert clock.thread_count == clock.account_count == MANY + 1
    assert clock.untracked_count == 0
    assert rss_bytes < RSS_MOST_BYTES


def test_a_thread_that_the_kernel_does_not_announce_has_an_account_before_long(
    spawn: Callable[..., "subprocess.Popen[bytes]"], repository: Path, tlstax: list[str],
    tmp_path: Path,
) -> None:  # fmt: skip
    """As those that io_uring makes of a process: no event tells of their birth."""
    program = [repository / "tests/testprogs/bin/uring"]
    reader = spawn(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert reader.stdin is not None
    assert reader.stdout is not None
    if not reader.stdout.readline():
        pytest.skip("this kernel lacks io_uring")
    tasks = Path(f"/proc/{reader.pid}/task")
    with recorded(reader.pid, tlstax, tmp_path / "a", "--window", "200ms"):
        end_s = time.monotonic() + READS_S
        while time.monotonic() < end_s:
            reader.stdin.write(b"r 100\n")
            reader.stdout.readline()
        time.sleep(IDLE_S)
        tids = {int(path.name) for path in tasks.iterdir()}
    assert len(tids) > 1, "it has no such thread"
    with CaptureReader.open(tmp_path / "a") as capture:
        assert {row.tid for row in capture.rows(Thread)} >= tids
        (*_, clock) = capture.rows(ProcessClock)
        ids = {row.thread_id for row in capture.rows(Thread) if row.tid != reader.pid}
        cells = [row for row in capture.rows(Ledger) if row.thread_id in ids]
    assert clock.thread_count == clock.account_count == len(tids)
    assert {row.phase for row in cells} == {"background"}
    asleep = Counter[str]()
    for row in cells:
        asleep[row.state] += row.time_ns
    assert asleep["blocked_disk"] < 0.1 * asleep["blocked_other"], "it has no system call"


@pytest.mark.timing
def test_threads_that_end_make_room_long_before_the_window_ends(
    crowd: Crowd, tlstax: list[str], tmp_path: Path
) -> None:
    """A server with a thread for each connection would else lose all but the first of a window."""
    with recorded(crowd.pid, tlstax, tmp_path / "a", "--window", "1m", "--max-threads", "4096"):
        start_s = time.monotonic()
        for thousands in range(SHORT_LIVED // 1000):
            time.sleep(max(0, start_s + thousands / 5 - time.monotonic()))  # 5,000 a second
            crowd.do("c", 1000)
    with CaptureReader.open(tmp_path / "a") as reader:
        threads = list(reader.rows(Thread))
        losses = {row.kind: row.lost_count for row in reader.rows(Loss)}
    assert "thread_slots_full" not in losses
    assert len(threads) >= SHORT_LIVED


@pytest.mark.timing(emulated=True)
def test_beyond_the_room_the_head_of_the_report_has_number_and_cpu_time(
    crowd: Crowd, tlstax: list[str], tmp_path: Path
) -> None:
    crowd.do("+", ROOM - 1)
    with recorded(crowd.pid, tlstax, tmp_path / "a", "--max-threads", str(ROOM)):
        with_room = crowd.tids()
        crowd.do("+", BESIDE)
        for _ in range(4):
            crowd.do("!", 1000)
        used_ns = crowd.cpu_ns_of(crowd.tids() - with_room)
    command = [*tlstax, "report", str(tmp_path / "a"), "--json", "-"]
    done = subprocess.run(command, capture_output=True, check=True)
    health = json.loads(done.stdout)["health"]
    found = health["untracked"]
    assert (found["thread_count"], found["process_thread_count"]) == (BESIDE, ROOM + BESIDE)
    assert health["warnings"][0].startswith(
        f"{BESIDE:,} of {ROOM + BESIDE:,} threads found no room"
    )
    assert found["cpu_ns"] == pytest.approx(used_ns, rel=0.1)
