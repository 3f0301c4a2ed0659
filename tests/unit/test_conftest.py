# SPDX-License-Identifier: GPL-2.0-only
"""A skip that would hide a failure must not pass in CI."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SKIPPING = """
import pytest
def test_hides():
    pytest.skip("no reason")
def test_lacks():
    pytest.skip("this kernel lacks a hardware PMU")
"""


def run(directory: Path, conftest: Path, ci: str | None) -> str:
    (directory / "conftest.py").write_text(conftest.read_text())
    (directory / "test_skipping.py").write_text(SKIPPING)
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    if ci is not None:
        environment["CI"] = ci
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(directory)]
    done = subprocess.run(
        command, env=environment, cwd=directory, capture_output=True, text=True, check=False
    )
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("ci", "closing"), [(None, "2 skipped"), ("true", "1 failed, 1 skipped"), ("", "2 skipped")]
)
def test_skip_in_ci(tmp_path: Path, repository: Path, ci: str | None, closing: str) -> None:
    assert closing in run(tmp_path, repository / "tests/conftest.py", ci)


def test_skipped_file_in_ci(tmp_path: Path, repository: Path) -> None:
    (tmp_path / "test_file.py").write_text(
        "import pytest\npytest.skip('all of it', allow_module_level=True)\n"
    )
    assert "1 error" in run(tmp_path, repository / "tests/conftest.py", "true")
