# SPDX-License-Identifier: GPL-2.0-only
"""Names of the system calls that database servers make, by their x86-64 numbers.

Captures of arm64 hosts have these numbers, too: see syscalls_arm64.py.
"""

from typing import Final

NO_SYSCALL: Final = "none"

_NAMES: Final = {
    0: "read",
    1: "write",
    2: "open",
    3: "close",
    4: "stat",
    5: "fstat",
    7: "poll",
    8: "lseek",
    9: "mmap",
    10: "mprotect",
    11: "munmap",
    12: "brk",
    14: "rt_sigprocmask",
    15: "rt_sigreturn",
    16: "ioctl",
    17: "pread64",
    18: "pwrite64",
    19: "readv",
    20: "writev",
    23: "select",
    24: "sched_yield",
    28: "madvise",
    35: "nanosleep",
    41: "socket",
    42: "connect",
    43: "accept",
    44: "sendto",
    45: "recvfrom",
    46: "sendmsg",
    47: "recvmsg",
    48: "shutdown",
    49: "bind",
    50: "listen",
    51: "getsockname",
    52: "getpeername",
    54: "setsockopt",
    55: "getsockopt",
    56: "clone",
    60: "exit",
    72: "fcntl",
    74: "fsync",
    75: "fdatasync",
    77: "ftruncate",
    186: "gettid",
    202: "futex",
    207: "io_getevents",
    209: "io_submit",
    213: "epoll_create",
    228: "clock_gettime",
    230: "clock_nanosleep",
    231: "exit_group",
    232: "epoll_wait",
    233: "epoll_ctl",
    257: "openat",
    262: "newfstatat",
    270: "pselect6",
    271: "ppoll",
    277: "sync_file_range",
    281: "epoll_pwait",
    285: "fallocate",
    288: "accept4",
    295: "preadv",
    296: "pwritev",
    318: "getrandom",
    334: "rseq",
    426: "io_uring_enter",
    435: "clone3",
    441: "epoll_pwait2",
}

NUMBERS: Final = {name: number for number, name in _NAMES.items()}
"""Numbers by name."""


def syscall_name(number: int) -> str:
    """The name of a system call, `none` for -1, or `syscall_N` if it is unknown."""
    if number < 0:
        return NO_SYSCALL
    return _NAMES.get(number, f"syscall_{number}")
