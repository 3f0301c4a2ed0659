# SPDX-License-Identifier: GPL-2.0-only
"""Files of a process are not believed by the recorder: root reads them."""

import io
import mmap
import os
import random
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tlstax.collectors.host.executable import recorder_path
from tlstax.collectors.process.mappings import MAPS_LINE
from tlstax.collectors.recording.stream.definition import definition
from tlstax.collectors.recording.stream.frames import Reading, read_frames

PROGRAM = Path(os.environ.get("TLSTAX_RECORDER") or recorder_path())
NUMBERS = definition()
PART, ANSWERED = NUMBERS.number("PART"), NUMBERS.number("ANSWERED")
COUNT, SEED = 150, 13
HEAD_BYTES, SECTION_BYTES = 64, 64


def mutants(folder: Path) -> Iterator[Path]:
    """Copies of a small program with damage where lengths and places stand."""
    chance = random.Random(SEED)
    whole = Path("/usr/bin/env").read_bytes()
    (table,) = struct.unpack_from("<Q", whole, 40)
    for number in range(COUNT - 1):
        content = bytearray(whole)
        for _ in range(chance.choice((1, 2, 8, 40))):
            start, size = chance.choice(((16, HEAD_BYTES - 16), (table, 30 * SECTION_BYTES)))
            at = start + chance.randrange(size) // 8 * 8
            value = chance.choice((0, 1, 0xFFFF, len(whole), 1 << 31, (1 << 63) - 1, (1 << 64) - 1))
            content[at : at + 8] = struct.pack("<Q", value)
        path = folder / f"{number}"
        path.write_bytes(content[: chance.choice((len(content), len(content), 63, table + 100))])
        yield path
    content = bytearray(whole)
    for at in range(table, table + 25 * SECTION_BYTES, SECTION_BYTES):
        content[at + 24 : at + 40] = struct.pack("<QQ", 0, len(whole))  # all of it, 25 times
    (folder / "again").write_bytes(content)
    yield folder / "again"


@pytest.fixture
def places(tmp_path: Path) -> Iterator[dict[int, int]]:
    """Where this process has mapped the mutants as code, and their sizes."""
    with ExitStack() as stack:
        for path in mutants(tmp_path):
            with path.open("rb") as file:
                access = mmap.PROT_READ | mmap.PROT_EXEC
                stack.enter_context(
                    mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=access)
                )
        lines = Path("/proc/self/maps").read_text().splitlines()
        found = (MAPS_LINE.fullmatch(line) for line in lines)
        yield {
            int(match[1], 16): Path(match[7]).stat().st_size
            for match in found
            if match and Path(match[7]).parent == tmp_path
        }


def test_answers_stay_within_the_file(places: dict[int, int]) -> None:
    assert len(places) == COUNT
    requests = "".join(f"file {os.getpid()} {start:x}\n" for start in places).encode()
    done = subprocess.run([PROGRAM, "--serve"], input=requests, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    sizes, sum_bytes, reading = list(places.values()), 0, Reading()
    for frame in read_frames(io.BytesIO(done.stdout), reading):
        if frame.type == PART:
            head = NUMBERS.layout("part").from_buffer_copy(frame.content)
            part_bytes = len(frame.content) - NUMBERS.structures["stream_part"].size_bytes
            sum_bytes += part_bytes
            assert head.offset + part_bytes <= sizes[0]
            assert sum_bytes <= 2 * sizes[0], "a file may name a part many times"
        elif frame.type == ANSWERED:
            sizes.pop(0)
            sum_bytes = 0
    assert sizes == []
    assert reading.why_ended == ""
