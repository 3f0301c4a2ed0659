# SPDX-License-Identifier: GPL-2.0-only
"""A watch of several servers: who shares a recorder, and what one costs the others."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.schema import Row
from tlstax.collectors.preflight.safety import Safety
from tlstax.collectors.watching import watch_all
from tlstax.collectors.watching.outlet import Outlet, Watched
from tlstax.collectors.watching.server_labels import server_label
from tlstax.collectors.watching.watch_all import WatchAll
from tlstax.probes.model import Level
from tlstax.tests.unit.watching.test_watch import SECOND_NS, WINDOW, refused, target

CPU_NS = 3 * SECOND_NS
OF_USER = "0::/user.slice/user-1000.slice/user@1000.service/app.slice"


class Host:
    """A host whose servers begin and end as a script says, and what the watch did there."""

    def __init__(self) -> None:
        self.requested = False
        self.fd, self._wakes = os.pipe()
        self.pids: list[list[int]] = []  # at each look; then it is told to stop
        self.labels: dict[int, str] = {}
        self.windows: dict[int, list[list[Row] | str]] = {}  # of each pid, and how it ended
        self.refusals: dict[int, list[TlstaxError | None]] = {}
        self.running: set[int] = set()
        self.unstarted: list[Exception | None] = []  # recorders that cannot be started
        self.did: list[str] = []
        self.recorders: list[list[int]] = []
        self.told: list[str] = []

    def pids_of_name(self, name: str) -> list[int]:
        assert name == "mysqld"
        found = self.pids.pop(0) if self.pids else []
        if not self.pids:
            self.requested = True
        return found

    def prepare(self, pid: int, level: Level, accepted: Sequence[str]) -> Any:
        del accepted
        refusals = self.refusals.get(pid)
        if refusals and (refusal := refusals.pop(0)):
            raise refusal
        return SimpleNamespace(
            target=SimpleNamespace(pid=pid, exe="/usr/sbin/mysqld"), safety=Safety(), level=level,
            plan=SimpleNamespace(library=lambda role: None), tables=None, thread_room=64,
            may_be_traced=False,
        )  # fmt: skip

    def program_of(self, pid: int) -> str:
        return "/usr/sbin/mysqld" if pid in self.running else "another program"

    def open_outlet(self, label: str) -> Outlet:
        self.did.append(f"open {label}")
        return Outlet(_Sink(self, label), None, lambda _: None)


class _Sink:
    def __init__(self, host: Host, label: str) -> None:
        self._host, self._label = host, label

    def begin(self, facts: Sequence[Row]) -> None:
        (pid,) = [row.pid for row in facts if isinstance(row, schema.Target)]
        self._host.did.append(f"begin {self._label} {pid}")

    source = 1

    def window(self, rows: Sequence[Row]) -> bool:
        assert rows
        self._host.did.append(f"window {self._label}")
        return False

    def recorded(self, capture: Path, source: int) -> None:
        raise AssertionError("raw windows are not kept")

    def detached(self) -> None:
        self._host.did.append(f"detached {self._label}")

    def close(self) -> None:
        raise AssertionError("whoever opened it closes it")


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host()
    for name in ("pids_of_name", "prepare", "program_of"):
        monkeypatch.setattr(watch_all, name, getattr(made, name))
    monkeypatch.setattr(watch_all, "server_label", lambda pid: made.labels.get(pid, f"db{pid}"))

    class Child:
        """A recorder."""

        is_read = False

        def __init__(self, *told: Any) -> None:
            first, others = told[0], told[-1]
            made.recorders.append([first, *(one[0] for one in others)])
            if made.unstarted and (error := made.unstarted.pop(0)):
                raise error
            self._reading, writing = os.pipe()
            os.write(writing, b".")  # something has always arrived

        def fileno(self) -> int:
            return self._reading

        def wait(self, time_ms: float) -> bool:
            return time_ms == 0

        def end(self) -> None:
            return

        close = end

    class Session:
        """Its part for a server."""

        budget, said = None, "it said this"

        def __init__(self, recorded: Any, *_: Any, child: Any) -> None:
            del child
            self.pid, self.ending, self.rows = recorded.target.pid, "", self
            self._left = made.windows.get(self.pid, [])

        def facts(self, before_ns: int) -> dict[str, object]:
            del before_ns
            return {"start_cpu_ns": CPU_NS}

        def begin(self) -> list[Row]:
            return [target(self.pid)]

        def windows(self) -> Iterator[tuple[list[Row], Any]]:
            while self._left and not self.ending:
                one = self._left.pop(0)
                if isinstance(one, str):
                    self.ending = one
                else:
                    yield one, None

        def finish(self) -> Iterator[tuple[list[Row], Any]]:
            yield from ()

        def close(self) -> int:
            return int(ExitCode.TARGET if self.ending else ExitCode.OK)

    monkeypatch.setattr(watch_all, "RecorderChild", Child)
    monkeypatch.setattr(watch_all, "RecorderSession", Session)
    monkeypatch.setattr(watch_all, "ServerPart", lambda *_: None)
    monkeypatch.setattr(watch_all, "Asked", _Asked)
    for name in ("_LOOK_ALWAYS_NS", "_SETTLE_NS"):
        monkeypatch.setattr(watch_all, name, 1)
    for name in ("_LOOK_NS", "_AGAIN_NS"):
        monkeypatch.setattr(watch_all, name, (1,))
    monkeypatch.setattr(watch_all, "_S", 1_000_000)
    return made


class _Asked(tuple[Any, ...]):
    """As far as the watch looks at it: what it is of, and what a recorder is told."""

    def __new__(cls, recorded: Any, arguments: list[str], tables: Any) -> "_Asked":
        return super().__new__(cls, (recorded, arguments, tables))

    @property
    def of_child(self) -> "_Told":
        return _Told((self[0].target.pid, None, self[1]))


class _Told(tuple[Any, ...]):
    @property
    def arguments(self) -> list[str]:
        return list(self[2])

    def _replace(self, arguments: list[str]) -> "_Told":
        assert arguments[0] == "--keep-going"
        return self


def run(host: Host) -> list[str]:
    told = host.told
    WatchAll(Watched("mysqld", 0, 0.005, 10.0), host.open_outlet, host, told.append).run()
    return told


def test_those_that_are_there_share_a_recorder_and_a_restart_has_its_own(host: Host) -> None:
    host.pids = [[7, 8], [7], [7, 9], [7, 9], [7], [7]]
    host.labels = {8: "db8", 9: "db8"}
    host.windows = {7: [WINDOW], 8: [WINDOW, "it exited or was killed"], 9: [WINDOW, WINDOW]}
    told = run(host)
    assert host.recorders == [[7, 8], [9]]
    assert [one for one in host.did if one.startswith(("open", "begin", "detached"))] == [
        "open db7", "open db8", "begin db7 7", "begin db8 8", "detached db8", "begin db8 9",
        *["detached db7", "detached db8"],
    ]  # fmt: skip
    assert host.did.count("window db8") == 3
    assert "process 8 is no longer recorded: it exited or was killed" in told
    assert told[-1].startswith("tlstax and its recorders used")
    assert {f"{n * CPU_NS / 1_000_000:.1f} s for db{n + 6}" in told[-1] for n in (1, 2)} == {True}


def test_one_that_cannot_be_recorded_leaves_the_others_and_is_tried_again(host: Host) -> None:
    host.running = {7, 8}
    host.pids = [[7, 8], [7, 8], [7, 8], [7, 8]]
    host.refusals = {8: [refused(ExitCode.TARGET)]}
    told = run(host)
    assert host.recorders == [[7], [8]]
    assert told[0].startswith("process 8: process 7 cannot be measured")


def test_a_recorder_that_does_not_start_leaves_the_others(host: Host) -> None:
    """Its file is missing while a package is upgraded, or there is no process to be had."""
    host.running, host.labels = {7, 8}, {8: "db8"}
    host.pids = [[7], [7, 8], [7, 8], [7, 8]]
    host.unstarted = [None, refused(ExitCode.HOST), OSError(11, "try again"), None]
    told = run(host)
    assert host.recorders == [[7], [8], [8], [8]]
    assert told[0].startswith("process 8: ")
    assert "try again" in told[1]
    assert host.did.count("detached db7") == 1


def test_recordings_that_end_at_once_are_tried_ever_later(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []
    failed = watch_all._Candidate.failed

    def counted(candidate: watch_all._Candidate) -> None:
        tried.append(candidate.failures)
        failed(candidate)

    monkeypatch.setattr(watch_all._Candidate, "failed", counted)
    host.running, host.pids = {7}, [[7]] * 5
    host.windows = {7: ["its recorder was killed"] * 4}
    run(host)
    assert tried[:3] == [0, 1, 2]


def test_none_that_can_be_recorded_is_an_error_at_the_start(host: Host) -> None:
    host.running, host.pids = {7, 8}, [[7, 8], []]
    host.refusals = {pid: [refused(ExitCode.HOST)] for pid in (7, 8)}
    with pytest.raises(TlstaxError, match="no TLS library") as raised:
        run(host)
    assert raised.value.exit_code == ExitCode.HOST
    assert len(host.told) == 1, "the other one"


def test_servers_that_cannot_be_told_apart(host: Host) -> None:
    host.labels = {7: "3306", 8: "3306"}
    host.pids = [[7, 8], []]
    told = run(host)
    assert host.recorders == [[7]]
    assert told[0].startswith("process 8 cannot be told from another server: both are 3306")


def test_it_waits_for_the_first_one(host: Host) -> None:
    host.pids = [[], [7], [7], []]
    told = run(host)
    assert told[0] == "waiting for processes called mysqld"
    assert host.recorders == [[7]]


@pytest.mark.parametrize(
    ("command", "cgroup", "label"),
    [
        ("mysqld --port=3307 --datadir=/srv/b", "", "3307"),
        ("mysqld --port 3307", "", "3307"),
        ("mysqld --defaults-file=/etc/mysql/b.cnf --user=x", "", "etc-mysql-b.cnf"),
        ("mysqld --defaults_group_suffix=@b", "", "@b"),
        ("mysqld --datadir=/srv/../b", "", "srv-..-b"),
        ("mysqld --user=mysql", "", ""),
        ("mysqld --datadir=" + "/long" * 40, "", ("-long" * 12)[1:]),
        ("mysqld", "0::/system.slice/system-mariadb.slice/mariadb@two.service", "two"),
        ("mysqld --port=1", "0::/system.slice/mariadb.service", "1"),
        ("mysqld --port=1", f"{OF_USER}/podman-5.scope", "1"),
        ("mysqld --port=1", f"{OF_USER}/mariadb@one.service", "one"),
    ],
)
def test_what_tells_servers_apart(command: str, cgroup: str, label: str, tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/cmdline").write_text(command.replace(" ", "\0") + "\0")
    (tmp_path / "7/cgroup").write_text(f"{cgroup}\n")
    assert server_label(7, tmp_path) == label
    assert server_label(8, tmp_path) == ""
