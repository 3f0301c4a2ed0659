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
from tlstax.collectors.recording.stream.tables_file import process_tables, tables_bytes

FOLDER = os.environ.get("SANITIZED", "")
pytestmark = pytest.mark.skipif(not FOLDER, reason="run `make test-recorder-sanitizers`")

MUTANTS, TABLE_MUTANTS, RECORDS = "100000", "10000", "100000"


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


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unwind tables of a small process."""
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            while not (made := process_tables(process.pid)) or len(made.layout.files) < 3:
                assert process.poll() is None
        finally:
            process.kill()
    path = tmp_path_factory.mktemp("tables") / "small.unwind"
    path.write_bytes(tables_bytes(made.layout, made.words))
    return path


@pytest.mark.parametrize("seed", range(1, 5))
def test_mutants_of_unwind_tables(tables: Path, seed: int) -> None:
    done = subprocess.run(
        [f"{FOLDER}/tables_fuzz", tables, TABLE_MUTANTS, str(seed)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert int(done.stdout.split()[2]) > 0, "some are sound: their rows are looked for"


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
