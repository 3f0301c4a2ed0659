# SPDX-License-Identifier: GPL-2.0-only
"""On a kernel that is too old, attaching is refused in words, before anything is attached."""

import subprocess
from pathlib import Path

import pytest

from tlstax import ExitCode

pytestmark = [pytest.mark.root, pytest.mark.needs("old_kernel")]


def test_attaching_is_refused_and_says_what_the_kernel_lacks(
    tlstax: list[str], repository: Path, tmp_path: Path
) -> None:
    program = repository / "tests/testprogs/bin/crowd"
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as crowd:
        command = [*tlstax, "attach", str(crowd.pid), "--for", "1s", "-o", str(tmp_path / "a")]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        crowd.terminate()
    assert result.returncode == ExitCode.HOST, result.stderr
    assert "Traceback" not in result.stderr
    (error,) = [line for line in result.stderr.splitlines() if line.startswith("tlstax: ")]
    assert "tlstax doctor" in error
    assert not (tmp_path / "a").exists()


def test_doctor_says_so_too(tlstax: list[str]) -> None:
    result = subprocess.run([*tlstax, "doctor"], capture_output=True, text=True, check=False)
    assert result.returncode == ExitCode.HOST, result.stdout
    assert "Traceback" not in result.stderr
    assert "5.15" in result.stdout
