# SPDX-License-Identifier: GPL-2.0-only
"""A process that is found by its control group, as systemd and container managers name it."""

import os
import subprocess
from pathlib import Path

import pytest

from tlstax.collectors.capture.schema import Target
from tlstax.tests.kernel.recorder_runs import OK, TARGET, MakeGroup, rows_of

ID = f"{os.getpid():064x}"
pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (f"tlstax-test-{os.getpid()}.service", ["--unit", f"tlstax-test-{os.getpid()}"]),
        (f"docker-{ID}.scope", ["--container", ID]),
    ],
    ids=["unit", "container"],  # the same in each process that collects the tests
)
def test_it_is_recorded(
    recorded_server: "subprocess.Popen[bytes]", put_in: MakeGroup, name: str, words: list[str],
    tlstax: list[str], repository: Path, tmp_path: Path,
) -> None:  # fmt: skip
    command = [*tlstax, "attach", *words, "--for", "1s", "-o", str(tmp_path / "a.tlstax")]
    command += ["--definitions", str(repository / "tests/testprogs"), "--budget", "none"]
    before = subprocess.run(command, capture_output=True, text=True, check=False)
    assert before.returncode == TARGET, before.stderr
    assert words[1] in before.stderr
    put_in(name, recorded_server.pid)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == OK, done.stderr
    assert [row.pid for row in rows_of(tmp_path / "a.tlstax", Target)] == [recorded_server.pid]
