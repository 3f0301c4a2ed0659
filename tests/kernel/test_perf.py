# SPDX-License-Identifier: GPL-2.0-only
"""A real recording of perf becomes a capture."""

import subprocess
import sys
from pathlib import Path

import pytest

from tlstax.__main__ import main
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.reader import CaptureReader


@pytest.mark.root
def test_a_real_recording_is_imported(tmp_path: Path) -> None:
    data, out = tmp_path / "perf.data", tmp_path / "x.tlstax"
    burn = "import hashlib\nfor _ in range(1500): hashlib.sha256(b'x' * 100000).digest()"
    record = ["perf", "record", "-q", "-e", "cpu-clock", "-F", "499", "--call-graph", "dwarf"]
    subprocess.run([*record, "-o", data, sys.executable, "-c", burn], check=True)
    assert main(["import", str(data), "-o", str(out)]) == 0
    with CaptureReader.open(out) as reader:
        frames = {row.frame_id: row for row in reader.rows(schema.Frame)}
        stacks = {row.stack_id: row for row in reader.rows(schema.Stack)}
        samples = list(reader.rows(schema.SampleStack))
        (window,) = reader.rows(schema.Window)
    leaves = [
        (frames[int(stacks[row.user_stack_id].frame_ids.split()[0])], row.sample_count)
        for row in samples
        if row.user_stack_id is not None and row.kernel_stack_id is None
    ]
    hashing = sum(count for frame, count in leaves if frame.code == "sha")
    assert hashing / sum(count for _, count in leaves) > 0.3
    assert 0 < window.end_ns - window.start_ns < 60e9
