# SPDX-License-Identifier: GPL-2.0-only
"""The walker's own code in user mode, beside libgcc's: other callers would accuse other functions.

Signatures, AES-GCM and digests are interrupted some hundred times. Needs neither root nor BPF, so a
mistake in a row is found on any host; `make check-stacks` does the same in the kernel.
"""

import re
import struct
import subprocess
from pathlib import Path

import pytest

from tlstax.collectors.unwinding.process_tables import Layout, lay_out, maps_of

WORK_MS = 1500
EQUAL_LEAST = 0.99


def test_callers_are_those_that_libgcc_finds(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    program = repository / "tests/testprogs/bin/walked"
    assert program.exists(), "run `make testprogs`"
    process = subprocess.Popen(
        [program, str(WORK_MS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    added = lay_out(process.pid, maps_of(process.pid), Layout())
    parts = (added.words, b"".join(added.layout.rules), added.layout.ranges)
    file = tmp_path / "tables"
    file.write_bytes(b"".join(struct.pack("=Q", len(part)) + part for part in parts))
    text, _ = process.communicate(f"{file}\n", timeout=60)
    assert process.returncode == 0
    found = re.search(r"^samples (\d+) equal (\d+) whole (\d+)$", text, re.MULTILINE)
    assert found, text
    samples, equal, whole = map(int, found.groups())
    assert samples > 50
    assert equal >= EQUAL_LEAST * samples, text
    assert whole >= EQUAL_LEAST * samples, text
