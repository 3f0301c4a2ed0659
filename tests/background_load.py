# SPDX-License-Identifier: GPL-2.0-only
"""A load that goes on in the background while something is looked at."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from tlstax.tests.processes import process_cpu_ns
from tlstax.workloads.drivers.sysbench import Load, Sysbench
from tlstax.workloads.results import Arm

BUSY_NS: Final = 300_000_000
PATIENCE_S: Final = 60


class _OverError(Exception):
    """The load is no longer wanted."""


@contextmanager
def in_background(driver: Sysbench, load: Load, arm: Arm = "tls") -> Iterator[None]:
    """Drive the load for as long as the block lasts."""
    over = threading.Event()

    def wait(seconds: float) -> None:
        if over.wait(seconds):
            raise _OverError

    def drive() -> None:
        with suppress(_OverError):
            driver.run(load, arm, wait)

    thread = threading.Thread(target=drive)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def await_busy(pid: int) -> None:
    """Until a process has used 0.3 s of CPU time from now on: its load has begun.

    AssertionError if that takes a minute.
    """
    before_ns, end_s = process_cpu_ns(pid), time.monotonic() + PATIENCE_S
    while process_cpu_ns(pid) < before_ns + BUSY_NS:
        assert time.monotonic() < end_s, "its load does not begin"
        time.sleep(0.05)
