# SPDX-License-Identifier: GPL-2.0-only
"""Handshake records are taken out by time, not by window: thousands a second lose none."""

import json
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from tlstax.collectors.capture.schema import Handshake, Loss
from tlstax.tests.kernel.recorder_runs import Record, rows_of
from tlstax.tests.patience import COMMAND_S

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]
THREADS, RATE_PER_S, SECONDS = 4, 5000, 6
LEAST = 10_000
"""Some seconds of records would fit into the programs' memory."""


@pytest.mark.timing
def test_five_thousand_handshakes_a_second_lose_none(
    repository: Path, tlstax: list[str], spawn: Record, tmp_path: Path
) -> None:
    program = repository / "tests/testprogs/bin/handshakes"
    words = [program, THREADS, RATE_PER_S, SECONDS]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    server = spawn([str(word) for word in words], **pipes)
    assert server.stdin is not None
    assert server.stdout is not None
    assert b"ready" in server.stdout.readline()
    capture = tmp_path / "a"
    options = ["--budget", "none", "--window", "1m", "--quiet", "-o", str(capture)]
    recorder = spawn([*tlstax, "attach", str(server.pid), *options], stderr=subprocess.PIPE)
    assert recorder.stderr is not None
    assert b"attached to" in recorder.stderr.readline()
    server.stdin.write(b"g")
    server.stdin.flush()
    done = json.loads(server.stdout.readline())
    time.sleep(0.1)
    recorder.terminate()
    _, errors = recorder.communicate(timeout=COMMAND_S)
    assert recorder.returncode == 0, errors
    assert Counter(row.outcome for row in rows_of(capture, Handshake)) == {
        "success": done["handshakes"]
    }
    assert not [row for row in rows_of(capture, Loss) if "handshake" in row.kind]
    assert done["handshakes"] >= LEAST, "the host was too busy for a storm"
