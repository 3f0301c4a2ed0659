# SPDX-License-Identifier: GPL-2.0-only
"""Damaged, cut and foreign files: every command that reads a capture says so in one line."""

import contextlib
import io
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tlstax import ExitCode, TlstaxError
from tlstax.__main__ import main
from tlstax.collectors.capture import frame_ids
from tlstax.collectors.capture.frame_ids import FRAMES_MAX
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Loss, Series, Stack
from tlstax.collectors.capture.writer import CaptureWriter

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


@pytest.mark.parametrize("is_kernel", [False, True])
def test_a_deep_stack_is_cut_and_counted(
    is_kernel: bool, whole: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "deep.tlstax"
    path.write_bytes(whole)
    with contextlib.closing(sqlite3.connect(path)) as capture, capture:
        (frame,) = capture.execute("SELECT min(frame_id) FROM frame WHERE object <> ''").fetchone()
        capture.execute("INSERT INTO stack VALUES (77777, ?)", (f"{frame} " * 200_000,))
        column = "kernel_stack_id" if is_kernel else "user_stack_id"
        capture.execute(f"UPDATE sample_stack SET {column} = 77777 WHERE phase = 'command'")
        capture.execute("UPDATE offcpu_stack SET user_stack_id = 77777")
    start_s = time.process_time()
    assert main(["report", str(path)]) == 0
    assert main(["export", str(path), "--format", "speedscope", "-o", str(tmp_path / "x")]) == 0
    assert main(["report", str(path), "--html", str(tmp_path / "x"), "--json", "/dev/null"]) == 0
    assert main(["flamegraph", str(path), "--kind", "mixed", "-o", "/dev/null"]) == 0
    assert time.process_time() - start_s < 10
    said = " ".join(capsys.readouterr().out.split())
    assert f"had a stack of more than {FRAMES_MAX} frames" in said


def test_deep_stacks_of_other_tools_are_cut_and_counted(tmp_path: Path) -> None:
    source, capture = tmp_path / "x.folded", tmp_path / "x.tlstax"
    source.write_text(f"{'do_command;' * 200_000}leaf 3\nmain;leaf 4\n")
    start_s = time.process_time()
    assert main(["import", str(source), "--hz", "99", "-o", str(capture)]) == 0
    assert time.process_time() - start_s < 10
    with CaptureReader.open(capture) as reader:
        assert [(row.kind, row.lost_count) for row in reader.rows(Loss)] == [("stack_cut", 3)]
        assert max(len(frame_ids.parse(row.frame_ids)) for row in reader.rows(Stack)) == FRAMES_MAX


@pytest.mark.parametrize("tid", ["1" * 30, "4294967296" * 2])
def test_thread_ids_beyond_all_numbers_are_refused(
    tid: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "x.txt"
    head = "{} 1.000000001: 4711 cycles:\n\t10 main (/bin/x)\n\n"
    source.write_text(head.format(7) + head.format(tid))
    assert main(["import", str(source), "--hz", "99", "-o", str(tmp_path / "x")]) == ExitCode.FAILED
    (line,) = capsys.readouterr().err.splitlines()
    assert "unknown form of line" in line


@pytest.mark.parametrize(
    ("kind", "count", "why"),
    [
        ("healed", 1 << 63, "a number above 2"),
        ("\udc80", 1, "a text not UTF-8"),
        ("healed", None, "values that do not fit"),
    ],
)
def test_a_value_that_no_capture_holds_is_one_error(
    tmp_path: Path, kind: str, count: int, why: str
) -> None:
    with (
        pytest.raises(TlstaxError, match=f"{why}.*which the table loss cannot hold") as raised,
        CaptureWriter.create(tmp_path / "x") as writer,
    ):
        writer.add(Loss(1, kind, count))
    assert raised.value.exit_code == ExitCode.CAPTURE


@pytest.mark.parametrize("column", ["unit", "how"])
def test_a_chart_that_no_source_declares_is_refused(
    column: str, whole: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.tlstax"
    path.write_bytes(whole)
    row = Series("k", "procfs", "cpu", "CPUs", "cpus", "", "user", "rate", "user", 1.0)
    with contextlib.closing(sqlite3.connect(path)) as capture:
        marks = ", ".join("?" * len(row))
        changed: dict[str, Any] = {column: "\x9b31m"}
        capture.execute("DELETE FROM series")
        capture.execute(f"INSERT INTO series VALUES ({marks})", row._replace(**changed))
        capture.commit()
    assert main(["report", str(path), "--html", str(tmp_path / "x.html")]) == ExitCode.CAPTURE
    (line,) = capsys.readouterr().err.splitlines()
    assert "of a series" in line


@pytest.mark.parametrize(
    "content", [b"", b"SQLite format 3\0", b"PERFILE2" + b"\0" * 500, b"\x7fELF", b"a;b 3\n", b"{}"]
)
def test_foreign_files_are_refused(content: bytes, tmp_path: Path) -> None:
    status, text = said(tmp_path / "x", content)
    assert status == ExitCode.CAPTURE
    assert text.count("tlstax: ") == 2
