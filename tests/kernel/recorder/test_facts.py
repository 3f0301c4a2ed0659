# SPDX-License-Identifier: GPL-2.0-only
"""What the recorder tells of its host, where the host is a mount namespace with files of ours."""

import io
import os
import subprocess

import pytest

from tlstax.collectors.recording.stream.definition import definition
from tlstax.collectors.recording.stream.frames import Reading, read_frames
from tlstax.tests.kernel.recorder_runs import OK, PROGRAM

pytestmark = [pytest.mark.root]
SYSTEM = """
mount -t tmpfs sys /sys
mkdir -p /sys/kernel/security /sys/kernel/debug/sched
echo "$1" > /sys/kernel/security/lockdown
echo "none (full)" > /sys/kernel/debug/sched/preempt
shift
exec "$@"
"""


@pytest.mark.parametrize(
    ("lockdown", "is_read"),
    [("[none] integrity confidentiality", True), ("none [integrity] confidentiality", False)],
)
def test_debugfs_is_left_alone_under_lockdown(lockdown: str, is_read: bool) -> None:
    """The kernel refuses, and writes a line to its log for each attempt."""
    command = ["unshare", "-m", "sh", "-ec", SYSTEM, "sh", lockdown, PROGRAM, "--serve"]
    request = f"facts {os.getpid()} none\n".encode()
    done = subprocess.run(command, input=request, capture_output=True, check=False)
    assert done.returncode == OK, done.stderr
    fact, head = definition().number("FACT"), definition().structures["stream_fact"].size_bytes
    frames = read_frames(io.BytesIO(done.stdout), Reading())
    facts = b"\n".join(frame.content[head:] for frame in frames if frame.type == fact)
    assert f"kernel/security/lockdown{lockdown}".encode() in facts
    assert (b"none (full)" in facts) == is_read
