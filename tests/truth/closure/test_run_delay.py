# SPDX-License-Identifier: GPL-2.0-only
"""Parts of the programs, compiled for this machine, in states that come once in a while.

The reference of `runnable` does not count sleep, which the kernel's run delay may (Linux 6.12).
Without that, recordings of idle threads would be red now and then, for a fault of the reference.

A wait whose wake-up was not reported may be reckoned to end before it began: it has no time.
"""

import subprocess
from pathlib import Path

EXPECTED_MS = {
    "waiting": (0, 3),  # the run delay grows when the thread runs
    "waited": (3, 3),
    "stamped": (3, 3),  # it sleeps
    "stamped, woken": (3, 5),
    "stamped, ran": (305, 5),
    "moved twice": (505, 5),
    "moved twice, ran": (1009, 9),
    "stays": (0, 5),  # no CPU ran the process for less than nothing
}
"""The kernel's run delay, and time that the thread really waited for a CPU; sums of two stays."""


def test_sleep_that_the_kernel_counts_as_waiting_is_taken_off(repository: Path) -> None:
    program = repository / "tests/testprogs/bin/asleep"
    lines = subprocess.check_output([program], text=True).splitlines()
    found = {}
    for line in lines:
        what, run_delay_ms, wait_ms = line.rsplit(" ", 2)
        found[what] = (int(run_delay_ms), int(wait_ms))
    assert found == EXPECTED_MS


def test_a_wait_that_is_reckoned_to_end_before_it_began_has_no_time(repository: Path) -> None:
    """Else it had centuries, which no capture can hold: the recording would end."""
    said = subprocess.check_output([repository / "tests/testprogs/bin/waits"], text=True)
    assert said.splitlines() == ["wait 8 40000", "with-one-that-ended-early 16 40000"]
