# SPDX-License-Identifier: GPL-2.0-only
"""Options of `tlstax attach` that exclude each other are one error, before anything else."""

import os

import pytest

from tlstax import ExitCode
from tlstax.__main__ import main


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--client-networks", "24", "--level", "sample"), "that level records none"),
        (("--calibrate", "--level", "record"), "--calibrate was given without --level flow"),
        (("--functions", "ssl3_read_n", "--budget", "5%"), "--functions was given with --budget"),
    ],
)
def test_they_are_refused(
    words: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["attach", str(os.getpid()), "-o", "x", *words]) == ExitCode.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert why in line
