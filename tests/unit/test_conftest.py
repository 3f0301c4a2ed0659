# SPDX-License-Identifier: GPL-2.0-only
"""A skip that would hide a failure must not pass in CI; a measurement has three attempts.

What tests mount is not mounted on the host.
"""

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


MEASURING = """
import pytest
attempts = {}
def attempt(name):
    attempts[name] = attempts.get(name, 0) + 1
    return attempts[name]
@pytest.mark.timing
def test_third():
    assert attempt("third") == 3
@pytest.mark.timing
def test_never():
    assert not attempt("never")
@pytest.mark.timing
def test_broken():
    if attempt("broken") == 1:
        raise KeyError("no measurement")
def test_count():
    assert attempt("count") == 2
@pytest.mark.timing
def test_first():
    assert attempt("first") == 1
@pytest.mark.timing
def test_unmeasured():
    pytest.skip("no clock")
"""


MOUNTING = """
import subprocess
def test_mounts(tmp_path):
    subprocess.run(["mount", "-t", "tmpfs", "left-behind", str(tmp_path)], check=True)
    assert tmp_path.is_mount()
"""


def run(directory: Path, conftest: Path, ci: str | None, text: str = SKIPPING) -> str:
    return output(directory, conftest, ci, text).splitlines()[-1]


def output(directory: Path, conftest: Path, ci: str | None, text: str) -> str:
    hastily = conftest.read_text().replace(
        "MEASURED_AGAIN_AFTER_S = 2, 5", "MEASURED_AGAIN_AFTER_S = 2, 0"
    )
    (directory / "conftest.py").write_text(hastily)
    (directory / "test_written.py").write_text(text)
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    if ci is not None:
        environment["CI"] = ci
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(directory)]
    done = subprocess.run(
        command, env=environment, cwd=directory, capture_output=True, text=True, check=False
    )
    return done.stdout


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


def test_only_a_measurement_that_failed_is_repeated(tmp_path: Path, repository: Path) -> None:
    said = output(tmp_path, repository / "tests/conftest.py", None, MEASURING)
    assert "3 failed, 2 passed, 1 skipped, 4 rerun" in said
    again = [line for line in said.splitlines() if line.startswith("measured again: ")]
    assert len(again) == 4
    assert all("::test_third (" in line or "::test_never (" in line for line in again)
    assert again[0].endswith("(AssertionError: assert 1 == 3)")


def test_first_try_rate_is_said(tmp_path: Path, repository: Path) -> None:
    conftest = repository / "tests/conftest.py"
    lines = output(tmp_path, conftest, None, MEASURING).splitlines()
    # One at the third try, one never, one that broke; neither the count nor the skipped one.
    assert "timing: 1 of 4 tests passed at the first try" in lines
    assert "timing: " not in output(tmp_path, conftest, None, SKIPPING)


@pytest.mark.root
def test_what_a_test_mounts_is_gone_with_the_tests(tmp_path: Path, repository: Path) -> None:
    before = Path("/proc/self/mounts").read_text()
    assert "1 passed" in run(tmp_path, repository / "tests/conftest.py", None, MOUNTING)
    assert Path("/proc/self/mounts").read_text() == before
