# SPDX-License-Identifier: GPL-2.0-only
"""Emptying a map takes a look at each of its buckets: that of samples has only the room needed."""

import ctypes
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tlstax.collectors.recording.programs.ledger_layout import SampleKey
from tlstax.tests.kernel.recorder_runs import OK, Record, await_attached

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]
LEAST, MOST, COMMAND_S = 1024, 16384, 60
HASH = "1"  # BPF_MAP_TYPE_HASH
KEY_BYTES = f"{ctypes.sizeof(SampleKey)}"


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
    assert room == min(MOST, max(LEAST, wanted))
