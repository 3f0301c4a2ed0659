# SPDX-License-Identifier: GPL-2.0-only
"""A round over ssh whose recordings end early: what was recorded is in the data set."""

import errno
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import pytest

from tlstax import ExitCode
from tlstax.__main__ import main
from tlstax.analysis.fleet import location, rounds
from tlstax.analysis.fleet.store import parquet_files
from tlstax.collectors.capture.reader import CaptureReader

# As `tlstax attach --ssh`, whose ways to end docs/agentless.md has.
ATTACH: Final = """
import os, shutil, signal, sys
words = sys.argv[1:]
host, output = words[words.index("--ssh") + 1], words[words.index("--output") + 1]
until_then = f"{output} is complete until then"
if host.startswith("empty"):
    from tlstax.collectors.capture.writer import CaptureWriter
    CaptureWriter.create(output).close()
else:
    shutil.copy(os.environ["ROUND_CAPTURE"], output)
if host.startswith("ended"):
    print(f"tlstax: process 7 ended while it was recorded: it exited. {until_then}; check the "
          "server's error log, then attach to the new process.", file=sys.stderr)
    sys.exit(4)
if host.startswith(("cut", "empty")):
    print(f"tlstax: the line to {host} was cut: it said nothing. {until_then}.", file=sys.stderr)
    sys.exit(6)
if host.startswith("killed"):
    open(f"{output}-journal", "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
"""
ENDED: Final = "recorded in part: process 7 ended while it was recorded: it exited"


@pytest.fixture
def kept(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the captures of a round are while it goes on."""
    monkeypatch.setenv("ROUND_CAPTURE", str(repository / "docs/demo/demo.tlstax"))
    monkeypatch.setattr(rounds, "PROGRAM", (sys.executable, "-c", ATTACH))
    made = tmp_path / "tmp"
    made.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    return made


def record(folder: Path, names: str) -> int:
    """A round of these hosts into the data set `data`; its exit status."""
    hosts = folder / "hosts"
    hosts.write_text("".join(f"{name}\n" for name in names.split()))
    words = ["--hosts", str(hosts), "--name", "mysqld", "--data", str(folder / "data")]
    return main(["fleet", "record", *words, "--for", "1s", "--parallel", "1"])


def hosts_of(data: Path) -> set[str]:
    return {
        row["host"]
        for path in data.glob("tier=1h/table=host/*/*/*.parquet")
        for rows in parquet_files.groups(path)
        for row in rows.to_pylist()
    }


def test_what_was_recorded_until_then_is_in_the_data_set(
    kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert record(tmp_path, "ended1 cut1 killed1 db1 empty1") == ExitCode.TARGET
    told = capsys.readouterr()
    lines = dict(line.split(": ", 1) for line in told.out.splitlines())
    assert lines == {
        "ended1": ENDED,
        "cut1": "recorded in part: the line to cut1 was cut: it said nothing",
        "killed1": "recorded in part: it ended with status -9",
        "db1": "recorded",
        "empty1": "the line to empty1 was cut: it said nothing",
    }
    assert "1 of 5 hosts were recorded, and 3 in part" in told.err
    assert hosts_of(tmp_path / "data") == {"ended1", "cut1", "killed1", "db1"}
    assert not list(kept.iterdir()), "captures that are in the data set"


def test_what_the_data_set_does_not_take_stays(
    kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").write_text("a file in its place")
    assert record(tmp_path, "ended1 killed1") == ExitCode.IO
    told = capsys.readouterr()
    lines = dict(line.split(": ", 1) for line in told.out.splitlines())
    assert lines["ended1"].startswith(f"{ENDED}; cannot write to the data set")
    for line in lines.values():
        capture = Path(line.rsplit(" ", 1)[1])
        assert kept in capture.parents
        CaptureReader.open(capture).close()
    assert Path(f"{capture}-journal").exists(), "a capture is damaged without its journal"
    assert "2 recordings are not in the data set" in told.err


def test_what_is_taken_at_the_end_is_counted_as_in_part(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add, is_full = location.add, iter((True, False))

    def add_later(*given: Any) -> str:
        if next(is_full):
            raise OSError(errno.EDQUOT, "Disk quota exceeded")
        return add(*given)

    monkeypatch.setattr(location, "add", add_later)
    assert record(tmp_path, "ended1") == ExitCode.TARGET
    told = capsys.readouterr()
    assert "ended1: recorded in part; it is in the data set now" in told.out
    assert "0 of 1 hosts were recorded, and 1 in part" in told.err
    assert hosts_of(tmp_path / "data") == {"ended1"}
    assert not list(kept.iterdir())
