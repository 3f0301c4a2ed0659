# SPDX-License-Identifier: GPL-2.0-only
"""Waits that are made on purpose are called by their names: a table lock, a slow disk.

The client's own clock says how long each statement took; the ledger must have that as the server's
wait, under the right state. Which state that is, is never asked twice; for how long, is.
"""

import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Ledger, Thread
from tlstax.collectors.recording.by_recorder.recorder import Recorder
from tlstax.collectors.recording.request import Request
from tlstax.workloads.resources import Resources
from tlstax.workloads.servers.configuration import DATABASE
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.programs import Binaries
from tlstax.workloads.servers.request import ServerRequest
from tlstax.workloads.servers.status import StatusSession

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

TABLE = f"{DATABASE}.truth"
LOCKED_S = 1.0
COMMITS, WRITES_PER_S = 15, 20
DISK_BYTES = 512 << 20
TOLERATED_S = 0.15  # of a statement's time that is not the wait: a busy host
CGROUPS = Path("/sys/fs/cgroup")


class Waited(NamedTuple):
    """What statements took by the client's clock, and the server's time in them by state, in ns."""

    waited_s: float
    states: Counter[str]

    @property
    def longest(self) -> str:
        """The state that holds most."""
        return self.states.most_common(1)[0][0]


Measured = Callable[[object, Callable[[], Waited]], Waited]


def administrator(server: PrivateServer) -> StatusSession:
    """A connection that may do everything, in plaintext through the socket."""
    return StatusSession(Binaries.find().client, server.directory.client / "administrator.cnf")


def spent_ns(path: Path, *phases: str) -> Counter[str]:
    """Time of connections in some phases, by state."""
    found = Counter[str]()
    with CaptureReader.open(path) as reader:
        serving = {row.thread_id for row in reader.rows(Thread) if row.role == "connection"}
        for row in reader.rows(Ledger):
            if row.phase in phases and row.thread_id in serving:
                found[row.state] += row.time_ns
    return found


@pytest.fixture
def lock_wait(measured: Measured, lab_directory: Path, tmp_path: Path) -> Waited:
    return measured("lock", lambda: wait_for_a_lock(tmp_path / "capture"))


def wait_for_a_lock(capture: Path) -> Waited:
    """Another session holds the table for LOCKED_S."""
    waited_s = 0.0
    with PrivateServer() as server, administrator(server) as first, administrator(server) as second:
        first.query(f"CREATE TABLE {TABLE} (id INT PRIMARY KEY)")
        with Recorder(Request(server.pid, capture)) as recorder:
            first.query(f"LOCK TABLES {TABLE} WRITE")

            def read() -> None:
                nonlocal waited_s
                began = time.monotonic()
                second.query(f"SELECT * FROM {TABLE}")
                waited_s = time.monotonic() - began

            reader = threading.Thread(target=read)
            reader.start()
            recorder.poll(LOCKED_S)
            first.query("UNLOCK TABLES")
            reader.join()
            recorder.poll(0.1)
    states = spent_ns(capture, "command")
    print(f"the statement took {waited_s:.3f} s; {dict(states)}")
    return Waited(waited_s, states)


def test_a_table_lock_is_a_lock(lock_wait: Waited) -> None:
    assert lock_wait.longest == "blocked_lock", lock_wait
    assert lock_wait.states["blocked_futex"] < 0.1 * lock_wait.states["blocked_lock"], lock_wait


@pytest.mark.timing
def test_a_table_lock_takes_what_the_client_waited(lock_wait: Waited) -> None:
    locked_s = lock_wait.states["blocked_lock"] / 1e9
    assert locked_s == pytest.approx(lock_wait.waited_s, abs=TOLERATED_S), lock_wait


@pytest.fixture
def disk_wait(measured: Measured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Waited:
    return measured("disk", lambda: wait_for_a_disk(tmp_path / "capture", monkeypatch))


def wait_for_a_disk(capture: Path, monkeypatch: pytest.MonkeyPatch) -> Waited:
    """COMMITS to a disk that takes WRITES_PER_S."""
    waited_s = 0.0
    options = ("innodb_flush_log_at_trx_commit = 1", "innodb_log_file_size = 16M")
    with Resources() as resources, loop_disk(resources) as (device, directory):
        monkeypatch.setattr("tempfile.tempdir", str(directory))
        with (
            PrivateServer(ServerRequest(options=options)) as server,
            administrator(server) as session,
        ):
            session.query(f"CREATE TABLE {TABLE} (id INT PRIMARY KEY) ENGINE=InnoDB")
            with (
                Recorder(Request(server.pid, capture)) as recorder,
                slowed(resources, device, server.pid),
            ):
                for number in range(COMMITS):
                    began = time.monotonic()
                    session.query(f"INSERT INTO {TABLE} VALUES ({number})")
                    waited_s += time.monotonic() - began
                    recorder.poll(0.01)
    assert waited_s > COMMITS / WRITES_PER_S, "the disk was not slow"
    states = spent_ns(capture, "command", "record_write")
    print(f"statements took {waited_s:.3f} s; {dict(states)}")
    return Waited(waited_s, states)


@pytest.mark.needs("disk_limits")
def test_a_slow_disk_is_a_disk(disk_wait: Waited) -> None:
    assert disk_wait.longest == "blocked_disk", disk_wait


@pytest.mark.timing
@pytest.mark.needs("disk_limits")
def test_a_slow_disk_takes_what_the_client_waited(disk_wait: Waited) -> None:
    waited_s, states = disk_wait.waited_s, disk_wait.states
    # Some commits are in a write of another thread's; InnoDB lets the connection wait for that one.
    waits_s = (states["blocked_disk"] + states["blocked_futex"]) / 1e9
    not_waited_s = (states["on_cpu"] + states["runnable"]) / 1e9
    assert waits_s + not_waited_s == pytest.approx(waited_s, rel=0.1, abs=TOLERATED_S), states
    assert states["blocked_disk"] > 0.5e9 * waited_s, states


@contextmanager
def loop_disk(resources: Resources) -> Iterator[tuple[Path, Path]]:
    """A file system of its own on a loop device: (the device, where it is mounted)."""
    image, directory = resources.directory / "disk", resources.directory / "mounted"
    resources.directory.chmod(0o711)
    directory.mkdir()
    with image.open("wb") as file:
        file.truncate(DISK_BYTES)
    run("mkfs.ext4", "-q", "-F", str(image))
    device = run("losetup", "--find", "--show", str(image))
    resources.register("loop", device)
    resources.register("mount", str(directory))
    run("mount", device, str(directory))
    directory.chmod(0o711)
    yield Path(device), directory


@contextmanager
def slowed(resources: Resources, device: Path, pid: int) -> Iterator[None]:
    """At most WRITES_PER_S writes a second of one process, by its control group."""
    number = (Path("/sys/block") / device.name / "dev").read_text().strip()
    old = (CGROUPS / "blkio").is_dir()
    parent = CGROUPS / "blkio" if old else CGROUPS
    if not old:
        with (parent / "cgroup.subtree_control").open("w") as file:
            file.write("+io")
    group = parent / f"tlstax-{resources.tag}"
    resources.register("cgroup", str(group))
    group.mkdir()
    limit = "blkio.throttle.write_iops_device" if old else "io.max"
    value = f"{number} {WRITES_PER_S}" if old else f"{number} wiops={WRITES_PER_S}"
    (group / limit).write_text(value)
    home = home_of(pid, parent)
    (group / "cgroup.procs").write_text(str(pid))
    try:
        yield
    finally:
        (home / "cgroup.procs").write_text(str(pid))
        resources.release("cgroup", str(group))


def home_of(pid: int, parent: Path) -> Path:
    """The control group that a process is in, by the hierarchy of disks."""
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    wanted = "blkio" if parent.name == "blkio" else ""
    fields = (line.split(":", 2) for line in lines)
    path = next(path for _, names, path in fields if wanted in names.split(","))
    return parent / path.lstrip("/")


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
