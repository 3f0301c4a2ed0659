# SPDX-License-Identifier: GPL-2.0-only
"""What one probe hit costs on this host, measured on a function of our own before attaching.

The kernel's trap is the price; the programs behind it are timed by the kernel itself while they
run (see Engine.program_costs). A calibration is the difference between the time of a call with
and without a probe that counts, the smallest of several repetitions each, because interruptions
only ever add.
"""

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from tlstax.collectors import doctor_syscalls as sys_calls
from tlstax.collectors.bpf_syscall import attach_uprobe_multi
from tlstax.collectors.doctor_syscalls import MapType, ProgramType
from tlstax.collectors.doctor_trials import probed_function

_CALLS: Final = 200
_REPEATS: Final = 5


@dataclass(frozen=True)
class Costs:
    """Nanoseconds per hit by kind of probe; None where it could not be measured."""

    entry_ns: float | None = None  # uprobe on an emulated instruction
    return_ns: float | None = None  # uretprobe: what the return adds to the entry's trap
    stepped_ns: float | None = None  # uprobe on a single-stepped instruction


def calibrate() -> Costs:
    """Measure on this host, in about 10 ms; kinds that the kernel refuses stay None."""
    try:
        with ExitStack() as stack:
            path, call = stack.enter_context(probed_function())
            counter = sys_calls.create_map(MapType.ARRAY, 4, 8, 1)
            stack.callback(os.close, counter)
            program = sys_calls.load_program(
                ProgramType.KPROBE, sys_calls.count_program(counter), sys_calls.ATTACH_UPROBE_MULTI
            )
            stack.callback(os.close, program)
            bare = _call_ns(call)
            entry = _probed_ns(call, program, path, 0, is_return=False)
            both = _probed_ns(call, program, path, 0, is_return=True)
            stepped = _probed_ns(call, program, path, 1, is_return=False)  # the `ret`
            return Costs(entry - bare, max(0.0, both - entry), stepped - bare)
    except OSError:
        return Costs()


def _probed_ns(
    call: Callable[[], None], program: int, path: str, offset_bytes: int, *, is_return: bool
) -> float:
    link = attach_uprobe_multi(program, path, [offset_bytes], [0], os.getpid(), is_return)
    try:
        return _call_ns(call)
    finally:
        os.close(link)


def _call_ns(call: Callable[[], None]) -> float:
    best = float("inf")
    for _ in range(_REPEATS):
        start = time.perf_counter_ns()
        for _ in range(_CALLS):
            call()
        best = min(best, (time.perf_counter_ns() - start) / _CALLS)
    return best
