# SPDX-License-Identifier: GPL-2.0-only
"""What is read of a process, also where only some of its files are there (of another host)."""

from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.preflight.target_facts import read_target

PID, TID, TRACER = 17, 18, 99
STATUS = "Name:\tmysqld\nState:\tS (sleeping)\nTgid:\t{}\nTracerPid:\t{}\nSeccomp:\t0\n"


def process(proc: Path, group: int = PID, tracer: int = 0) -> Path:
    place = proc / str(PID)
    place.mkdir()
    (place / "status").write_text(STATUS.format(group, tracer))
    (place / "maps").write_text("")
    (place / "exe").symlink_to("/usr/sbin/mysqld")
    return place


@pytest.mark.parametrize("tracer", [0, TRACER])
def test_a_tracer_is_seen_where_threads_are_not_shown(tmp_path: Path, tracer: int) -> None:
    process(tmp_path, tracer=tracer)
    assert read_target(PID, [], tmp_path).tracer == tracer


def test_a_tracer_of_one_thread_is_seen(tmp_path: Path) -> None:
    place = process(tmp_path)
    for tid, tracer in ((PID, 0), (TID, TRACER)):
        (place / "task" / str(tid)).mkdir(parents=True)
        (place / "task" / str(tid) / "status").write_text(STATUS.format(PID, tracer))
    assert read_target(PID, [], tmp_path).tracer == TRACER


@pytest.mark.parametrize("tracer", ["²", "", "x", "9" * 5000])
def test_a_status_of_another_host_that_linux_does_not_write(tmp_path: Path, tracer: str) -> None:
    (process(tmp_path) / "status").write_text(STATUS.format(PID, tracer) + "State:\t\n")
    assert read_target(PID, [], tmp_path).tracer == 0


def test_a_thread_is_no_process(tmp_path: Path) -> None:
    process(tmp_path, group=PID - 1)
    with pytest.raises(TlstaxError, match="thread of another process") as refused:
        read_target(PID, [], tmp_path)
    assert refused.value.exit_code == ExitCode.TARGET
