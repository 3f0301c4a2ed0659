# SPDX-License-Identifier: GPL-2.0-only
"""A load that goes on in the background while something is looked at."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tlstax.workloads.drivers.sysbench import Load, Sysbench
from tlstax.workloads.results import Arm


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
