# SPDX-License-Identifier: GPL-2.0-only
"""What a window cutter looks at: the accounts of threads, and the kernel's counts."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from tlstax.collectors.recording.programs import ledger_layout as layout


class Counts(NamedTuple):
    """What the kernel counted of a thread since its birth, read at `time_ns` (0: not yet)."""

    time_ns: int = 0
    cpu_ns: int = 0
    wait_ns: int = 0
    switch_count: int = 0
    seen_count: int = 0


UNREAD: Final = Counts()


@dataclass
class SlotView:
    """A thread's account at one instant."""

    index: int
    tid: int
    exited: bool
    paused: bool  # since detach_dense(): its cells do not change
    role: int
    comm: bytes
    thread_start_ns: int
    first_ns: int
    last_ns: int
    state: int
    owner: int
    uncertain_ns: int
    steal_ns: int
    handed_ns: int
    healed_count: int
    cells: tuple[int, ...]  # [phase][state], flat, ns
    counts: tuple[int, ...]  # finished instances by phase
    first_counts: Counts = UNREAD  # when it got its account
    kernel_counts: Counts = UNREAD  # when they were read last, or when it ended

    def settled(self, end_ns: int) -> list[int]:
        """The cells at `end_ns`: the interval since the last charge belongs to where the thread is.

        Charged past the end already, the interval is negative. The sum is the thread's age either
        way.
        """
        cells = list(self.cells)
        if not self.exited:
            cells[self.owner * layout.STATE_CELLS + self.state] += end_ns - self.last_ns
        return cells


class CpuReading(NamedTuple):
    """One CPU since the programs were loaded."""

    target_cpu_ns: int
    """CPU time of the target on it, by the scheduler."""
    sample_count: int
    """CPU samples in threads whose states were recorded."""


class ProcessReading(NamedTuple):
    """The process at one instant. Counts include threads that have ended."""

    process_cpu_ns: int | None
    """By the CPU clock of the process; None when it is gone."""
    switch_count: int
    """Voluntary and involuntary switches of all threads."""
    thread_count: int
    """Threads that live."""
    account_count: int
    """Those of them that have an account in the ledger."""
    has_wait: bool
    """Whether the kernel counts the time that threads wait for a CPU."""
    cpus: tuple[CpuReading, ...]
