# SPDX-License-Identifier: GPL-2.0-only
"""A process that is found by its control group, as systemd and container managers name it."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tlstax.collectors.capture.schema import Target
from tlstax.collectors.preflight.cgroups import group_of
from tlstax.tests.kernel.recorder_runs import OK, TARGET, rows_of

MakeGroup = Callable[[str, int], None]
ID = f"{os.getpid():064x}"
pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]


@pytest.fixture
def put_in() -> Iterator[MakeGroup]:
    """Put a process in a control group of that name; it goes back at the end."""
    own = group_of("self", "freezer")
    if own is None or not os.access(own.place, os.W_OK):
        pytest.skip("no cgroup hierarchy in which a group can be made")
    made: list[tuple[Path, int]] = []

    def put(name: str, pid: int) -> None:
        (own.place / name).mkdir()
        made.append((own.place / name, pid))
        (own.place / name / "cgroup.procs").write_text(str(pid))

    yield put
    for folder, pid in made:
        (own.place / "cgroup.procs").write_text(str(pid))
        folder.rmdir()


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
