# SPDX-License-Identifier: GPL-2.0-only
"""Processes of another host by their control groups: which are found, and what is sent of them."""

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
    return str(max(words, key=len)) if words else "::"  # in the root's, which all then are


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


@pytest.mark.parametrize("name", ["x\nrecord", "x\0y", "x" * 5000])
def test_a_name_is_one_request(connection: Connection, name: str) -> None:
    with pytest.raises(TlstaxError, match="a request is one line") as caught:
        list(connection.ask(f"find {name}"))
    assert caught.value.exit_code == ExitCode.USAGE
    assert connection.can_be_asked
