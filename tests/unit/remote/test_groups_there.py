# SPDX-License-Identifier: GPL-2.0-only
"""Processes of another host by their control groups: which are found, and what is sent of them."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.process.control_groups import Group, group_text
from tlstax.collectors.remote.connection import Connection
from tlstax.collectors.remote.image import Image
from tlstax.collectors.remote.remote_plan import PlanRequest, find, find_servers
from tlstax.tests.unit.remote.conftest import SECRET


@pytest.fixture
def word() -> str:
    """What the name of a control group of the tests contains."""
    words = re.findall(r"[0-9A-Za-z]{3,}", group_text(Path("/proc/self")).partition("::")[2])
    if not words:
        pytest.skip("the tests are in no control group that has a name")
    return str(max(words, key=len))


def test_nothing_of_a_command_line_is_sent(
    connection: Connection, target: "subprocess.Popen[bytes]", word: str
) -> None:
    """Not even the program, which some processes write over with all of it."""
    for asked in (word.lower(), word.upper()):
        sent = b"".join(frame.content for frame in connection.ask(f"group {asked}"))
        assert f"proc/{target.pid}/comm".encode() in sent
        assert f"proc/{target.pid}/cgroup".encode() in sent
        assert SECRET.encode() not in sent
        assert b"python" not in sent.split(f"proc/{target.pid}/cmdline".encode())[1][:20]


def test_who_has_no_such_group_is_not_sent(connection: Connection) -> None:
    assert list(connection.ask("group no-such-group-anywhere")) == []


@pytest.mark.parametrize("group", [Group(unit="no-such-unit"), Group(container="-" * 8)])
def test_none_belongs_to_it(connection: Connection, tmp_path: Path, group: Group) -> None:
    for search in (find, find_servers):
        image = Image(tmp_path / search.__name__, connection)
        with pytest.raises(TlstaxError, match=f"No process belongs to {group}") as caught:
            search(image, PlanRequest(None, None, group=group))
        assert caught.value.exit_code == ExitCode.TARGET
    assert connection.can_be_asked


def test_the_processes_of_a_unit_are_found(
    connection: Connection, target: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    """As far as the tests run in one: tests/kernel/remote makes units of its own."""
    found = re.findall(r"([^/\s]+\.(?:service|scope|slice))", group_text(Path("/proc/self")))
    if not found:
        pytest.skip("the tests are in no unit")
    image = Image(tmp_path / "image", connection)
    pids = find_servers(image, PlanRequest(None, None, group=Group(unit=found[-1])))
    assert {target.pid, os.getpid()} <= set(pids)
