# SPDX-License-Identifier: GPL-2.0-only
"""Damaged, cut and foreign files: every command that reads a capture says so in one line."""

import contextlib
import io
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tlstax import ExitCode
from tlstax.__main__ import main

ROOT = Path(__file__).resolve().parents[3]
QUIET = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("hostile") / "capture.tlstax"
    script = ROOT / "tests/golden/capture/synthetic.py"
    subprocess.run([sys.executable, str(script), str(path), "--attach"], check=True)
    return path.read_bytes()


def said(path: Path, data: bytes) -> tuple[int, str]:
    """Exit status and complaint of a report and an export of such a file."""
    path.write_bytes(data)
    status, complaint = 0, io.StringIO()
    for command in (
        ["report", str(path), "--json", str(path.with_suffix(".json"))],
        ["export", str(path), "--format", "pprof", "-o", str(path.with_suffix(".pb"))],
    ):
        with contextlib.redirect_stderr(complaint), contextlib.redirect_stdout(io.StringIO()):
            status = main(command) or status
    return status, complaint.getvalue()


def check(path: Path, data: bytes) -> None:
    """No traceback: the file is read, or refused in one line for each command."""
    status, text = said(path, data)
    assert status in (0, ExitCode.CAPTURE), text
    assert "Traceback" not in text
    assert len(text.splitlines()) == (0 if status == 0 else 2), text


@QUIET
@given(data=st.data())
def test_bytes_that_changed_end_in_one_sentence(
    data: st.DataObject, whole: bytes, tmp_path: Path
) -> None:
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 8))):
        # The first pages hold the schema and the roots of the tables: most damage is there.
        end = data.draw(st.sampled_from([100, 4096, 65536, len(whole)]))
        damaged[data.draw(st.integers(0, end - 1))] = data.draw(st.integers(0, 255))
    check(tmp_path / "x.tlstax", bytes(damaged))


@QUIET
@given(length=st.integers(0, 1_000_000))
def test_a_capture_that_was_cut_ends_in_one_sentence(
    length: int, whole: bytes, tmp_path: Path
) -> None:
    check(tmp_path / "x.tlstax", whole[: length % len(whole)])


@pytest.mark.parametrize(
    "content", [b"", b"SQLite format 3\0", b"PERFILE2" + b"\0" * 500, b"\x7fELF", b"a;b 3\n", b"{}"]
)
def test_foreign_files_are_refused(content: bytes, tmp_path: Path) -> None:
    status, text = said(tmp_path / "x", content)
    assert status == ExitCode.CAPTURE
    assert text.count("tlstax: ") == 2
