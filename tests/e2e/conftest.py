# SPDX-License-Identifier: GPL-2.0-only
"""What end-to-end tests share."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest


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
