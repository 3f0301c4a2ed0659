# SPDX-License-Identifier: GPL-2.0-only
"""Another host for each test, and what records there."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tlstax.tests.kernel.recorder_runs import PROGRAM
from tlstax.tests.kernel.remote.remote_host import RemoteHost
from tlstax.tests.kernel.remote.sessions import Attach, await_attached


@pytest.fixture
def box() -> Iterator[RemoteHost]:
    """Another host. Its user may not enter the directories of the tests."""
    with tempfile.TemporaryDirectory(prefix="tlstax-box-") as folder:
        Path(folder).chmod(0o755)
        host = RemoteHost(Path(folder, "box"), PROGRAM, sys.executable)
        yield host
        host.close()


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    return tmp_path / "a.tlstax"


@pytest.fixture
def environment(box: RemoteHost, tmp_path: Path) -> dict[str, str]:
    """With an ssh that knows the host, and an empty cache."""
    return {
        **os.environ,
        "PATH": f"{box.path}:{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }


@pytest.fixture
def starting(
    environment: dict[str, str], capture: Path, spawn: Attach, repository: Path, tlstax: list[str]
) -> Attach:
    """Record a process over ssh, which the options name."""

    def run(*options: object) -> "subprocess.Popen[str]":
        command = [
            *tlstax, "attach", "--ssh", "box", "--sudo", "-o", capture,
            "--window", "200ms", "--definitions", repository / "tests/testprogs", *options,
        ]  # fmt: skip
        words = [str(part) for part in command]
        return spawn(words, stderr=subprocess.PIPE, text=True, env=environment)

    return run


@pytest.fixture
def attach(starting: Attach, recorded_server: "subprocess.Popen[bytes]") -> Attach:
    """Record the server of the test over ssh, until it is attached."""

    def run(*options: object) -> "subprocess.Popen[str]":
        process = starting(recorded_server.pid, *options)
        await_attached(process)
        return process

    return run
