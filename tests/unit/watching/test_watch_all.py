# SPDX-License-Identifier: GPL-2.0-only
"""A watch of several servers: who shares a recorder, and what one costs the others."""

from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.watching import watch_all
from tlstax.collectors.watching.server_labels import may_be_its_parent, server_marks, short_label
from tlstax.tests.unit.watching.servers_of_host import CPU_NS, Host, host_of, run
from tlstax.tests.unit.watching.test_watch import WINDOW, refused

OF_USER = "0::/user.slice/user-1000.slice/user@1000.service/app.slice"


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    return host_of(monkeypatch)


def test_those_that_are_there_share_a_recorder_and_a_restart_has_its_own(host: Host) -> None:
    host.pids = [[7, 8], [7], [7, 9], [7, 9], [7], [7]]
    host.made = {9: (("--port", "db8"),)}
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
    host.running = {7, 8}
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


def test_it_waits_for_the_first_one(host: Host) -> None:
    host.pids = [[], [7], [7], []]
    told = run(host)
    assert told[0] == "waiting for processes called mysqld of unit one"
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
    assert short_label(server_marks(7, tmp_path)) == label
    assert short_label(server_marks(8, tmp_path)) == ""


@pytest.mark.parametrize(
    ("command", "session", "may_be"),
    [
        ("mysqld --daemonize --port=1", 7, True),
        ("mysqld --port=1 --daemonize=1", 7, True),
        ("mysqld -D", 7, True),
        ("mysqld --port=1", 7, False),
        ("mysqld --daemonize", 6, False),  # the server itself: its session's leader has ended
    ],
)
def test_which_process_waits_for_the_server_that_it_has_forked(
    command: str, session: int, may_be: bool, tmp_path: Path
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/cmdline").write_text(command.replace(" ", "\0") + "\0")
    (tmp_path / "7/stat").write_text(f"7 (mysqld) S 1 {session} {session} 0 -1\n")
    assert may_be_its_parent(7, tmp_path) == may_be
    assert not may_be_its_parent(8, tmp_path)
