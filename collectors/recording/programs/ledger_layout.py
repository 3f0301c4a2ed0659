# SPDX-License-Identifier: GPL-2.0-only
"""The memory that the ledger's BPF programs fill: the Python side of probes/bpf/ledger.h.

A test compares the enumerations with the header, and the engine compares the sizes with the
loaded maps, so that a difference is detected.
"""

import ctypes
from enum import IntEnum
from typing import Final

from tlstax.collectors.capture.vocabulary import PHASES, ROLES, STATES
from tlstax.collectors.recording.programs.registers import REGISTER_NUMBERS

PHASE_CELLS: Final = 16
STATE_CELLS: Final = 8
MAX_SITES: Final = 256
LATENCY_SUBBITS: Final = 4
LATENCY_BUCKETS: Final = 640

PHASE_INDEX: Final = {name: index for index, name in enumerate(PHASES)}
STATE_INDEX: Final = {name: index for index, name in enumerate(STATES)}

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
    "recorder_starved",
)


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
    CROSSING = 19
    HANDSHAKE_SOCKET = 20
    HANDSHAKE_KEM = 21


class ThreadStatus(IntEnum):
    """Life of a thread slot (enum thread_status)."""

    FREE = 0
    LIVE = 1
    EXITED = 2
    PAUSED = 3


SIDES: Final = ("", "server", "client")
"""Of a handshake function, by its number in the cookie; "" serves for both."""
OUTCOMES: Final = ("success", "failure", "abandoned")


class Network(ctypes.Structure):
    """The first bits of a client's address (struct network)."""

    _fields_ = (("family", ctypes.c_uint32), ("address", ctypes.c_uint8 * 16))


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
        ("network", Network),
        ("reserved", ctypes.c_uint32),
    )


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
    """The attach cookie of a probe site: its meaning for the program (COOKIE_* in cookie.h)."""
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
