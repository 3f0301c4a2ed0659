# SPDX-License-Identifier: GPL-2.0-only
"""A watch follows its server: it waits, attaches again, changes the level, and ends when told."""

import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.schema import Row
from tlstax.collectors.host.clock import children_cpu_ns
from tlstax.collectors.preflight.safety import Safety
from tlstax.collectors.process.control_groups import Group
from tlstax.collectors.recording.proc_clocks import BothClocks
from tlstax.collectors.watching import outlet, watch
from tlstax.collectors.watching.outlet import Outlet, Watched
from tlstax.collectors.watching.watch import Watch
from tlstax.probes.model import Level

SECOND_NS = 1_000_000_000


class Host:
    """A host whose servers begin and end as a script says, and what the watch did there."""

    def __init__(self) -> None:
        self.requested = False
        self.fd, self._wakes = os.pipe()
        self.pids: list[list[int]] = []  # at each look
        self.windows: list[list[list[Row] | str]] = []  # of each recorder, and how it ended
        self.refusals: list[TlstaxError | OSError | None] = []
        self.unstarted: list[OSError | None] = []  # recorders that cannot be started
        self.running: set[int] = set()
        self.did: list[str] = []
        self.settled_after: list[str] = []  # what was done last
        self.arguments: list[str] = []
        self.clocks: Callable[[Any], BothClocks] | None = None
        self.status = 0

    # ---- as the host ----

    def pids_in_group(self, group: Group, name: str) -> list[int]:
        del group, name
        found = self.pids.pop(0) if self.pids else []
        if not self.pids:
            self.requested = True
        return found

    def prepare(self, pid: int, level: Level, accepted: Sequence[str], *, networks: bool) -> Any:
        del accepted, networks
        refusal = self.refusals.pop(0) if self.refusals else None
        if refusal:
            raise refusal
        target = SimpleNamespace(pid=pid, exe="/usr/sbin/mysqld")
        plan = SimpleNamespace(library=lambda role: None)
        return SimpleNamespace(
            target=target, plan=plan, safety=Safety(), level=level, tables=None,
            thread_room=64, may_be_traced=False,
        )  # fmt: skip

    def program_of(self, pid: int) -> str:
        return "/usr/sbin/mysqld" if pid in self.running else "another program"

    # ---- as Sink ----

    def begin(self, facts: Sequence[Row]) -> None:
        known = {row.key: row.value for row in facts if isinstance(row, schema.Meta)}
        (pid,) = [row.pid for row in facts if isinstance(row, schema.Target)]
        self.did.append(f"begin {pid} {known['command_level']}")

    @property
    def source(self) -> int:
        return 1

    def window(self, rows: Sequence[Row]) -> bool:
        self.did.append("window")
        assert rows
        return False

    def recorded(self, capture: Path, source: int) -> None:
        raise AssertionError("raw windows are not kept")

    def detached(self) -> None:
        self.did.append("detached")

    def settle(self) -> None:
        self.settled_after.append(self.did[-1] if self.did else "")

    def close(self) -> None:
        raise AssertionError("whoever opened it closes it")


class Session:
    """A recorder whose windows the host has."""

    replay = SimpleNamespace(network_bits=(0, 0))

    def __init__(self, host: Host, recorded: Any, arguments: Sequence[str]) -> None:
        self._left = host.windows.pop(0)
        host.arguments = list(arguments)
        self.pid, self.ending, self.said = recorded.target.pid, "", "it said this"
        self._host, self._ready = host, list[tuple[list[Row], Any]]()
        self.budget, self.rows = None, self

    def facts(self, own_cpu_ns: int) -> dict[str, object]:
        return {"start_cpu_ns": own_cpu_ns}

    def begin(self) -> list[Row]:
        return [target(self.pid)]

    def wake_on(self, descriptor: int) -> None:
        del descriptor

    def wait(self, time_ms: float) -> bool:
        del time_ms
        one = self._left.pop(0)
        if isinstance(one, str):
            self.ending = one
        else:
            self._ready.append((one, None))
        return True

    def windows(self) -> Iterator[tuple[list[Row], Any]]:
        ready, self._ready = self._ready, []
        yield from ready

    def finish(self) -> Iterator[tuple[list[Row], Any]]:
        yield from ()

    def close(self) -> int:
        return self._host.status


class _Referable(SimpleNamespace):
    """One that weak references may be made to."""


def target(pid: int) -> schema.Target:
    """The row of a server."""
    values = dict.fromkeys(schema.Target._fields, "")
    return schema.Target(**{**values, "pid": pid})  # type: ignore[arg-type]


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    return host_of(monkeypatch)


def host_of(monkeypatch: pytest.MonkeyPatch) -> Host:
    """One without servers."""
    made = Host()
    for name in ("pids_in_group", "program_of"):
        monkeypatch.setattr(watch, name, getattr(made, name))
    monkeypatch.setattr(outlet, "prepare", made.prepare)

    def session(recorded: Any, arguments: Sequence[str], *rest: Any) -> Session:
        made.clocks = rest[-1]
        if made.unstarted and (error := made.unstarted.pop(0)):
            raise error
        return Session(made, recorded, arguments)

    monkeypatch.setattr(watch, "RecorderSession", session)
    for name in ("_LOOK_MS", "_AGAIN_MS"):
        monkeypatch.setattr(watch, name, (1, 1))
    monkeypatch.setattr(watch, "_SETTLE_MS", 1)
    return made


WINDOW: list[Row] = [schema.Window(1, None, 0, 10 * SECOND_NS, 1, "flow")]


def run(host: Host, name: str = "mysqld", pid: int = 0, budget: float | None = 0.005) -> list[str]:
    said: list[str] = []
    made = Outlet(host, None, said.append, host.close)
    Watch(Watched(name, pid, budget, 10.0), made, host, said.append).run()
    return said


def refused(code: ExitCode) -> TlstaxError:
    return TlstaxError("process 7 cannot be measured", "it has no TLS library", "See", code)


def test_it_waits_and_follows_a_restart(host: Host) -> None:
    host.pids = [[], [7], [], [8], []]
    host.windows = [[WINDOW, "exited"], [WINDOW, WINDOW, "killed by signal 9"]]
    said = run(host)
    assert host.did == [
        "begin 7 flow", "window", "detached",
        "begin 8 flow", "window", "window", "detached",
    ]  # fmt: skip
    assert [line.split(" (")[0] for line in said] == [
        "waiting for a process called mysqld",
        "recording process 7",
        "process 7 is no longer recorded: exited",
        "waiting for a process called mysqld",
        "recording process 8",
        "process 8 is no longer recorded: killed by signal 9",
        "waiting for a process called mysqld",
    ]


def test_a_recording_leaves_nothing_in_memory(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parts refer to each other: without a collection each restart left them all."""
    made: list[weakref.ref[object]] = []
    left: list[int] = []

    def session(*given: Any) -> Session:
        found = Session(host, *given[:2])
        assert found.rows is found
        made.append(weakref.ref(found))
        return found

    def pids_in_group(group: Group, name: str) -> list[int]:
        left.append(sum(one() is not None for one in made))
        return host.pids_in_group(group, name)

    monkeypatch.setattr(watch, "RecorderSession", session)
    monkeypatch.setattr(watch, "pids_in_group", pids_in_group)
    host.pids = [[7], [8], [9], []]
    host.windows = [[WINDOW, "exited"], [WINDOW, "exited"], [WINDOW, "exited"]]
    gc.disable()  # when Python collects by itself is chance
    try:
        run(host)
    finally:
        gc.enable()
    assert (len(made), left) == (3, [0, 0, 0, 0])


def test_what_was_prepared_is_not_kept_while_it_records(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The unwind tables in it took 1.5 MB as long as the server lived."""
    made: list[weakref.ref[object]] = []
    left: list[bool] = []

    def prepare(*asked: Any, **more: Any) -> Any:
        found = _Referable(**vars(host.prepare(*asked, **more)))
        made.append(weakref.ref(found))
        return found

    def window(rows: Sequence[Row]) -> bool:
        left.append(made[-1]() is not None)
        del rows
        return False

    monkeypatch.setattr(outlet, "prepare", prepare)
    monkeypatch.setattr(host, "window", window)
    host.pids, host.windows = [[7], []], [[WINDOW, WINDOW, "exited"]]
    run(host)
    assert left == [False, False]


def test_a_recorder_is_detached_if_its_rows_are_not_taken(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(facts: Sequence[Row]) -> None:
        del facts
        raise OSError

    monkeypatch.setattr(host, "begin", begin)
    host.running, host.pids, host.windows = {7}, [[7], []], [[WINDOW]]
    with pytest.raises(TlstaxError, match="process 7 cannot be recorded"):
        run(host)
    assert host.did == ["detached"]


def test_a_recorder_that_ends_is_started_again(host: Host) -> None:
    host.running = {7}
    host.pids = [[7], [7], []]
    host.windows = [[WINDOW, "the recorder ended"], [WINDOW, "exited"]]
    said = run(host)
    assert host.did.count("begin 7 flow") == 2
    assert any("attaching again" in line for line in said)


def test_a_server_that_cannot_be_recorded_is_refused_at_the_start_only(host: Host) -> None:
    host.running = {7, 8}
    host.pids, host.refusals = [[7]], [refused(ExitCode.TARGET)]
    with pytest.raises(TlstaxError, match="no TLS library"):
        run(host)
    host.requested = False
    host.pids = [[7], [8], [8], []]
    host.refusals = [None, refused(ExitCode.HOST), None]
    host.windows = [[WINDOW, "exited"], [WINDOW, "exited"]]
    said = run(host)
    assert [line for line in host.did if "begin" in line] == ["begin 7 flow", "begin 8 flow"]
    assert any("no TLS library" in line for line in said)


def test_one_process_is_recorded_to_its_end(host: Host) -> None:
    host.windows = [[WINDOW, "exited"]]
    run(host, "", 7)
    assert host.did == ["begin 7 flow", "window", "detached"]
    assert not host.requested


def test_the_recorder_keeps_the_budget_and_counts_its_reader(host: Host) -> None:
    host.pids, host.windows = [[7], []], [[WINDOW, "exited"]]
    run(host)
    given = dict(zip(host.arguments[::2], host.arguments[1::2], strict=True))
    assert given["--budget"] == "0.500000%"
    assert given["--floor-cpus"] == "1"
    assert given["--reader"] == str(os.getpid())
    assert given["--pid"] == "7"


def test_without_a_budget_there_is_none(host: Host) -> None:
    host.windows = [[WINDOW, "exited"]]
    run(host, "", 7, None)
    assert "--budget" not in host.arguments


def test_why_a_recorder_failed_is_told(host: Host) -> None:
    host.pids, host.windows, host.status = [[7], []], [[WINDOW, "the recorder ended"]], 3
    assert "process 7 is no longer recorded: the recorder ended; it said this" in run(host)


def test_two_servers_of_a_name_are_refused_at_the_start(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(group: Group, name: str, *, may_be_all: bool) -> int:
        assert may_be_all
        assert not any(group)
        raise TlstaxError(f"2 processes are called {name}", "", "", ExitCode.TARGET)

    monkeypatch.setattr(watch, "find_in_group", find)
    host.pids = [[7, 8], []]
    with pytest.raises(TlstaxError, match="2 processes"):
        run(host)


def test_the_work_of_its_programs_is_its_own_cost(host: Host) -> None:
    """They name functions and explain hours: docs/watch.md says that metrics have it."""
    host.pids, host.windows = [[7], []], [[WINDOW, "exited"]]
    run(host)
    assert host.clocks
    clocks = host.clocks(SimpleNamespace(window=SimpleNamespace(own_cpu_ns=0)))
    before_ns = children_cpu_ns()
    subprocess.run([sys.executable, "-c", "sum(range(5_000_000))"], check=True)
    assert clocks.own_cpu_ns() >= children_cpu_ns() - before_ns > 0
