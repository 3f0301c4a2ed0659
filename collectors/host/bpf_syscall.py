# SPDX-License-Identifier: GPL-2.0-only
"""The few bpf() and perf_event_open() calls that libbpf 1.1 has no function for.

Only what the engine uses is wrapped. Layouts are the kernel's user-space ABI
(include/uapi/linux/bpf.h, perf_event.h); numbers are those of x86-64.
"""

import ctypes
import errno
import mmap
import os
import struct
from collections.abc import Sequence
from typing import Final

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_SYS_BPF: Final = 321
_SYS_PERF_EVENT_OPEN: Final = 298

_BPF_MAP_LOOKUP_ELEM: Final = 1
_BPF_MAP_UPDATE_ELEM: Final = 2
_BPF_OBJ_GET_INFO_BY_FD: Final = 15
_BPF_MAP_LOOKUP_BATCH: Final = 24
_BPF_MAP_LOOKUP_AND_DELETE_BATCH: Final = 25
_BPF_LINK_CREATE: Final = 28
_BPF_ENABLE_STATS: Final = 32
_BPF_STATS_RUN_TIME: Final = 0

BPF_TRACE_UPROBE_MULTI: Final = 48
_BPF_F_UPROBE_MULTI_RETURN: Final = 1

_PERF_TYPE_SOFTWARE: Final = 1
_PERF_COUNT_SW_CPU_CLOCK: Final = 0
_PERF_ATTR_BYTES: Final = 128
_PERF_FLAG_FREQ: Final = 1 << 10
_PERF_FLAG_FD_CLOEXEC: Final = 8
_PERF_EVENT_IOC_ENABLE: Final = 0x2400
_PERF_EVENT_IOC_DISABLE: Final = 0x2401


def _bpf(command: int, attributes: bytes) -> int:
    """bpf(2); raises OSError with the kernel's errno."""
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    result = _LIBC.syscall(_SYS_BPF, command, buffer, len(attributes))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(result)


def attach_uprobe_multi(
    program_fd: int,
    path: str,
    offsets: Sequence[int],
    cookies: Sequence[int],
    pid: int,
    is_return: bool,
) -> int:
    """Attach one program to many offsets of one file, for one process; returns the link's fd.

    `offsets` are file offsets in bytes. Needs kernel 6.6; OSError otherwise.
    """
    count = len(offsets)
    offset_array = (ctypes.c_uint64 * count)(*offsets)
    cookie_array = (ctypes.c_uint64 * count)(*cookies)
    path_buffer = ctypes.create_string_buffer(path.encode())
    attributes = struct.pack(
        "=IIIIQQQQIII4x",
        program_fd,
        0,
        BPF_TRACE_UPROBE_MULTI,
        0,
        ctypes.addressof(path_buffer),
        ctypes.addressof(offset_array),
        0,  # no reference counters (USDT semaphores)
        ctypes.addressof(cookie_array),
        count,
        _BPF_F_UPROBE_MULTI_RETURN if is_return else 0,
        pid,
    )
    return _bpf(_BPF_LINK_CREATE, attributes)


def open_cpu_clock(cpu: int, hz: int) -> int:
    """A cpu-clock event that samples one CPU `hz` times a second; returns its fd, disabled."""
    attributes = bytearray(_PERF_ATTR_BYTES)
    struct.pack_into(
        "=IIQQQQQ",
        attributes,
        0,
        _PERF_TYPE_SOFTWARE,
        _PERF_ATTR_BYTES,
        _PERF_COUNT_SW_CPU_CLOCK,
        hz,
        0,
        0,
        _PERF_FLAG_FREQ,
    )
    buffer = ctypes.create_string_buffer(bytes(attributes), len(attributes))
    fd = _LIBC.syscall(_SYS_PERF_EVENT_OPEN, buffer, -1, cpu, -1, _PERF_FLAG_FD_CLOEXEC)
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(fd)


def enable_perf_event(fd: int, on: bool = True) -> None:
    """Start or stop a perf event."""
    if _LIBC.ioctl(fd, _PERF_EVENT_IOC_ENABLE if on else _PERF_EVENT_IOC_DISABLE, 0) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def program_recursion_misses(program_fd: int) -> int:
    """Runs that the kernel skipped because a program was already active on that CPU (5.12+)."""
    return int(struct.unpack_from("=Q", _program_info(program_fd), _RECURSION_MISSES_OFFSET)[0])


def enable_statistics() -> int:
    """Have the kernel count runs and run time of all BPF programs while the fd is open (5.8+)."""
    return _bpf(_BPF_ENABLE_STATS, struct.pack("=I", _BPF_STATS_RUN_TIME))


def program_run_time(program_fd: int) -> tuple[int, int]:
    """Nanoseconds and runs of a program while BPF statistics were on."""
    run_ns, runs = struct.unpack_from("=QQ", _program_info(program_fd), _RUN_TIME_OFFSET)
    return int(run_ns), int(runs)


# Offsets in struct bpf_prog_info.
_RUN_TIME_OFFSET: Final = 192
_RECURSION_MISSES_OFFSET: Final = 208


def _program_info(program_fd: int) -> bytes:
    info = ctypes.create_string_buffer(232)
    attributes = struct.pack("=IIQ", program_fd, len(info), ctypes.addressof(info))
    _bpf(_BPF_OBJ_GET_INFO_BY_FD, attributes)
    return info.raw


def map_update(map_fd: int, key: bytes | None, value: bytes) -> None:
    """Store a value; for a queue `key` is None and the value is pushed."""
    key_buffer = ctypes.create_string_buffer(key, len(key)) if key else None
    value_buffer = ctypes.create_string_buffer(value, len(value))
    attributes = struct.pack(
        "=I4xQQQ",
        map_fd,
        ctypes.addressof(key_buffer) if key_buffer else 0,
        ctypes.addressof(value_buffer),
        0,
    )
    _bpf(_BPF_MAP_UPDATE_ELEM, attributes)


def map_lookup(map_fd: int, key: bytes, value_bytes: int) -> bytes | None:
    """The value, or None when the key is absent."""
    key_buffer = ctypes.create_string_buffer(key, len(key))
    value_buffer = ctypes.create_string_buffer(value_bytes)
    attributes = struct.pack(
        "=I4xQQQ", map_fd, ctypes.addressof(key_buffer), ctypes.addressof(value_buffer), 0
    )
    try:
        _bpf(_BPF_MAP_LOOKUP_ELEM, attributes)
    except FileNotFoundError:
        return None
    return value_buffer.raw


def map_drain(map_fd: int, key_bytes: int, value_bytes: int) -> list[tuple[bytes, bytes]]:
    """Take every entry out of a hash map (5.6+). Entries added meanwhile may come next time."""
    return _batches(_BPF_MAP_LOOKUP_AND_DELETE_BATCH, map_fd, key_bytes, value_bytes)


def map_entries(map_fd: int, key_bytes: int, value_bytes: int) -> list[tuple[bytes, bytes]]:
    """Every entry of a hash map, left where it is (5.6+)."""
    return _batches(_BPF_MAP_LOOKUP_BATCH, map_fd, key_bytes, value_bytes)


def _batches(
    command: int, map_fd: int, key_bytes: int, value_bytes: int
) -> list[tuple[bytes, bytes]]:
    batch_count = 512
    entries: list[tuple[bytes, bytes]] = []
    keys = ctypes.create_string_buffer(key_bytes * batch_count)
    values = ctypes.create_string_buffer(value_bytes * batch_count)
    cursor = ctypes.create_string_buffer(64)
    started = False
    while True:
        attributes = ctypes.create_string_buffer(
            struct.pack(
                "=QQQQIIQQ",
                ctypes.addressof(cursor) if started else 0,
                ctypes.addressof(cursor),
                ctypes.addressof(keys),
                ctypes.addressof(values),
                batch_count,
                map_fd,
                0,
                0,
            )
        )
        result = _LIBC.syscall(_SYS_BPF, command, attributes, len(attributes) - 1)
        number = ctypes.get_errno() if result < 0 else 0
        if number not in (0, errno.ENOENT):
            if number == errno.ENOSPC and batch_count < 1 << 16:
                # One hash bucket holds more entries than the buffer: start over, larger.
                batch_count *= 8
                keys = ctypes.create_string_buffer(key_bytes * batch_count)
                values = ctypes.create_string_buffer(value_bytes * batch_count)
                continue
            raise OSError(number, os.strerror(number))
        count = struct.unpack_from("=I", attributes.raw, 32)[0]
        key_data, value_data = keys.raw, values.raw
        entries.extend(
            (
                key_data[i * key_bytes : (i + 1) * key_bytes],
                value_data[i * value_bytes : (i + 1) * value_bytes],
            )
            for i in range(count)
        )
        if number == errno.ENOENT:
            return entries
        started = True


def map_memory(map_fd: int, length_bytes: int, writable: bool = False) -> mmap.mmap:
    """The memory of an array map made with BPF_F_MMAPABLE."""
    page = mmap.PAGESIZE
    length = (length_bytes + page - 1) // page * page
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    return mmap.mmap(map_fd, length, mmap.MAP_SHARED, protection)
