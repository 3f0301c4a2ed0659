# SPDX-License-Identifier: GPL-2.0-only
"""What the tests of the static recorder share."""

import io
import json
import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.host.executable import recorder_path
from tlstax.collectors.placement.planning import plan_in_child
from tlstax.collectors.preflight.safety import Safety
from tlstax.collectors.recording.stream.definition import definition
from tlstax.collectors.recording.stream.frames import Reading, read_frames, record
from tlstax.collectors.recording.stream.plan_file import plan_file_text

OK, USAGE, TARGET, IO = 0, 2, 4, 6
HANDSHAKES = 200
SIZE_MOST, GONE_SECONDS = 2 << 20, 3.0
BLOCK_BYTES = 512  # of st_blocks
Started = Callable[..., "subprocess.Popen[bytes]"]
Breakpoints = Callable[[int], int]
Leftover = Callable[[], set[tuple[str, int]]]
Process = subprocess.Popen[Any]
MakeGroup = Callable[[str, int], None]
Record = Callable[..., "subprocess.Popen[bytes]"]
PROGRAM = Path(os.environ.get("TLSTAX_RECORDER") or recorder_path())
SANITIZED = "TLSTAX_RECORDER" in os.environ


def plan_text(pid: int, repository: Path) -> str:
    target, plan = plan_in_child(pid, extra=repository / "tests/testprogs")
    return plan_file_text(target, plan, Safety())


def await_attached(recorder: "subprocess.Popen[bytes]") -> None:
    """Until it says so."""
    assert recorder.stderr is not None
    line = recorder.stderr.readline()
    assert b"attached to" in line, line + recorder.stderr.read()


def serve(server: "subprocess.Popen[bytes]") -> None:
    """Let the server serve all of it; it then waits to be ended."""
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(b"g")
    while b'"done"' not in (line := server.stdout.readline()):
        assert line, "the server ended"


def frames_of(stream: bytes) -> tuple[Counter[int], Reading]:
    """How many frames of each type there are."""
    reading = Reading()
    return Counter(frame.type for frame in read_frames(io.BytesIO(stream), reading)), reading


def frames_named(name: str, stream: bytes) -> list[Any]:
    """The structures of all frames of a type."""
    number = definition().number(name.upper())
    frames = read_frames(io.BytesIO(stream), Reading())
    return [record(name, frame.content) for frame in frames if frame.type == number]


def last_of(stream: bytes, kind: str) -> Any:
    """The structure of the last frame of a type."""
    return frames_named(kind, stream)[-1]


def await_no_probes(breakpoints: Breakpoints, pid: int, seconds: float) -> float:
    """How long it takes until the process has none of the planned breakpoints."""
    before_s = time.monotonic()
    while breakpoints(pid) and time.monotonic() < before_s + 4 * seconds:
        time.sleep(0.05)
    return time.monotonic() - before_s


def queue_bytes(recorder_pid: int) -> int:
    """How much of a recorder's queue was ever used: its pages come as they are written to.

    While nobody reads the stream, this grows until the queue is full.
    """
    for path in Path(f"/proc/{recorder_pid}/map_files").iterdir():
        if "tlstax-queue" in os.readlink(path):
            return path.stat().st_blocks * BLOCK_BYTES
    raise AssertionError("the recorder has no queue")


def rows_of(capture: Path, table: type[Any]) -> list[Any]:
    with CaptureReader.open(capture) as reader:
        return list(reader.rows(table))


def maps_of(pid: int, name: str) -> set[int]:
    """Ids of the maps of that name that a process holds open."""
    texts = [path.read_text() for path in Path(f"/proc/{pid}/fdinfo").iterdir()]
    held = {
        int(found[1]) for text in texts if (found := re.search(r"^map_id:\s+(\d+)", text, re.M))
    }
    listed = json.loads(subprocess.check_output(["bpftool", "-j", "map", "show"]))
    return {entry["id"] for entry in listed if entry.get("name") == name} & held


def dumped(number: int) -> bytes:
    """The contents of a map, as text."""
    return subprocess.check_output(["bpftool", "-j", "map", "dump", "id", str(number)])
