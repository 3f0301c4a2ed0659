# SPDX-License-Identifier: GPL-2.0-only
"""A tracer, as a debugger is one."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17  # linux/ptrace.h


@contextmanager
def traced(tid: int) -> Iterator[None]:
    """A thread with a tracer, which has stopped it; it goes on at the end."""
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    assert ptrace(PTRACE_SEIZE, tid, None, None) == 0, os.strerror(ctypes.get_errno())
    assert ptrace(PTRACE_INTERRUPT, tid, None, None) == 0
    os.waitpid(tid, 0x40000000)  # __WALL
    try:
        yield
    finally:
        ptrace(PTRACE_DETACH, tid, None, None)
