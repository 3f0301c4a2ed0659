# SPDX-License-Identifier: GPL-2.0-only
"""Test code for trials and calibrations: machine code to probe, and small BPF programs."""

import ctypes
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from tlstax.collectors.host import bpf

PAGE_BYTES = 4096
IS_ARM64: Final = os.uname().machine == "aarch64"
RETURN: Final = b"\xc0\x03\x5f\xd6" if IS_ARM64 else b"\xc3"
# An instruction that every kernel emulates (one trap): b to the next one; nop.
EMULATED: Final = b"\x01\x00\x00\x14" if IS_ARM64 else b"\x90"
# One that every kernel single-steps: mov x0, x1; mov %rdi,%rax.
STEPPED: Final = b"\xe0\x03\x01\xaa" if IS_ARM64 else b"\x48\x89\xf8"
PROBED_CODE: Final = EMULATED + RETURN


@contextmanager
def code_page(code: bytes) -> Iterator[tuple[str, int]]:
    """Machine code in an anonymous file: its path, and the address where it is mapped.

    The file is a memfd, so that no library is probed.
    """
    file_fd = os.memfd_create("tlstax-doctor", os.MFD_CLOEXEC)
    try:
        os.write(file_fd, code.ljust(PAGE_BYTES, b"\xcc"))
        with mapped_code(file_fd) as address:
            yield f"/proc/self/fd/{file_fd}", address
    finally:
        os.close(file_fd)


@contextmanager
def mapped_code(file_fd: int) -> Iterator[int]:
    """The address at which the first page of a file is mapped executably."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    read_execute, private = 1 | 4, 2
    address = libc.mmap(None, PAGE_BYTES, read_execute, private, file_fd, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "executable mapping refused")
    try:
        yield address
    finally:
        libc.munmap(address, PAGE_BYTES)


@contextmanager
def probed_function() -> Iterator[tuple[str, Callable[[], None]]]:
    """A test function: the path of its file, in which it is first, and a way to call it."""
    with code_page(PROBED_CODE) as (path, address):
        yield path, ctypes.CFUNCTYPE(None)(address)


def counter_map(stack: ExitStack) -> int:
    """Descriptor of a map with one counter, closed with the stack."""
    return kept(stack, bpf.create_map(bpf.MapType.ARRAY, 4, 8, 1))


def kept(stack: ExitStack, descriptor: int) -> int:
    """The descriptor, to be closed with the stack."""
    stack.callback(os.close, descriptor)
    return descriptor


def instruction(
    code: int, target: int = 0, source: int = 0, offset: int = 0, imm: int = 0
) -> bytes:
    """One eBPF instruction of 8 bytes."""
    return struct.pack("<BBhi", code, source << 4 | target, offset, imm)


RETURN_ZERO = instruction(0xB7) + instruction(0x95)  # r0 = 0; exit


def load_map_address(register: int, map_fd: int) -> bytes:
    """Put &map into `register` (the 16 byte pseudo instruction BPF_PSEUDO_MAP_FD)."""
    return instruction(0x18, register, 1, 0, map_fd) + instruction(0)


def count_program(map_fd: int) -> bytes:
    """A program that adds 1 to element 0 of an array map, atomically."""
    return (
        instruction(0x62, 10, 0, -4, 0)  # *(u32 *)(fp - 4) = 0
        + instruction(0xBF, 2, 10)  # r2 = fp
        + instruction(0x07, 2, 0, 0, -4)  # r2 -= 4
        + load_map_address(1, map_fd)
        + instruction(0x85, imm=1)  # r0 = bpf_map_lookup_elem(map, &0)
        + instruction(0x15, 0, 0, 2, 0)  # absent: leave
        + instruction(0xB7, 1, imm=1)
        + instruction(0xDB, 0, 1, 0, 0)  # lock *(u64 *)r0 += r1
        + RETURN_ZERO
    )


def task_storage_program(storage_fd: int, counter_fd: int) -> bytes:
    """Counts in `counter_fd` how often the current task's storage was available."""
    return (
        instruction(0x85, imm=158)  # r0 = bpf_get_current_task_btf()
        + instruction(0xBF, 2, 0)
        + load_map_address(1, storage_fd)
        + instruction(0xB7, 3)  # no initial value
        + instruction(0xB7, 4, imm=1)  # BPF_LOCAL_STORAGE_GET_F_CREATE
        + instruction(0x85, imm=156)  # r0 = bpf_task_storage_get()
        + instruction(0x55, 0, 0, 2, 0)  # got it: count
        + RETURN_ZERO
        + count_program(counter_fd)
    )


def probe_self(path: str, offset_bytes: int, *, is_return: bool = False) -> int:
    """Probe a file, for this process only and until it ends; the event's descriptor counts hits.

    Raises OSError when the kernel refuses it.
    """
    name = ctypes.create_string_buffer(os.fsencode(path))
    return bpf.open_perf_event(
        uprobe_event_type(),
        int(is_return),
        pid=os.getpid(),
        cpu=-1,
        config1=ctypes.addressof(name),
        config2=offset_bytes,
    )


def attach_uprobe(
    stack: ExitStack, path: str, offset_bytes: int, program: int, *, is_return: bool = False
) -> None:
    """Attach a program to an offset of a file, for this process, by a perf event."""
    event = probe_self(path, offset_bytes, is_return=is_return)
    kept(stack, event)
    kept(stack, bpf.link_perf_event(program, event))


def uprobe_event_type() -> int:
    """Type number of the uprobe event source; OSError when the kernel has none."""
    with open("/sys/bus/event_source/devices/uprobe/type", encoding="ascii") as file:
        return int(file.read())
