# SPDX-License-Identifier: GPL-2.0-only
"""A control group that freezes processes, in the version that this host has."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tlstax.collectors.preflight.cgroups import group_of


@contextmanager
def frozen_processes(*pids: int) -> Iterator[None]:
    """They are frozen for as long as the block lasts."""
    own = group_of("self", "freezer")
    if own is None or not os.access(own.place, os.W_OK):
        pytest.skip("no cgroup hierarchy in which a group can be frozen")
    group = own.place / f"tlstax-test-{os.getpid()}"
    group.mkdir()
    switch, on, off = (
        ("cgroup.freeze", "1", "0") if own.is_v2 else ("freezer.state", "FROZEN", "THAWED")
    )
    try:
        for pid in pids:
            (group / "cgroup.procs").write_text(str(pid))
        (group / switch).write_text(on)
        yield
    finally:
        (group / switch).write_text(off)
        for pid in pids:
            with suppress(OSError):  # it has ended since
                (own.place / "cgroup.procs").write_text(str(pid))
        while group.exists():
            with suppress(OSError):  # the group is empty a little after its process has ended
                group.rmdir()
            time.sleep(0.01)
