# SPDX-License-Identifier: GPL-2.0-only
"""Names that stand for no usable file: pipes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tlstax import ExitCode

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
