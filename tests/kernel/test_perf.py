# SPDX-License-Identifier: GPL-2.0-only
"""A real recording of perf becomes a capture."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tlstax import TlstaxError
from tlstax.__main__ import main
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.sources.perf.recording import Perf


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


@pytest.mark.root
def test_events_that_are_counted_together_are_summed_by_phase(tmp_path: Path) -> None:
    """As for cycles and instructions, which a machine without hardware counters cannot count."""
    burn = """
import mmap, sys, time
sys.stdin.read(1)
end, rounds = time.process_time() + 1, 0
while (rounds := rounds + 1) < 50 or time.process_time() < end:
    with mmap.mmap(-1, 1 << 20) as memory:  # less than a huge page
        memory[::4096] = bytes(256)
"""
    with subprocess.Popen([sys.executable, "-c", burn], stdin=subprocess.PIPE) as process:
        source = Perf(process.pid, tmp_path, sample_hz=499, events=("cpu-clock", "page-faults"))
        assert "cpu-clock and page-faults" in source.start()
        process.communicate(b"g")
        source.poll(0)  # it may end with the process that it watches
        rows = list(source.stop())
    samples = sum(row.sample_count for row in rows if isinstance(row, schema.SampleStack))
    metrics = [row for row in rows if isinstance(row, schema.Metric)]
    assert samples > 20
    assert {row.name for row in metrics} == {"page-faults_count"}
    # Samples whose stack broke off are of another phase and have a row of their own.
    (counted,) = [row.value for row in metrics if row.object == "background"]
    assert counted > 2560  # 256 in each round


@pytest.mark.root
def test_one_that_is_killed_says_by_what(tmp_path: Path) -> None:
    source = Perf(os.getpid(), tmp_path)
    source.start()
    assert source._process is not None
    os.kill(source._process.pid, signal.SIGKILL)
    with pytest.raises(TlstaxError, match=r"it ended before the recording did.*by SIGKILL"):
        until_it_is_noticed(source)
    assert list(source.poll(0)) == []  # said once
    with suppress(TlstaxError):  # what it has written may be too little to be read
        list(source.stop())


@pytest.mark.parametrize("is_polled", [True, False])
def test_one_that_ends_by_itself_says_how_and_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_polled: bool
) -> None:
    """A stand-in: the real one cannot be made to fail at a chosen time."""
    program = tmp_path / "perf"
    program.write_text(
        "#!/bin/sh\n[ $1 = --version ] && echo perf version 99.1 && exit\n"
        '[ $1 = record ] || exit 9\nfor file; do :; done\necho x >"$file"\n'
        f"while [ ! -e {tmp_path}/go ]; do sleep 0.01; done\n"
        "echo first >&2\necho cannot write /srv/secret/of-mine/data: full >&2\necho >&2\nexit 3\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    source = Perf(os.getpid(), tmp_path, events=("cpu-clock",))
    source.start()
    (tmp_path / "go").touch()
    if not is_polled:
        assert source._process is not None
        source._process.wait(60)
    with pytest.raises(TlstaxError) as found:
        until_it_is_noticed(source) if is_polled else list(source.stop())
    with suppress(TlstaxError):
        list(source.stop())
    assert found.value.why == "with status 3; it said: cannot write …/data: full"


def until_it_is_noticed(source: Perf) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        source.poll(0)
        time.sleep(0.02)
