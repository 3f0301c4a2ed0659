# SPDX-License-Identifier: GPL-2.0-only
"""A host of several servers for tests of `tlstax watch --all`: no process, no recorder."""

import os
import weakref
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.schema import Row
from tlstax.collectors.preflight.safety import Safety
from tlstax.collectors.process.control_groups import Group
from tlstax.collectors.watching import labels, outlet, outlets, watch_all
from tlstax.collectors.watching.outlet import Outlet, Watched
from tlstax.collectors.watching.outlets import Outlets
from tlstax.collectors.watching.server_labels import Marks
from tlstax.collectors.watching.watch_all import WatchAll
from tlstax.probes.model import Level
from tlstax.tests.unit.watching.test_watch import SECOND_NS, target

CPU_NS = 3 * SECOND_NS


class Host:
    """A host whose servers begin and end as a script says, and what the watch did there."""

    def __init__(self) -> None:
        self.requested = False
        self.fd, self._wakes = os.pipe()
        self.pids: list[list[int]] = []  # at each look; then it is told to stop
        self.made: dict[int, Marks] = {}  # how servers were started
        self.ended: set[int] = set()
        self.windows: dict[int, list[list[Row] | str]] = {}  # of each pid, and how it ended
        self.refusals: dict[int, list[TlstaxError | OSError | None]] = {}
        self.running: set[int] = set()
        self.stray: set[int] = set()  # numbers whose streams go on without a session
        self.unstarted: list[Exception | None] = []  # recorders that cannot be started
        self.did: list[str] = []
        self.recorders: list[list[int]] = []
        self.told: list[str] = []
        self.sessions: list[weakref.ref[object]] = []
        self.left: list[int] = []  # sessions in memory at each look

    def pids_in_group(self, group: Group, name: str) -> list[int]:
        assert (group, name) == (Group("one"), "mysqld")
        self.left.append(sum(one() is not None for one in self.sessions))
        found = self.pids.pop(0) if self.pids else []
        if not self.pids:
            self.requested = True
        return found

    def prepare(self, pid: int, level: Level, accepted: Sequence[str], *, networks: bool) -> Any:
        del accepted, networks
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
        return Outlet(
            Sink(self, label), None, lambda _: None, lambda: self.did.append(f"close {label}")
        )

    def marks(self, pid: int) -> Marks:
        made = self.made.get(pid, (("--port", f"db{pid}"),))
        return made if pid not in self.ended else ()

    def started_at(self, pid: int) -> str:
        return f"at {pid}" if pid not in self.ended else ""


class Sink:
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

    def settle(self) -> None:
        self._host.did.append(f"settle {self._label}")

    def close(self) -> None:
        raise AssertionError("whoever opened it closes it")


def host_of(monkeypatch: pytest.MonkeyPatch) -> Host:
    """One without servers."""
    made = Host()
    for name in ("pids_in_group", "program_of"):
        monkeypatch.setattr(watch_all, name, getattr(made, name))
    monkeypatch.setattr(outlet, "prepare", made.prepare)
    monkeypatch.setattr(labels, "server_marks", made.marks)
    monkeypatch.setattr(labels, "started_at", made.started_at)
    monkeypatch.setattr(labels, "may_be_its_parent", lambda _: False)

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

        def stream_of(self, number: int) -> Any:
            return SimpleNamespace(is_over=number not in made.stray)

        def end(self) -> None:
            made.did.append("end the recorder")

        def close(self) -> None:
            made.did.append("its end")

    class Session:
        """Its part for a server."""

        budget, said, why_broken = None, "it said this", ""
        replay = SimpleNamespace(network_bits=(0, 0))

        def __init__(self, recorded: Any, *_: Any, child: Any) -> None:
            del child
            self.pid, self.ending, self.rows = recorded.target.pid, "", self
            made.sessions.append(weakref.ref(self))
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
                    made.ended |= set() if self.pid in made.running else {self.pid}
                    self.why_broken = one if "cannot be read" in one else ""
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
    for module in (watch_all, outlets):
        monkeypatch.setattr(module, "_S", 1_000_000)
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
    """Watch it; what was told."""
    told = host.told
    with closing(Outlets(host.open_outlet)) as outlets:
        watched = Watched("mysqld", 0, 0.005, 10.0, group=Group("one"))
        WatchAll(watched, outlets, host, told.append).run()
    return told
