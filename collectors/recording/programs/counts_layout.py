# SPDX-License-Identifier: GPL-2.0-only
"""What kernel and programs count of threads, process and CPUs: structures of the BPF programs.

A test compares them with the compiled ones.
"""

import ctypes


class ThreadCounts(ctypes.Structure):
    """What the kernel counted of a thread (struct thread_counts)."""

    _fields_ = (
        ("time_ns", ctypes.c_uint64),
        ("cpu_ns", ctypes.c_uint64),
        ("wait_ns", ctypes.c_uint64),
        ("switch_count", ctypes.c_uint64),
        ("seen_count", ctypes.c_uint64),
    )


class ProcessCounts(ctypes.Structure):
    """What the kernel counted of the process (struct process_counts)."""

    _fields_ = (
        ("thread_count", ctypes.c_uint64),
        ("account_count", ctypes.c_uint64),
        ("switch_count", ctypes.c_uint64),
        ("ended_switch_count", ctypes.c_uint64),
        ("ended_before_count", ctypes.c_uint64),
        ("uncounted_ns", ctypes.c_uint64),
        ("has_wait", ctypes.c_uint64),
    )


class CpuCounts(ctypes.Structure):
    """A CPU, as far as the target ran on it (struct cpu_counts)."""

    _fields_ = (
        ("clock_offset_ns", ctypes.c_uint64),
        ("queue_offset_ns", ctypes.c_uint64),
        ("target_cpu_ns", ctypes.c_uint64),
        ("running_ns", ctypes.c_uint64),
        ("sample_count", ctypes.c_uint64),
        ("arrived_ns", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64 * 2),
    )


class Lifecycle(ctypes.Structure):
    """What the programs count of the target's threads and processes (struct lifecycle)."""

    _fields_ = (
        ("executed_ns", ctypes.c_uint64),
        ("forked_count", ctypes.c_uint64),
        ("fresh_count", ctypes.c_uint64),
        ("reused_count", ctypes.c_uint64),
        ("untracked_count", ctypes.c_uint64),
        ("refused_count", ctypes.c_uint64),
        ("unseen_second", ctypes.c_uint64),
        ("unseen_count", ctypes.c_uint64),
    )
