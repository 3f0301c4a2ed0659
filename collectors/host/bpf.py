# SPDX-License-Identifier: GPL-2.0-only
"""bpf(2) and perf_event_open(2) as raw system calls, where libbpf has no function or may be absent.

A host may lack libbpf or BTF and doctor must still report what works, so its trials make the calls
directly. libbpf 1.1 cannot attach uprobe_multi links and does not open perf events. The libbpf
functions for maps and programs are used elsewhere.

Numbers are the kernel's UAPI (linux/bpf.h, linux/perf_event.h). Every call raises OSError with the
kernel's errno.
"""

import ctypes
import os
import struct
from collections.abc import Sequence
from enum import IntEnum

SYS_PERF_EVENT_OPEN, SYS_BPF = (241, 280) if os.uname().machine == "aarch64" else (298, 321)

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long


class Command(IntEnum):
    """bpf(2) commands."""

    MAP_CREATE = 0
    MAP_LOOKUP_ELEM = 1
    PROG_LOAD = 5
    PROG_GET_NEXT_ID = 11
    MAP_GET_NEXT_ID = 12
    OBJ_GET_INFO_BY_FD = 15
    RAW_TRACEPOINT_OPEN = 17
    BTF_LOAD = 18
    LINK_CREATE = 28
    LINK_GET_FD_BY_ID = 30
    LINK_GET_NEXT_ID = 31


class MapType(IntEnum):
    """Map types that are tried."""

    ARRAY = 2
    STACK_TRACE = 7
    RINGBUF = 27
    TASK_STORAGE = 29


class ProgramType(IntEnum):
    """Program types that are tried."""

    KPROBE = 2  # uprobes are of this type
    PERF_EVENT = 7
    TRACING = 26


ATTACH_TRACE_RAW_TP = 23
ATTACH_TRACE_FEXIT = 25
ATTACH_PERF_EVENT = 41
ATTACH_UPROBE_MULTI = 48
UPROBE_MULTI_RETURN = 1

PERF_TYPE_HARDWARE = 0
PERF_TYPE_SOFTWARE = 1
PERF_COUNT_HW_CPU_CYCLES = 0
PERF_COUNT_SW_CPU_CLOCK = 0
PERF_FLAG_EXCLUDE_IDLE = 1 << 7
PERF_FLAG_FREQUENCY = 1 << 10
PERF_FLAG_FD_CLOEXEC = 8
PERF_EVENT_IOC_ENABLE = 0x2400
PERF_EVENT_IOC_DISABLE = 0x2401
LOG_BYTES = 65536


def _raise_errno() -> None:
    error = ctypes.get_errno()
    raise OSError(error, os.strerror(error))


def bpf(command: Command, attributes: bytes) -> int:
    """Make the system call with `attributes` as union bpf_attr; a descriptor or 0."""
    buffer = ctypes.create_string_buffer(attributes, max(len(attributes), 128))
    result = int(_LIBC.syscall(SYS_BPF, int(command), buffer, len(buffer)))
    if result < 0:
        _raise_errno()
    return result


def next_id(command: Command, previous_id: int) -> int | None:
    """The object id after `previous_id` (…_GET_NEXT_ID), or None at the end of the list."""
    buffer = ctypes.create_string_buffer(struct.pack("<II", previous_id, 0), 12)
    if _LIBC.syscall(SYS_BPF, int(command), buffer, len(buffer)) < 0:
        if ctypes.get_errno() == 2:  # ENOENT: no further object
            return None
        _raise_errno()
    return int(struct.unpack_from("<I", buffer, 4)[0])


def create_map(
    kind: MapType, key_bytes: int, value_bytes: int, entries: int, flags: int = 0, btf_fd: int = 0
) -> int:
    """Descriptor of a new map; with `btf_fd` its types 1 (key) and 2 (value) are given."""
    head = struct.pack("<IIIII", kind, key_bytes, value_bytes, entries, flags)
    types = struct.pack("<III", btf_fd, 1, 2) if btf_fd else bytes(12)
    # union bpf_attr: inner_map_fd, numa_node, map_name[16], map_ifindex come in between.
    return bpf(Command.MAP_CREATE, head + bytes(8) + b"tlstax_doctor\0\0\0" + bytes(4) + types)


def read_counter(map_fd: int) -> int:
    """Element 0 of an array map of 8 byte values."""
    key = ctypes.c_uint32(0)
    value = ctypes.c_uint64(0)
    bpf(
        Command.MAP_LOOKUP_ELEM,
        struct.pack("<IIQQQ", map_fd, 0, ctypes.addressof(key), ctypes.addressof(value), 0),
    )
    return value.value


def load_types() -> int:
    """Descriptor of a small BTF object: type 1 is a 4 byte int, type 2 an 8 byte long."""
    strings = b"\0int\0long\0"
    kind_int = 1 << 24
    types = struct.pack("<IIII", 1, kind_int, 4, 32) + struct.pack("<IIII", 5, kind_int, 8, 64)
    header = struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(types), len(types), len(strings))
    blob = ctypes.create_string_buffer(header + types + strings, 24 + len(types) + len(strings))
    return bpf(Command.BTF_LOAD, struct.pack("<QQIII", ctypes.addressof(blob), 0, len(blob), 0, 0))


def load_program(
    kind: ProgramType, code: bytes, expected_attach_type: int = 0, attach_btf_id: int = 0
) -> int:
    """Descriptor of a loaded program; OSError's message ends with the verifier's last line."""
    text = ctypes.create_string_buffer(code, len(code))
    licence = ctypes.create_string_buffer(b"GPL")
    log = ctypes.create_string_buffer(LOG_BYTES)
    attributes = struct.pack(
        "<IIQQIIQII16sIIIIQIIQII",
        kind,
        len(code) // 8,
        ctypes.addressof(text),
        ctypes.addressof(licence),
        1,
        LOG_BYTES,
        ctypes.addressof(log),
        0,
        0,
        b"tlstax_doctor",
        0,
        expected_attach_type,
        *(0, 0, 0, 0, 0, 0, 0),  # no BTF, no function and line information
        attach_btf_id,
    )
    try:
        return bpf(Command.PROG_LOAD, attributes)
    except OSError as error:
        lines = log.value.decode(errors="replace").strip().splitlines()
        last = next((line for line in reversed(lines) if not line.startswith("processed")), "")
        raise OSError(error.errno, f"{error.strerror}{': ' + last if last else ''}") from None


def open_raw_tracepoint(program_fd: int) -> int:
    """Attach a tp_btf or fexit program; the descriptor detaches it when closed."""
    return bpf(Command.RAW_TRACEPOINT_OPEN, struct.pack("<QII", 0, program_fd, 0))


def link_perf_event(program_fd: int, event_fd: int) -> int:
    """Attach a program to a perf event (5.15+); the descriptor detaches it when closed."""
    return bpf(
        Command.LINK_CREATE, struct.pack("<IIII", program_fd, event_fd, ATTACH_PERF_EVENT, 0)
    )


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
        ATTACH_UPROBE_MULTI,
        0,
        ctypes.addressof(path_buffer),
        ctypes.addressof(offset_array),
        0,  # no reference counters (USDT semaphores)
        ctypes.addressof(cookie_array),
        count,
        UPROBE_MULTI_RETURN if is_return else 0,
        pid,
    )
    return bpf(Command.LINK_CREATE, attributes)


def open_perf_event(
    kind: int,
    config: int,
    *,
    pid: int = -1,
    cpu: int = 0,
    config1: int = 0,
    config2: int = 0,
    frequency_hz: int = 0,
) -> int:
    """Descriptor of a perf event; a sampling one when `frequency_hz` is given.

    A sampling one skips the idle loop, as far as the event can (the CPU clock does).
    """
    sampled = PERF_FLAG_FREQUENCY | PERF_FLAG_EXCLUDE_IDLE
    attributes = struct.pack(
        "<IIQQQQQIIQQ",
        *(kind, 128, config, frequency_hz, 0, 0),
        *(sampled if frequency_hz else 0, 0, 0, config1, config2),
    )
    buffer = ctypes.create_string_buffer(attributes, 128)
    result = int(_LIBC.syscall(SYS_PERF_EVENT_OPEN, buffer, pid, cpu, -1, PERF_FLAG_FD_CLOEXEC))
    if result < 0:
        _raise_errno()
    return result


def open_cpu_clock(hz: int, *, cpu: int, pid: int = -1) -> int:
    """Descriptor of an event that samples a CPU (-1: whichever `pid` runs on) by its clock."""
    return open_perf_event(
        PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK, pid=pid, cpu=cpu, frequency_hz=hz
    )


def enable_perf_event(fd: int, on: bool = True) -> None:
    """Start or stop a perf event."""
    if _LIBC.ioctl(fd, PERF_EVENT_IOC_ENABLE if on else PERF_EVENT_IOC_DISABLE, 0) < 0:
        _raise_errno()
