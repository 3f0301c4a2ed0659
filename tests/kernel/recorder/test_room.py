# SPDX-License-Identifier: GPL-2.0-only
"""The room of the programs' maps: for thousands of handshakes a second, for a window's samples.

Handshake records are taken out by time, not by window. Emptying a map takes a look at each of its
buckets: that of samples has only the room needed.
"""

import ctypes
import json
import os
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from tlstax.collectors.capture.schema import Handshake, Loss
from tlstax.collectors.recording.programs.ledger_layout import SampleKey
from tlstax.tests.kernel.recorder_runs import OK, Record, await_attached, rows_of
from tlstax.tests.patience import COMMAND_S

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]
THREADS, RATE_PER_S, SECONDS = 4, 5000, 6
LEAST = 10_000
"""Some seconds of records would fit into the programs' memory."""
ROOM_LEAST, ROOM_MOST = 1024, 16384
HASH = "1"  # BPF_MAP_TYPE_HASH
KEY_BYTES = f"{ctypes.sizeof(SampleKey)}"


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


def samples_room(pid: int) -> int:
    """Entries that the recorder's map of samples has room for."""
    for file in Path(f"/proc/{pid}/fdinfo").iterdir():
        lines = file.read_text().splitlines()
        fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        if (fields.get("map_type"), fields.get("key_size")) == (HASH, KEY_BYTES):
            return int(fields["max_entries"])
    pytest.fail("no map has such keys")


@pytest.mark.parametrize(
    ("hz", "window", "longest_s"), [(99, "1s", 10), (999, "1s", 10), (99, "60s", 60), (0, "1s", 0)]
)
def test_the_map_of_samples_has_room_for_the_longest_window(
    recorded_server: "subprocess.Popen[bytes]", record_it: Record, hz: int, window: str,
    longest_s: int,
) -> None:  # fmt: skip
    recorder = record_it("--sample-hz", f"{hz}", "--window", window)
    await_attached(recorder)
    room = samples_room(recorder.pid)
    recorder.send_signal(signal.SIGTERM)
    recorder.communicate(timeout=COMMAND_S)
    assert recorder.returncode == OK
    wanted = hz * os.sysconf("SC_NPROCESSORS_ONLN") * longest_s
    assert room == min(ROOM_MOST, max(ROOM_LEAST, wanted))
