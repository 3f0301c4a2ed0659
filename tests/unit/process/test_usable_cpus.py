# SPDX-License-Identifier: GPL-2.0-only
"""On how many CPUs a process may run."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tlstax.collectors.process.mappings import PROC
from tlstax.collectors.process.usable_cpus import cpus_in, usable_cpus_count


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0", {0}), ("0-3", {0, 1, 2, 3}), ("1,4-5", {1, 4, 5}), ("", set()), ("0-x", set())],
)
def test_lists_of_cpus(text: str, cpus: set[int]) -> None:
    assert cpus_in(text) == cpus


@pytest.mark.parametrize(
    ("allowed", "online", "count"),
    [("0-127", "0-3", 4), ("2-3,9", "0-3", 2), ("0-1", "", 2), ("", "0-3", 1), ("8", "0-3", 1)],
)
def test_cpus_that_are_offline_do_not_count(
    tmp_path: Path, allowed: str, online: str, count: int
) -> None:
    """A virtual machine lists CPUs that it may come to have."""
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/status").write_text(f"Name:\tx\nCpus_allowed_list:\t{allowed}\nMems:\t0\n")
    (tmp_path / "sys/devices/system/cpu").mkdir(parents=True)
    (tmp_path / "sys/devices/system/cpu/online").write_text(f"{online}\n")
    assert usable_cpus_count(7, tmp_path / "proc") == count


def test_a_process_that_is_bound_to_a_cpu(spawn: Callable[..., "subprocess.Popen[bytes]"]) -> None:
    usable = os.sched_getaffinity(0)
    assert usable_cpus_count(os.getpid(), PROC) == len(usable)
    code = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); print(flush=True); input()"
    bound = spawn(
        [sys.executable, "-c", code, str(min(usable))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert bound.stdout is not None
    bound.stdout.readline()
    assert usable_cpus_count(bound.pid, PROC) == 1
