# SPDX-License-Identifier: GPL-2.0-only
"""Maps and programs in the kernel, by their descriptors: entries, memory, counts and run times.

Through libbpf. Every call raises OSError with the kernel's errno.
"""

import ctypes
import errno
import mmap
import os
import struct
from typing import Final

from tlstax.collectors.host.libbpf import load_library

_BATCH_COUNT: Final = 512
_MOST_COUNT: Final = 1 << 16
_STATS_RUN_TIME: Final = 0  # linux/bpf.h
# Offsets in struct bpf_prog_info.
_INFO_BYTES: Final = 232
_RUN_TIME_OFFSET: Final = 192
_RECURSION_MISSES_OFFSET: Final = 208
_VERIFIED_OFFSET: Final = 216


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result


def map_update(map_fd: int, key: bytes | None, value: bytes) -> None:
    """Store a value; for a queue `key` is None and the value is pushed."""
    _checked(load_library().bpf_map_update_elem(map_fd, key, value, 0))


def map_lookup(map_fd: int, key: bytes, value_bytes: int) -> bytes | None:
    """The value, or None when the key is absent."""
    value = ctypes.create_string_buffer(value_bytes)
    result = load_library().bpf_map_lookup_elem(map_fd, key, value)
    if result == -errno.ENOENT:
        return None
    _checked(result)
    return value.raw


def map_drain(map_fd: int, key_bytes: int, value_bytes: int) -> list[tuple[bytes, bytes]]:
    """Read and delete every entry of a hash map (5.6+). Entries added meanwhile may be missing."""
    take = load_library().bpf_map_lookup_and_delete_batch
    most_count = _BATCH_COUNT
    entries: list[tuple[bytes, bytes]] = []
    keys = ctypes.create_string_buffer(key_bytes * most_count)
    values = ctypes.create_string_buffer(value_bytes * most_count)
    cursor = ctypes.create_string_buffer(64)
    behind = None  # where the last batch ended
    while True:
        count = ctypes.c_uint32(most_count)
        result = take(map_fd, behind, cursor, keys, values, ctypes.byref(count), None)
        if result == -errno.ENOSPC and most_count < _MOST_COUNT:
            # One hash bucket holds more entries than the buffer.
            most_count *= 8
            keys = ctypes.create_string_buffer(key_bytes * most_count)
            values = ctypes.create_string_buffer(value_bytes * most_count)
            continue
        if result != -errno.ENOENT:  # ENOENT: this batch is the last
            _checked(result)
        key_data, value_data = keys.raw, values.raw
        entries.extend(
            (
                key_data[i * key_bytes : (i + 1) * key_bytes],
                value_data[i * value_bytes : (i + 1) * value_bytes],
            )
            for i in range(count.value)
        )
        if result == -errno.ENOENT:
            return entries
        behind = cursor


def map_memory(map_fd: int, length_bytes: int, writable: bool = False) -> mmap.mmap:
    """The memory of an array map made with BPF_F_MMAPABLE."""
    page = mmap.PAGESIZE
    length = (length_bytes + page - 1) // page * page
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    return mmap.mmap(map_fd, length, mmap.MAP_SHARED, protection)


def program_recursion_misses(program_fd: int) -> int:
    """Runs that the kernel skipped because a program was already active on that CPU (5.12+)."""
    return int(struct.unpack_from("=Q", _program_info(program_fd), _RECURSION_MISSES_OFFSET)[0])


def program_run_time(program_fd: int) -> tuple[int, int]:
    """Nanoseconds and runs of a program while BPF statistics were on."""
    run_ns, runs = struct.unpack_from("=QQ", _program_info(program_fd), _RUN_TIME_OFFSET)
    return int(run_ns), int(runs)


def program_verified_count(program_fd: int) -> int:
    """Instructions that the verifier looked at, each as often as it did (5.16+; before: 0)."""
    return int(struct.unpack_from("=I", _program_info(program_fd), _VERIFIED_OFFSET)[0])


def _program_info(program_fd: int) -> bytes:
    info = ctypes.create_string_buffer(_INFO_BYTES)
    length = ctypes.c_uint32(_INFO_BYTES)
    _checked(load_library().bpf_obj_get_info_by_fd(program_fd, info, ctypes.byref(length)))
    return info.raw


def enable_statistics() -> int:
    """Have the kernel count runs and run time of all BPF programs while the fd is open (5.8+)."""
    return _checked(load_library().bpf_enable_stats(_STATS_RUN_TIME))
