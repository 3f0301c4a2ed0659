# SPDX-License-Identifier: GPL-2.0-only
"""What tells on this host that a socket received or sent: tracepoints, else returns of functions.

Level `flow` knows commands by these events. The tracepoints came with Linux 6.3. Before, a program
at the return of each function that these kernels call for it (fexit) is told the same. The recorder
makes the same choice by a trial of its own (collectors/recorder/socket_events.c).
"""

import socket
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from enum import StrEnum
from functools import cache
from typing import Final

from tlstax.collectors.host import bpf
from tlstax.collectors.host.bpf import ProgramType
from tlstax.collectors.host.libbpf import (
    function_numbers,
    has_struct,
    tracepoint_argument_counts,
)
from tlstax.collectors.host.settings import LackError
from tlstax.collectors.host.trial_code import count_program, counter_map, kept


class SocketSource(StrEnum):
    """What events of sockets come from."""

    NONE = "none"
    TRACEPOINTS = "tracepoints"
    FUNCTIONS = "functions"


TRACEPOINTS: Final = ("sock_recv_length", "sock_send_length")
FUNCTIONS: Final = {
    "inet_recvmsg": 4,
    "inet_sendmsg": 3,
    "inet6_recvmsg": 4,
    "inet6_sendmsg": 3,
    "unix_stream_recvmsg": 4,
    "unix_stream_sendmsg": 3,
}
"""Functions of the kernel, and how many arguments each has."""
CALL_COUNT: Final = 23
SAFE_TYPE: Final = "bpf_tramp_image"
"""A struct that came with the fix of kernel commit e21aa341785c (Linux 5.12).

Before it, the kernel frees the code around a function when its program is detached, also while a
thread sleeps in the function, as threads do in a receive: it returns to freed memory.
"""
_FAMILIES: Final = {
    "inet": socket.AF_INET,
    "inet6": socket.AF_INET6,
    "unix_stream": socket.AF_UNIX,
}


def tracepoints() -> str:
    """Whether there are tracepoints for what a socket received and sent."""
    counts = argument_counts()
    lacking = [name for name in TRACEPOINTS if not counts[name]]
    if lacking:
        raise LackError(f"no {' and no '.join(lacking)}")
    return " and ".join(TRACEPOINTS)


@cache
def argument_counts() -> dict[str, int]:
    """Arguments that tracepoints in use pass; 0: the kernel does not have it."""
    return tracepoint_argument_counts("sched_switch", *TRACEPOINTS)


@cache
def _numbers() -> dict[str, int]:
    return function_numbers(FUNCTIONS)


def functions() -> str:
    """Attach to the returns of the kernel's functions, receive and send on sockets, and count.

    Not tried where that can hurt the kernel.
    """
    if not has_struct(SAFE_TYPE):
        raise LackError(
            "programs at the returns of socket functions are not safe before Linux 5.12"
        )
    numbers = _numbers()
    with ExitStack() as stack:
        counters = {name: _count(stack, name) for name in numbers}
        for kind, family in _FAMILIES.items():
            _try(kind, family, counters)
    return f"returns of {', '.join(numbers)}"


def _count(stack: ExitStack, name: str) -> int:
    """The counter of a program that is attached to the returns of a function."""
    counter = counter_map(stack)
    kept(stack, bpf.open_raw_tracepoint(load_return_counter(stack, counter, name)))
    return counter


def load_return_counter(stack: ExitStack, counter: int, name: str) -> int:
    """A program that counts returns of one of `FUNCTIONS` once it is attached."""
    number = _numbers()[name]
    code = count_program(counter)
    program = bpf.load_program(ProgramType.TRACING, code, bpf.ATTACH_TRACE_FEXIT, number)
    return kept(stack, program)


def _try(kind: str, family: int, counters: Mapping[str, int]) -> None:
    """Receive and send without a peer: an error returns, which is an event, too.

    Sockets of IPv6 may have the functions of IPv4. Raises LackError.
    """
    try:
        opened = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        return  # this kernel has no such sockets
    with closing(opened):
        for verb in ("recvmsg", "sendmsg"):
            name = f"{kind}_{verb}"
            if kind == "inet6" and name not in counters:
                name = f"inet_{verb}"
            if name not in counters:
                raise LackError(f"{name} is not in the kernel's types")
            before = bpf.read_counter(counters[name])
            for _ in range(CALL_COUNT):
                with suppress(OSError):
                    if verb == "recvmsg":
                        opened.recv(1, socket.MSG_DONTWAIT)
                    else:
                        opened.send(b"x", socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            hits = bpf.read_counter(counters[name]) - before
            if hits < CALL_COUNT:
                raise LackError(f"{CALL_COUNT} calls of {name} gave {hits} hits")
