# SPDX-License-Identifier: GPL-2.0-only
"""The memory that the ledger's BPF programs fill: the Python side of probes/bpf/ledger.h.

A test compares the enumerations with the header, and the engine compares the sizes with the
loaded maps, so that a difference is detected.
"""

import ctypes
from enum import IntEnum
from typing import Final

from tlstax.collectors.capture.vocabulary import PHASES, ROLES, STATES
from tlstax.collectors.recording.programs.counts_layout import ThreadCounts
from tlstax.collectors.recording.programs.registers import REGISTER_NUMBERS

PHASE_CELLS: Final = 16
STATE_CELLS: Final = 8
MAX_SITES: Final = 256
MAX_FRAMES: Final = 16
MAX_SYSCALLS: Final = 512
LATENCY_SUBBITS: Final = 4
LATENCY_BUCKETS: Final = 640
SHARDS_MOST: Final = 256
"""CPUs that have histograms and hit counters of their own (80 KB each); more share them."""
STACK_DEPTH: Final = 64
MORE_STACKS: Final = 1 << 30

PHASE_INDEX: Final = {name: index for index, name in enumerate(PHASES)}
STATE_INDEX: Final = {name: index for index, name in enumerate(STATES)}
IDLE: Final = PHASE_INDEX["idle"]

LOSS_NAMES: Final = (
    "thread_slots_full",
    "handshake_ring_full",
    "handshake_map_full",
    "user_stack_failed",
    "kernel_stack_failed",
    "stack_map_full",
    "sample_map_full",
    "offcpu_map_full",
    "phase_stack_overflow",
    "probe_recursion_missed",
    "storage_failed",
    "clock_retry_failed",
    "healed",
    "unmatched_exit",
    "switch_missed",
)
LOSS_CELLS: Final = 16


class Action(IntEnum):
    """What a probe site means to the programs (enum action)."""

    NONE = 0
    PHASE = 1
    PHASE_OPEN = 2
    AWAIT_COMMAND = 3
    BASE_CONNECT = 4
    BASE_IDLE = 5
    BASE_DISCONNECT = 6
    BASE_PARK = 7
    HANDSHAKE_BOUND = 8
    HANDSHAKE_CALL = 9
    HANDSHAKE_GROUP = 10
    HANDSHAKE_FREE = 11
    WAIT = 12
    CALL = 13
    BASE_POOL = 14
    PHASE_CLOSE = 15
    AWAIT_RECEIVE = 16
    PHASE_SEND = 17
    COMMAND_READS = 18


class ThreadStatus(IntEnum):
    """Life of a thread slot (enum thread_status)."""

    FREE = 0
    LIVE = 1
    EXITED = 2
    PAUSED = 3


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


SIDES: Final = ("", "server", "client")
"""Of a handshake function, by its number in the cookie; "" serves for both."""
OUTCOMES: Final = ("success", "failure", "abandoned")


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


class HandshakeRecord(ctypes.Structure):
    """One connection's handshake (struct handshake)."""

    _fields_ = (
        ("ssl", ctypes.c_uint64),
        ("start_ns", ctypes.c_uint64),
        ("end_ns", ctypes.c_uint64),
        ("state_ns", ctypes.c_uint64 * STATE_CELLS),
        ("phase_ns", ctypes.c_uint64 * 8),
        ("call_count", ctypes.c_uint32),
        ("network_wait_count", ctypes.c_uint32),
        ("tid", ctypes.c_uint32),
        ("outcome", ctypes.c_uint32),
        ("tls_version", ctypes.c_int32),
        ("cipher_id", ctypes.c_int32),
        ("resumed", ctypes.c_int32),
        ("active", ctypes.c_uint32),
        ("unfollowed", ctypes.c_uint32),
        ("is_server", ctypes.c_int32),
        ("group", ctypes.c_char * 24),
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
        ("first_counts", ThreadCounts),
        ("counts", ThreadCounts),
        ("comm", ctypes.c_char * 16),
        ("ns", (ctypes.c_uint64 * STATE_CELLS) * PHASE_CELLS),
        ("count", ctypes.c_uint64 * PHASE_CELLS),
        ("frames", Frame * MAX_FRAMES),
        ("pending", Pending),
        ("handshake", HandshakeRecord),
    )


SETTINGS: Final = (
    *("switch_has_state", "client", "covered_by_tracepoint", "slots", "shards", "flow"),
    "no_user_stacks",
)
# Fields of the TLS library's objects, read at offsets that its accessors show.
OFFSETS: Final = ("version", "rwstate", "shutdown", "state", "hit", "session", "session_cipher",
                  "cipher_id", "server")  # fmt: skip


class Config(ctypes.Structure):
    """Constants of a run (struct config)."""

    _fields_ = (
        ("tgid", ctypes.c_int32),
        *((name, ctypes.c_uint32) for name in SETTINGS),
        *((f"off_{name}", ctypes.c_int32) for name in OFFSETS),
        ("wait_kind", ctypes.c_uint8 * MAX_SYSCALLS),
    )


FORGOTTEN: Final = 2  # value of Control.paused: the rare boundaries are detached, too


class Control(ctypes.Structure):
    """What the engine changes while the programs run (struct control)."""

    _fields_ = (("offcpu_mask", ctypes.c_uint32), ("paused", ctypes.c_uint32))


class SampleKey(ctypes.Structure):
    """Key of a counted CPU sample (struct sample_key)."""

    _fields_ = (
        ("phase", ctypes.c_uint32),
        ("syscall", ctypes.c_int32),
        ("user_stack", ctypes.c_int32),
        ("kernel_stack", ctypes.c_int32),
        ("user_ip", ctypes.c_uint64),
        ("kernel_ip", ctypes.c_uint64),
    )


class OffcpuKey(ctypes.Structure):
    """Key of an accumulated wait (struct offcpu_key)."""

    _fields_ = (
        ("phase", ctypes.c_uint32),
        ("state", ctypes.c_uint32),
        ("syscall", ctypes.c_int32),
        ("user_stack", ctypes.c_int32),
        ("kernel_stack", ctypes.c_int32),
    )


class OffcpuValue(ctypes.Structure):
    """Accumulated waits (struct offcpu_value)."""

    _fields_ = (("wait_count", ctypes.c_uint64), ("time_ns", ctypes.c_uint64))


LATENCY_SHARD_BYTES: Final = PHASE_CELLS * LATENCY_BUCKETS * 8
# struct site_hits: hits, phases begun, and those of them whose end was not seen.
SITE_HITS_BYTES: Final = 3 * MAX_SITES * 8

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


def wait_kinds() -> bytes:
    """One `Wait` per x86-64 system call number."""
    kinds = bytearray(MAX_SYSCALLS)
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
            kinds[number] = kind
    return bytes(kinds)


def cookie(
    action: Action,
    phase: str | None,
    site: int,
    in_handshake: bool,
    blocking: bool = False,
    zero_is_success: bool = False,
    stack_bytes: int = 0,
    register: str = "",
    state: str = "",
    role: str = "",
    side: str = "",
    condition: int = -1,
    stray: bool = False,
    unseen_exits: bool = False,
    at_call: bool = False,
) -> int:
    """The attach cookie of a probe site: its meaning for the program (COOKIE_* in ledger.h)."""
    index = PHASE_INDEX[phase] if phase else 0
    if action is Action.WAIT:
        index = STATE_INDEX[state]
    flags = int(in_handshake) | int(blocking) << 1 | int(zero_is_success) << 2
    flags |= SIDES.index(side) << 3
    flags |= int(condition >= 0 or at_call) << 5 | int(stray) << 6 | int(unseen_exits) << 7
    meaning = int(action) | index << 8 | site << 16 | flags << 24
    place = REGISTER_NUMBERS[register]
    role_index = ROLES.index(role) if role else 0
    meaning |= (stack_bytes // 8 & 0xFFFF) << 32 | place << 48 | role_index << 52
    return meaning | max(condition, 0) << 60


def bucket_bounds(bucket: int) -> tuple[int, int]:
    """[low, high) of a latency bucket in ns; the inverse of latency_bucket() in account.bpf.h."""
    per_octave = 1 << LATENCY_SUBBITS
    if bucket < per_octave:
        return bucket, bucket + 1
    octave, fraction = divmod(bucket - per_octave, per_octave)
    return (per_octave + fraction) << octave, (per_octave + fraction + 1) << octave
