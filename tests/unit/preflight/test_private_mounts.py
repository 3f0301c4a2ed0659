# SPDX-License-Identifier: GPL-2.0-only
"""Kernel files are read where that leaves no trace."""

from pathlib import Path

import pytest

from tlstax.collectors.preflight import private_mounts


@pytest.mark.parametrize(
    ("lockdown", "is_read"),
    [("[none] integrity confidentiality", True), ("none [integrity] confidentiality", False)],
)
def test_debugfs_is_left_alone_under_lockdown(
    lockdown: str, is_read: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel refuses, and writes a line to its log for each attempt."""
    files = {}
    for kind, text in (("securityfs", lockdown), ("debugfs", "(full)"), ("tracefs", "")):
        files[kind] = tmp_path / kind
        files[kind].write_text(text)
    places = [(path, kind, tmp_path) for kind, path in files.items()]
    monkeypatch.setattr(private_mounts, "_PLACES", places)
    texts = private_mounts.kernel_texts()
    assert texts.lockdown == lockdown
    assert texts.preempt == ("(full)" if is_read else None)
    assert texts.uprobe_events == ""
