# SPDX-License-Identifier: GPL-2.0-only
"""The static recorder as a child: what stays open when it cannot be started."""

import os
from pathlib import Path

import pytest

from tlstax.collectors.recording.by_recorder import child
from tlstax.collectors.recording.by_recorder.child import ChildTarget, RecorderChild


def open_files() -> set[str]:
    """What the descriptors of this process lead to."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        path = Path("/proc/self/fd") / name
        if path.is_symlink():
            found.add(os.readlink(path))
    return found


def test_nothing_stays_open_when_it_cannot_be_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`tlstax top` and experiments go on in the same process, and try again."""
    monkeypatch.setattr(child, "recorder_path", lambda: tmp_path / "absent")
    with pytest.raises(FileNotFoundError):
        RecorderChild("plan", b"tables", [], others=[ChildTarget("other", b"tables", [])])
    assert not {path for path in open_files() if "tlstax-" in path}
