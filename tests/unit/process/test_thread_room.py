# SPDX-License-Identifier: GPL-2.0-only
"""Room for the threads that a server may come to have, by what /proc shows of it."""

from pathlib import Path

import pytest

from tlstax.collectors.process import thread_room

LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max processes             {processes}                96343                processes
Max open files            {files}                 1048576              files
"""


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "7").mkdir()
    (tmp_path / "sys/kernel").mkdir(parents=True)
    return tmp_path


def write(proc: Path, threads: int, uid: int = 999, processes: object = "unlimited",
          files: object = 1048576) -> None:  # fmt: skip
    (proc / "7/status").write_text(
        f"Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nThreads:\t{threads}\n"
    )
    (proc / "7/limits").write_text(LIMITS.format(processes=processes, files=files))
    (proc / "7/cgroup").write_text("0::/server.slice/db\n")


@pytest.mark.parametrize(
    ("threads", "more", "room"),
    [
        (30, {}, thread_room.ROOM_LEAST),
        (5000, {}, 20_000),
        (30_000, {}, thread_room.ROOM_MOST),
        (30, {"files": 1024}, 1054),
        (30, {"processes": 4915}, 4915),
        (30, {"processes": 4915, "uid": 0}, thread_room.ROOM_LEAST),
        (5000, {"processes": 4915}, 5256),
        (100_000, {}, thread_room.ROOM_MOST),
    ],
)
def test_room_is_several_times_the_present_threads_within_the_limits(
    proc: Path, threads: int, more: dict[str, int], room: int
) -> None:
    write(proc, threads, **more)
    assert thread_room.thread_room(7, proc=proc) == room


def test_a_limit_of_a_control_group_above_it_binds(
    proc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(proc, 30)
    (tmp_path / "groups/server.slice/db").mkdir(parents=True)
    (tmp_path / "groups/server.slice/db/pids.max").write_text("max\n")
    (tmp_path / "groups/server.slice/pids.max").write_text("2000\n")
    monkeypatch.setattr(thread_room, "CONTROL_GROUPS", tmp_path / "groups")
    assert thread_room.thread_room(7, proc=proc) == 2000


def test_a_process_that_has_ended_has_no_threads(proc: Path) -> None:
    assert thread_room.present_threads(8, proc) == 0
    assert thread_room.thread_room(8, proc=proc) == thread_room.ROOM_LEAST
