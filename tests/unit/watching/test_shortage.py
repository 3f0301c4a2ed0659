# SPDX-License-Identifier: GPL-2.0-only
"""A watch on a host without processes, files or memory to spare, or whose tlstax was upgraded.

It says so and tries again: a server that is recorded for weeks is restarted at bad moments, too.
"""

import errno
import pickle
import subprocess
from types import SimpleNamespace
from typing import Any, Final

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.watching import preparation, watch_all
from tlstax.collectors.watching.preparation import prepare
from tlstax.probes.model import Level
from tlstax.tests.unit.watching import servers_of_host, test_watch
from tlstax.tests.unit.watching.test_watch import WINDOW

BUSY: Final = OSError(errno.EAGAIN, "Resource temporarily unavailable")


class OtherVersion:
    """What is pickled of it, no version of it can be made of."""

    def __reduce__(self) -> Any:
        return preparation.Prepared, ("too", "few")


def answered(monkeypatch: pytest.MonkeyPatch, answer: bytes | OSError) -> None:
    """Let the child process that examines a server answer so."""

    def run(*_: object, **__: object) -> Any:
        if isinstance(answer, OSError):
            raise answer
        return SimpleNamespace(returncode=0, stdout=answer)

    monkeypatch.setattr(subprocess, "run", run)


def test_a_child_process_that_cannot_be_started_is_an_error_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered(monkeypatch, BUSY)
    with pytest.raises(TlstaxError, match="temporarily unavailable") as raised:
        prepare(7, Level.FLOW)
    assert raised.value.exit_code == ExitCode.HOST
    assert "TasksMax" in raised.value.do


@pytest.mark.parametrize(
    "answer",
    [
        pickle.dumps(OtherVersion()),
        pickle.dumps(Level.FLOW)[:-1],
        b"ctlstax.probes.model\nNoLonger\n.",
        b"ctlstax.probes.no_longer\nLevel\n.",
        b"this is no pickle",
    ],
    ids=["fields", "cut", "name", "module", "garbage"],
)
def test_an_answer_of_another_version_is_an_error_in_words(
    answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered(monkeypatch, answer)
    with pytest.raises(TlstaxError, match="cannot be read") as raised:
        prepare(7, Level.FLOW)
    assert "upgraded" in raised.value.do


def test_a_watch_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the examination nor the recorder can be started at the first restart."""
    host = test_watch.host_of(monkeypatch)
    host.running = {7, 8}
    host.pids = [[7], [8], [8], [8], []]
    host.refusals, host.unstarted = [None, BUSY], [None, BUSY]
    host.windows = [[WINDOW, "exited"], [WINDOW, "exited"]]
    said = test_watch.run(host)
    assert [one for one in host.did if "begin" in one] == ["begin 7 flow", "begin 8 flow"]
    why = "process 8 cannot be recorded: Resource temporarily unavailable"
    assert sum(why in line for line in said) == 2


def test_at_the_start_it_is_the_error_of_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    host = test_watch.host_of(monkeypatch)
    host.running, host.pids, host.unstarted = {7}, [[7]], [BUSY]
    with pytest.raises(TlstaxError, match="temporarily unavailable") as raised:
        test_watch.run(host)
    assert raised.value.exit_code == ExitCode.HOST


def test_of_several_servers_it_costs_one_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    host = servers_of_host.host_of(monkeypatch)
    host.running, host.pids = {7, 8}, [[7, 8], [7, 8], [7, 8], [7, 8]]
    host.refusals = {8: [BUSY]}
    told = servers_of_host.run(host)
    assert host.recorders == [[7], [8]]
    assert told[0].startswith("process 8 cannot be recorded: Resource temporarily unavailable")


def test_of_several_servers_a_session_that_cannot_be_made_costs_one_its_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = servers_of_host.host_of(monkeypatch)
    host.running, host.pids = {7, 8}, [[7, 8], [7, 8], [7, 8], [7, 8]]
    session: Any = vars(watch_all)["RecorderSession"]
    failures = [BUSY]

    def made(recorded: Any, *rest: Any, child: Any) -> Any:
        if recorded.target.pid == 8 and failures:
            raise failures.pop()
        return session(recorded, *rest, child=child)

    monkeypatch.setattr(watch_all, "RecorderSession", made)
    told = servers_of_host.run(host)
    assert host.recorders == [[7, 8], [8]]
    assert told[0].startswith("process 8 cannot be recorded: Resource temporarily unavailable")


def test_what_the_last_hour_left_is_written_while_the_server_is_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = test_watch.host_of(monkeypatch)
    host.pids = [[7], [], [], [8], []]
    host.windows = [[WINDOW, "exited"], [WINDOW, "exited"]]
    test_watch.run(host)
    assert host.settled_after == ["detached"] * 3


def test_and_before_a_process_is_attached_to_again(monkeypatch: pytest.MonkeyPatch) -> None:
    host = test_watch.host_of(monkeypatch)
    host.running, host.pids = {7}, [[7], [7]]
    host.windows = [[WINDOW, "the recorder ended"], [WINDOW, "the recorder ended"]]
    test_watch.run(host)
    assert host.settled_after == ["detached"]
