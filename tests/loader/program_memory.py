# SPDX-License-Identifier: GPL-2.0-only
"""The memory that the ledger's BPF programs fill, as the loader of tests reads and writes it.

It is the recorder's that ships (collectors/recorder, in C); a test compares these structures with
those of the compiled programs.
"""

import ctypes
import platform
from enum import IntEnum
from typing import Final

from tlstax.collectors.capture.syscalls_arm64 import ARM64_CALLS
from tlstax.collectors.recording.programs.ledger_layout import (
    LATENCY_BUCKETS,
    MAX_SITES,
    PHASE_CELLS,
    STATE_CELLS,
    HandshakeRecord,
    Network,
)

MAX_FRAMES: Final = 16
MAX_SYSCALLS: Final = 512
SHARDS_MOST: Final = 256
"""CPUs that have histograms and hit counters of their own (80 KB each); more share them."""
STACK_DEPTH: Final = 64
MORE_STACKS: Final = 1 << 30
LOSS_CELLS: Final = 16
SETTINGS: Final = (
    *("switch_has_state", "client", "covered_by_tracepoint", "slots", "shards", "flow"),
    *("no_user_stacks", "network_bits", "network6_bits"),
)
# Fields of the TLS library's objects, read at offsets that its accessors show.
OFFSETS: Final = ("version", "rwstate", "shutdown", "state", "hit", "session", "session_cipher",
                  "cipher_id", "server")  # fmt: skip
LATENCY_SHARD_BYTES: Final = PHASE_CELLS * LATENCY_BUCKETS * 8
# struct site_hits: hits, phases begun, and those of them whose end was not seen; then sends.
SITE_HITS_BYTES: Final = (3 * MAX_SITES + 1) * 8
ACCESSORS: Final = {
    "ssl_version": "off_version",
    "ssl_rwstate": "off_rwstate",
    "ssl_shutdown": "off_shutdown",
    "ssl_state": "off_state",
    "ssl_hit": "off_hit",
    "ssl_session": "off_session",
    "session_cipher": "off_session_cipher",
    "cipher_id": "off_cipher_id",
    "ssl_server": "off_server",
}
"""Fields of the programs' configuration, by what a plan calls them."""


class Wait(IntEnum):
    """What a blocking system call waits for (enum wait_kind)."""

    OTHER = 0
    NETWORK = 1
    DISK = 2
    FUTEX = 3
    BY_FILE = 4
    RECEIVE = 5
    READ = 6
    POLL = 7
    EPOLL = 8


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
        ("current", ctypes.c_uint64),
        ("current_index", ctypes.c_uint32),
        ("event_count", ctypes.c_uint32),
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
        ("ended_count", ctypes.c_uint64),
    )


class Frame(ctypes.Structure):
    """An open phase (struct frame)."""

    _fields_ = (
        ("sp", ctypes.c_uint64),
        ("start_ns", ctypes.c_uint64),
        ("returns", ctypes.c_uint64),
        ("phase", ctypes.c_uint32),
        ("flags", ctypes.c_uint16),
        ("site", ctypes.c_uint8),
        ("tail_calls", ctypes.c_uint8),
    )


class Pending(ctypes.Structure):
    """Time whose phase the next boundary decides (struct pending)."""

    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("charged", ctypes.c_uint32),
        ("depth", ctypes.c_uint32),
        ("base", ctypes.c_uint32),
        ("shard", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("start_ns", ctypes.c_uint64),
        ("before_ns", ctypes.c_uint64 * STATE_CELLS),
    )


class ThreadSlot(ctypes.Structure):
    """A thread's account (struct thread_slot)."""

    _fields_ = (
        ("tid", ctypes.c_uint32),
        ("status", ctypes.c_uint32),
        ("role", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("thread_start_ns", ctypes.c_uint64),
        ("first_ns", ctypes.c_uint64),
        ("last_ns", ctypes.c_uint64),
        ("exit_ns", ctypes.c_uint64),
        ("run_start_ns", ctypes.c_uint64),
        ("sched_cpu_ns", ctypes.c_uint64),
        ("steal_ns", ctypes.c_int64),
        ("handed_ns", ctypes.c_int64),
        ("block_wait_ns", ctypes.c_uint64),
        ("asleep_wait_ns", ctypes.c_uint64),
        ("came", ctypes.c_uint64 * 2),
        ("uncertain_ns", ctypes.c_uint64),
        ("phase_event_ns", ctypes.c_uint64),
        ("base_start_ns", ctypes.c_uint64),
        ("wait_start_ns", ctypes.c_uint64),
        ("wait_sp", ctypes.c_uint64),
        ("wait_returns", ctypes.c_uint64),
        ("call_sp", ctypes.c_uint64),
        ("state", ctypes.c_uint32),
        ("owner", ctypes.c_uint32),
        ("base", ctypes.c_uint32),
        ("depth", ctypes.c_uint32),
        ("healed_count", ctypes.c_uint32),
        ("wait_syscall", ctypes.c_int32),
        ("wait_user_stack", ctypes.c_int32),
        ("wait_kernel_stack", ctypes.c_int32),
        ("wait_weight", ctypes.c_uint32),
        ("wait_as", ctypes.c_uint32),
        ("stack_base", ctypes.c_uint64),
        ("client_socket", ctypes.c_uint64),
        ("last_socket", ctypes.c_uint64),
        ("sent_socket", ctypes.c_uint64),
        ("unsent_bytes", ctypes.c_uint64),
        ("answered_ns", ctypes.c_uint64),
        ("message", ctypes.c_uint32),
        ("message_bytes", ctypes.c_uint32),
        ("seen_count", ctypes.c_uint64),
        ("peer", Network),
        ("reserved", ctypes.c_uint32),
        ("first_counts", ThreadCounts),
        ("counts", ThreadCounts),
        ("comm", ctypes.c_char * 16),
        ("ns", (ctypes.c_uint64 * STATE_CELLS) * PHASE_CELLS),
        ("count", ctypes.c_uint64 * PHASE_CELLS),
        ("frames", Frame * MAX_FRAMES),
        ("pending", Pending),
        ("handshake", HandshakeRecord),
    )


class Config(ctypes.Structure):
    """Constants of a run (struct config)."""

    _fields_ = (
        ("tgid", ctypes.c_int32),
        *((name, ctypes.c_uint32) for name in SETTINGS),
        *((f"off_{name}", ctypes.c_int32) for name in OFFSETS),
        ("wait_kind", ctypes.c_uint8 * MAX_SYSCALLS),
    )


class Control(ctypes.Structure):
    """What the engine changes while the programs run (struct control)."""

    _fields_ = (
        *(("offcpu_mask", ctypes.c_uint32), ("paused", ctypes.c_uint32)),
        ("blind_ns", ctypes.c_uint64),
    )


# x86-64 system calls that block, by what they wait for. Those missing wait for "other".
_NETWORK_CALLS: Final = (42, 43, 44, 46, 288, 307)  # connect, accept, send and friends
_RECEIVE_CALLS: Final = (45, 47, 299)
_POLL_CALLS: Final = (7, 23, 270, 271)
_EPOLL_CALLS: Final = (232, 281, 441)
_DISK_CALLS: Final = (
    *(17, 18, 74, 75, 76, 77, 162, 187, 206, 208, 209, 277, 285, 295, 296, 306, 327, 328, 333, 426),
    *(2, 82, 85, 87, 257, 263, 264, 316, 437),  # open, rename, unlink and friends
)
_FUTEX_CALLS: Final = (202, 449, 454, 455, 456)
_READ_CALLS: Final = (0, 19)
_FILE_CALLS: Final = (1, 20)

_SAME_FROM: Final = 403
"""System calls from here on have the same number on every machine."""


def wait_kinds() -> bytes:
    """One `Wait` per system call number of this host."""
    kinds = bytearray(MAX_SYSCALLS)
    is_arm64 = platform.machine() == "aarch64"
    native = {there: here for here, there in ARM64_CALLS.items()} if is_arm64 else {}
    for numbers, kind in (
        (_NETWORK_CALLS, Wait.NETWORK),
        (_DISK_CALLS, Wait.DISK),
        (_FUTEX_CALLS, Wait.FUTEX),
        (_FILE_CALLS, Wait.BY_FILE),
        (_RECEIVE_CALLS, Wait.RECEIVE),
        (_READ_CALLS, Wait.READ),
        (_POLL_CALLS, Wait.POLL),
        (_EPOLL_CALLS, Wait.EPOLL),
    ):
        for number in numbers:
            if not is_arm64 or number in native or number >= _SAME_FROM:
                kinds[native.get(number, number)] = kind
    return bytes(kinds)
