# SPDX-License-Identifier: GPL-2.0-only
"""A recorder at the other end of an ssh that runs its command on this host; a process for it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tlstax.collectors.host.executable import recorder_path
from tlstax.collectors.remote.connection import Connection
from tlstax.collectors.remote.destination import Destination

LOCAL = '#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n'
SECRET = "tiger-in-the-night"
WAITS = """
import os, ssl, sys
open("/proc/self/comm", "w").write(f"tl-{os.getpid()}")
print("ready", flush=True)
sys.stdin.read()
"""
PROGRAM = Path(os.environ.get("TLSTAX_RECORDER") or recorder_path())
Spawn = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def target(spawn: Spawn) -> "subprocess.Popen[bytes]":
    """A process with a TLS library, and a password on its command line."""
    command = [sys.executable, "-c", WAITS, SECRET]
    process = spawn(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


@pytest.fixture
def connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    """To this host, with an empty cache."""
    bin_, there = tmp_path / "bin", tmp_path / "there"
    bin_.mkdir()
    there.mkdir()
    (bin_ / "ssh").write_text(LOCAL)
    (bin_ / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with Connection(Destination("db1", directory=str(there)), PROGRAM) as opened:
        assert list(there.iterdir()) == [], "it deletes itself before it says a word"
        yield opened
