# SPDX-License-Identifier: GPL-2.0-only
"""Names that stand for no usable file: pipes, names that are too long, no name at all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tlstax import ExitCode
from tlstax.__main__ import main

LONG = "a" * 300
TIMEOUT_S = 30


@pytest.mark.parametrize(
    ("command", "status", "why"),
    [
        ("report PIPE", ExitCode.CAPTURE, "it is a pipe or a device"),
        ("diff PIPE PIPE", ExitCode.CAPTURE, "it is a pipe or a device"),
        ("top PIPE --count 1", ExitCode.CAPTURE, "it is a pipe or a device"),
        ("import PIPE --hz 99 -o NEW", ExitCode.USAGE, "it is a pipe or a device"),
    ],
)
def test_a_pipe_is_refused_and_not_waited_for(
    command: str, status: int, why: str, tmp_path: Path
) -> None:
    pipe, new = tmp_path / "pipe", tmp_path / "new"
    os.mkfifo(pipe)
    arguments = command.replace("PIPE", str(pipe)).replace("NEW", str(new)).split()
    done = subprocess.run(
        [sys.executable, "-m", "tlstax", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    (line,) = done.stderr.splitlines()
    assert (done.returncode, why in line) == (status, True), line
    assert not new.exists()


@pytest.mark.parametrize(
    "command",
    ["report LONG", "diff LONG:a LONG:b", "top LONG --count 1", "fleet add LONG --data D"],
)
def test_a_capture_whose_folder_cannot_be_entered_is_one_error(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name that is too long fails as a folder without permission does, for root too."""
    text = command.replace("LONG", str(tmp_path / LONG)).replace("D", str(tmp_path / "data"))
    assert main(text.split()) == ExitCode.CAPTURE
    (line,) = capsys.readouterr().err.splitlines()
    assert "File name too long" in line


def test_definitions_that_cannot_be_listed_are_one_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ["probes", "plan", str(os.getpid()), "--definitions", str(tmp_path / LONG)]
    assert main(arguments) == ExitCode.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert "File name too long" in line
