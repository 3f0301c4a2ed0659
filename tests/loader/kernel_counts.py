# SPDX-License-Identifier: GPL-2.0-only
"""What the kernel itself counts of the target: read beside the ledger, to check its sums.

One run of a task iterator (probes/bpf/closure.bpf.h) stores the counts of each thread in its
account and sums those of the process; the CPU time of the process is that of its CPU clock.
"""

import ctypes
import mmap
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tlstax.collectors.recording.programs.views import CpuReading, ProcessReading
from tlstax.tests.loader import loaded
from tlstax.tests.loader.libbpf import BpfObject
from tlstax.tests.loader.program_memory import CpuCounts, ProcessCounts

_PROGRAM: Final = "each_counts"
_CPU_BYTES: Final = ctypes.sizeof(CpuCounts)
_ATTEMPTS: Final = 3
_SCHEDULER_CLOCK: Final = 2  # CPUCLOCK_SCHED, linux/posix-timers.h


def prepare(bpf: BpfObject) -> None:
    """Set the number of CPUs, before load()."""
    bpf.resize("cpus", _possible_cpus())


class KernelCounts:
    """The references of one loaded object."""

    def __init__(self, bpf: BpfObject, pid: int, stack: ExitStack) -> None:
        """`stack` closes what is opened. Raises TlstaxError (HOST)."""
        self._bpf = bpf
        self._pid = pid
        self._cpus_count = _possible_cpus()
        bpf.require_value_bytes(
            process_counts=ctypes.sizeof(ProcessCounts), cpus=ctypes.sizeof(CpuCounts)
        )
        self._sums = self._mapped(stack, "process_counts", ctypes.sizeof(ProcessCounts))
        self._cpus = self._mapped(stack, "cpus", self._cpus_count * _CPU_BYTES)
        self._link = bpf.attach_iterator(_PROGRAM, pid)
        stack.callback(self._link.close)

    def _mapped(self, stack: ExitStack, name: str, length_bytes: int) -> mmap.mmap:
        memory = loaded.map_memory(self._bpf.map_fd(name), length_bytes, writable=True)
        stack.callback(memory.close)
        return memory

    def read(self) -> ProcessReading:
        """Read the counts of the process now, and store those of each thread in its account."""
        for _ in range(_ATTEMPTS):
            clock_ns = self._iterate()
            sums = ProcessCounts.from_buffer_copy(self._sums)
            if sums.ended_switch_count == sums.ended_before_count:
                break  # no thread ended meanwhile: its switches would be in both sums, or in none
        return ProcessReading(
            None if clock_ns is None else clock_ns + sums.uncounted_ns,
            sums.switch_count + sums.ended_switch_count,
            sums.thread_count,
            sums.account_count,
            bool(sums.has_wait),
            tuple(
                CpuReading(cpu.target_cpu_ns + cpu.running_ns, cpu.sample_count)
                for cpu in (CpuCounts * self._cpus_count).from_buffer_copy(self._cpus)
            ),
        )

    def _iterate(self) -> int | None:
        """Run the iterator; the CPU clock of the process just before."""
        self._sums[: ctypes.sizeof(ProcessCounts)] = bytes(ctypes.sizeof(ProcessCounts))
        offset = CpuCounts.running_ns.offset
        for start in range(offset, self._cpus_count * _CPU_BYTES, _CPU_BYTES):
            self._cpus[start : start + 8] = bytes(8)
        clock_ns = _process_clock_ns(self._pid)
        self._bpf.iterate(self._link, _PROGRAM)
        return clock_ns


def _process_clock_ns(pid: int) -> int | None:
    """CPU time of a process with its ended threads.

    The scheduler adds the time of a running thread at its next tick or switch.
    """
    try:
        return time.clock_gettime_ns(~pid << 3 | _SCHEDULER_CLOCK)
    except OSError:
        return None


def _possible_cpus() -> int:
    """One more than the highest number that a CPU of this host can have."""
    text = Path("/sys/devices/system/cpu/possible").read_text(encoding="ascii").strip()
    return int(text.replace(",", "-").rsplit("-", 1)[-1]) + 1
