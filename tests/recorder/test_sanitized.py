# SPDX-License-Identifier: GPL-2.0-only
"""The recorder's plan reader and stream writer under the address and undefined sanitizers.

`make test-recorder-sanitizers` builds the programs and sets SANITIZED to their folder.
"""

import io
import os
import subprocess
from pathlib import Path

import pytest

from tlstax.collectors.recording.stream.definition import definition
from tlstax.collectors.recording.stream.frames import Reading, counted, read_frames, records

FOLDER = os.environ.get("SANITIZED", "")
pytestmark = pytest.mark.skipif(not FOLDER, reason="run `make test-recorder-sanitizers`")

MUTANTS, RECORDS = "100000", "100000"


@pytest.mark.parametrize("seed", range(1, 5))
def test_mutants_of_a_plan(seed: int) -> None:
    plan = Path(__file__).parent / "seed.plan"
    done = subprocess.run(
        [f"{FOLDER}/plan_fuzz", plan, MUTANTS, str(seed)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]


@pytest.mark.parametrize("seed", range(1, 4))
def test_every_committed_record_arrives_in_order(seed: int) -> None:
    done = subprocess.run(
        [f"{FOLDER}/stream_load", RECORDS, str(seed)], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    known, reading = definition(), Reading()
    numbers: list[int] = []
    for frame in read_frames(io.BytesIO(done.stdout), reading):
        if frame.type == known.number("HITS"):
            numbers += [hits.site for hits in records("hits", frame.content)]
        else:
            for stack, raw in counted("stack", frame.content, "depth", 8):
                assert raw == b"\xa5" * len(raw)
                numbers.append(stack.id)
    assert reading.why_ended == ""
    assert numbers == list(range(len(numbers)))
    assert len(numbers) >= int(RECORDS)
