# SPDX-License-Identifier: GPL-2.0-only
"""The lock by which processes that make the same file follow each other."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tlstax.collectors.host.kept_file import turn


def test_only_one_has_its_turn(tmp_path: Path) -> None:
    path = tmp_path / "made" / "lock"
    with turn(path, 0) as first:
        begun_s = time.monotonic()
        with turn(path, 0.3) as second:
            waited_s = time.monotonic() - begun_s
    with turn(path, 0) as third:
        assert (first, second, third) == (True, False, True)
    assert 0.3 <= waited_s < 10
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def _link(path: Path) -> None:
    path.symlink_to(path.parent / "elsewhere")


@pytest.mark.parametrize("put", [_link, os.mkfifo, Path.mkdir])
def test_what_is_no_file_is_no_lock(tmp_path: Path, put: Callable[[Path], object]) -> None:
    path = tmp_path / "lock"
    put(path)
    with turn(path, 60) as mine:
        assert not mine
    assert not (tmp_path / "elsewhere").exists()
