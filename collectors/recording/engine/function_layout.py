# SPDX-License-Identifier: GPL-2.0-only
"""The memory that the programs of functions.bpf.c fill: the Python side of probes/bpf/functions.h.

A test compares the structures with the compiled ones.
"""

import ctypes
from typing import Final

from tlstax.collectors.placement.model import MAX_FUNCTIONS, ProbedFunction, Site
from tlstax.collectors.recording.engine.ledger_layout import REGISTER_NUMBERS

SIZE_CLASSES: Final = 33
CALIBRATION: Final = MAX_FUNCTIONS - 1  # function number of the empty function
SOURCES: Final = ("none", "constant", "argument", "returned")  # enum size_source
LOSS_NAMES: Final = (
    "function_map_full",
    "function_stack_overflow",
    "function_healed",
    "function_unmatched_exit",
    "function_storage_failed",
    "function_recursion_missed",
)


class FunctionKey(ctypes.Structure):
    """Which calls a sum is about (struct function_key)."""

    _fields_ = (
        ("function", ctypes.c_uint32),
        ("phase", ctypes.c_uint32),
        ("size_class", ctypes.c_uint32),
        ("shard", ctypes.c_uint32),
    )


class FunctionSum(ctypes.Structure):
    """Calls and their time (struct function_sum)."""

    _fields_ = (
        ("call_count", ctypes.c_uint64),
        ("size_bytes", ctypes.c_uint64),
        ("timed_count", ctypes.c_uint64),
        ("timed_bytes", ctypes.c_uint64),
        ("time_ns", ctypes.c_uint64),
        ("nested_ns", ctypes.c_uint64),
        ("traps_ns", ctypes.c_uint64),
        ("direct_traps_ns", ctypes.c_uint64),
    )


class FunctionBucket(ctypes.Structure):
    """A bucket of a histogram of times (struct function_bucket)."""

    _fields_ = (
        ("function", ctypes.c_uint16),
        ("size_class", ctypes.c_uint16),
        ("bucket", ctypes.c_uint32),
    )


class Call(ctypes.Structure):
    """A timed call that has not returned yet (struct call)."""

    _fields_ = (
        ("sp", ctypes.c_uint64),
        ("start_ns", ctypes.c_uint64),
        ("away_ns", ctypes.c_uint64),
        ("nested_ns", ctypes.c_uint64),
        ("size_bytes", ctypes.c_uint64),
        ("traps_ns", ctypes.c_uint64),
        ("direct_traps_ns", ctypes.c_uint64),
        ("phase", ctypes.c_uint32),
        ("function", ctypes.c_uint16),
        ("jumped", ctypes.c_uint16),
    )


class ThreadCalls(ctypes.Structure):
    """The open calls of a thread (struct thread_calls)."""

    _fields_ = (
        ("away_ns", ctypes.c_uint64),
        ("left_ns", ctypes.c_uint64),
        ("came_ns", ctypes.c_uint64),
        ("sched_ns", ctypes.c_uint64),
        ("depth", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("calls", Call * 16),
    )


class FunctionCost(ctypes.Structure):
    """What the probes of one function cost (struct function_cost)."""

    _fields_ = (("pair_ns", ctypes.c_uint32), ("inside_ns", ctypes.c_uint32))


class FunctionConfig(ctypes.Structure):
    """Constants of a run (struct function_config)."""

    _fields_ = (("tgid", ctypes.c_int32), ("own_tgid", ctypes.c_int32))


def cookie(number: int, probed: ProbedFunction, site: Site) -> int:
    """The attach cookie of a probe site (COOKIE_* in functions.h)."""
    size = probed.primitive.size
    timed = not probed.why_not_timed
    # The return value of an untimed function is not read.
    source = size.source if timed or size.source != "returned" else "none"
    constant = size.value if source == "constant" else 0
    flags = SOURCES.index(source) | timed << 4 | size.wide << 5
    register = REGISTER_NUMBERS[site.register]
    return (
        number
        | flags << 8
        | constant << 16
        | (site.stack_bytes // 8 & 0xFFFF) << 32
        | register << 48
    )


def calibration_cookie(timed: bool, stack_bytes: int) -> int:
    """The same for the empty function of the calibration."""
    return CALIBRATION | timed << 12 | stack_bytes // 8 << 32


def size_bounds(size_class: int) -> tuple[int, int]:
    """[low, high] bytes of a size class, both inclusive; class 0 is no bytes at all."""
    return (0, 0) if size_class == 0 else (1 << size_class - 1, (1 << size_class) - 1)
