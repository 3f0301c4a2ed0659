# SPDX-License-Identifier: GPL-2.0-only
"""A watch follows its server: it waits, attaches again, changes the level, and ends when told."""

import os
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.schema import Row
from tlstax.collectors.preflight.safety import Safety
from tlstax.collectors.watching import watch
from tlstax.collectors.watching.watch import Watch, Watched
from tlstax.probes.model import Level

SECOND_NS = 1_000_000_000


class Host:
    """A host whose servers begin and end as a script says, and what the watch did there."""

    def __init__(self) -> None:
        self.requested = False
        self.fd, self._wakes = os.pipe()
        self.pids: list[list[int]] = []  # at each look
        self.windows: list[list[list[Row] | str]] = []  # of each recorder, and how it ended
        self.refusals: list[TlstaxError | None] = []
        self.running: set[int] = set()
        self.did: list[str] = []

    # ---- as the host ----

    def pids_of_name(self, name: str) -> list[int]:
        del name
        found = self.pids.pop(0) if self.pids else []
        if not self.pids:
            self.requested = True
        return found

    def prepare(self, pid: int, level: Level, accepted: Sequence[str]) -> Any:
        del accepted
        refusal = self.refusals.pop(0) if self.refusals else None
        if refusal:
            raise refusal
        target = SimpleNamespace(pid=pid, exe="/usr/sbin/mysqld")
        plan = SimpleNamespace(library=lambda role: None)
        return SimpleNamespace(target=target, plan=plan, safety=Safety(), level=level)

    def program_of(self, pid: int) -> str:
        return "/usr/sbin/mysqld" if pid in self.running else "another program"

    # ---- as Sink ----

    def begin(self, facts: Sequence[Row]) -> None:
        self.did.append(f"begin {facts}")

    def window(self, rows: Sequence[Row]) -> None:
        self.did.append("window")
        assert rows

    def detached(self) -> None:
        self.did.append("detached")

    def close(self) -> None:
        raise AssertionError("whoever opened it closes it")


class Attached:
    """A recorder whose windows the host has."""

    def __init__(self, host: Host, prepared: Any, level: Level) -> None:
        self._left = host.windows.pop(0)
        self._pid, self.level, self.ending = prepared.target.pid, level, ""
        self.recorder_start_ns = 0

    def facts(self) -> str:
        return f"{self._pid} {self.level.name.lower()}"

    def wake_on(self, descriptor: int) -> None:
        del descriptor

    def windows(self, wait_ms: float) -> Iterator[list[Row]]:
        del wait_ms
        one = self._left.pop(0)
        if isinstance(one, str):
            self.ending = one
        else:
            yield one

    def end(self) -> Iterator[list[Row]]:
        yield from ()

    def close(self) -> str:
        return ""


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host()
    for name in ("pids_of_name", "prepare", "program_of"):
        monkeypatch.setattr(watch, name, getattr(made, name))

    def attached(prepared: Any, level: Level, window_s: float, spent_ns: int) -> Attached:
        del window_s, spent_ns
        return Attached(made, prepared, level)

    monkeypatch.setattr(watch, "AttachedServer", attached)
    for name in ("_LOOK_MS", "_AGAIN_MS"):
        monkeypatch.setattr(watch, name, (1, 1))
    monkeypatch.setattr(watch, "_SETTLE_MS", 1)
    return made


def cost(share: float) -> list[Row]:
    server_ns = 10 * SECOND_NS
    return [
        schema.Window(1, None, 0, 10 * SECOND_NS, 1, "flow"),
        schema.Effect(1, server_ns, round(share * server_ns), 0, 0),
    ]


def run(host: Host, name: str = "mysqld", pid: int = 0) -> list[str]:
    said: list[str] = []
    Watch(Watched(name, pid, 0.005, 10.0), host, host, said.append).run()
    return said


def refused(code: ExitCode) -> TlstaxError:
    return TlstaxError("process 7 cannot be measured", "it has no TLS library", "See", code)


def test_it_waits_and_follows_a_restart(host: Host) -> None:
    host.pids = [[], [7], [], [8], []]
    host.windows = [[cost(0), "exited"], [cost(0), cost(0), "killed by signal 9"]]
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


def test_a_recorder_that_ends_is_started_again(host: Host) -> None:
    host.running = {7}
    host.pids = [[7], [7], []]
    host.windows = [[cost(0), "the recorder ended"], [cost(0), "exited"]]
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
    host.windows = [[cost(0), "exited"], [cost(0), "exited"]]
    said = run(host)
    assert [line for line in host.did if "begin" in line] == ["begin 7 flow", "begin 8 flow"]
    assert any("no TLS library" in line for line in said)


def test_one_process_is_recorded_to_its_end(host: Host) -> None:
    host.windows = [[cost(0), "exited"]]
    run(host, "", 7)
    assert host.did == ["begin 7 flow", "window", "detached"]
    assert not host.requested


def test_a_level_that_is_too_expensive_is_told_once(host: Host) -> None:
    host.pids = [[7], []]
    dense, light = [cost(0.05)] * 3, [cost(0.001)] * 400
    host.windows = [[*dense], [*light], [cost(0.05)], [*light], [cost(0.001)] * 20 + ["exited"]]
    said = run(host)
    begun = [line for line in host.did if "begin" in line]
    assert begun == [f"begin 7 {one}" for one in ("flow", "handshake", "flow", "handshake", "flow")]
    told = [line for line in said if line.startswith("level")]
    assert [line.split(",")[0] for line in told] == [
        "level handshake with stretches of level flow",
        "level flow all the time again: it took 0.10%",
    ]


def test_two_servers_of_a_name_are_refused_at_the_start(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(name: str) -> int:
        raise TlstaxError(f"2 processes are called {name}", "", "", ExitCode.TARGET)

    monkeypatch.setattr(watch, "find_by_name", find)
    host.pids = [[7, 8], []]
    with pytest.raises(TlstaxError, match="2 processes"):
        run(host)
