# SPDX-License-Identifier: GPL-2.0-only
"""Measures the cost of a scheduler event and of a CPU sample, and lists the cost of all probes.

- a switch (tp_btf): two processes on one CPU exchange a byte, which takes two context switches; the
  cost is the difference per switch with and without an attached counting program;
- a socket event (fexit), where that is what tells of sockets: a thread receives what it sent;
- a sample: a loop of known length at a stack of 24 frames, with and without a CPU-clock event
  whose program walks the user and the kernel stack.

Both are small compared with the loop that is measured, so their intervals are wide.
"""

import ctypes
import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from tlstax.collectors.host import bpf
from tlstax.collectors.host.bpf import MapType, ProgramType
from tlstax.collectors.host.features import HOST, socket_source
from tlstax.collectors.host.libbpf import open_library
from tlstax.collectors.host.probe_costs.calibration import ALL, measure
from tlstax.collectors.host.probe_costs.costs import UnmeasuredError, measured_text, prices_in
from tlstax.collectors.host.probe_costs.prices import Price, price_of
from tlstax.collectors.host.socket_events import SocketSource, load_return_counter
from tlstax.collectors.host.trial_code import (
    IS_ARM64,
    code_page,
    count_program,
    counter_map,
    instruction,
    kept,
    load_map_address,
)

ROUNDS: Final = 25
TRIPS: Final = 400
MESSAGES: Final = 2000
MEASURED_FUNCTION: Final = "unix_stream_recvmsg"
FRAMES: Final = 24
SPIN_LOOPS: Final = 12_000_000
SAMPLES_HZ: Final = (24_999, 4_999, 999)  # the first that the kernel accepts
GET_STACKID: Final = 27
USER_STACK: Final = 1 << 8


def measure_all(tell: Callable[[str], None]) -> list[Price]:
    """The cost of every kind of probe that this kernel accepts.

    `tell` is given the reason where it is not measured on several CPUs at once.
    """
    try:
        by_cpus = prices_in(measured_text())
    except (UnmeasuredError, ValueError) as error:
        tell(f"costs on several CPUs at once were not measured ({error})")
        by_cpus = []
    known = {row[:2] for row in by_cpus}
    rest = [trial for trial in ALL if (trial.kind, trial.instruction) not in known]
    with one_cpu():
        rest_prices = measure(rest, ROUNDS)
        return [*by_cpus, *rest_prices, *switch_price(), *socket_price(), *sample_price()]


@contextmanager
def one_cpu() -> Iterator[None]:
    """Run on one CPU, so that a round is not split between two CPUs' clocks."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def switch_price() -> list[Price]:
    """The cost of a program at sched_switch; empty if the kernel refuses it."""
    with ExitStack() as stack:
        try:
            kind = bpf.ATTACH_TRACE_RAW_TP
            type_id = open_library().libbpf_find_vmlinux_btf_id(b"sched_switch", kind)
            if type_id < 0:
                return []
            counter = counter_map(stack)
            program = bpf.load_program(ProgramType.TRACING, count_program(counter), kind, type_id)
            kept(stack, program)
        except OSError:
            return []
        with _partner() as trip:
            costs_ns = _costs_ns(program, counter, lambda: _trips_ns(trip), 2 * TRIPS)
    return [price_of("tp_btf", "sched_switch", costs_ns)] if costs_ns else []


def socket_price() -> list[Price]:
    """The cost of a program at the return of a function; empty where there are tracepoints."""
    if socket_source(HOST) != SocketSource.FUNCTIONS:
        return []
    with ExitStack() as stack:
        try:
            counter = counter_map(stack)
            program = load_return_counter(stack, counter, MEASURED_FUNCTION)
        except OSError:
            return []
        here, there = (stack.enter_context(end) for end in socket.socketpair())
        costs_ns = _costs_ns(program, counter, lambda: _messages_ns(here, there), MESSAGES)
    return [price_of("fexit", MEASURED_FUNCTION, costs_ns)] if costs_ns else []


def _costs_ns(program: int, counter: int, run: Callable[[], int], events_count: int) -> list[float]:
    """By round, the cost of an event of a program; `run` causes so many, and returns its time.

    Not of one that was counted: events of other processes are, too, and do not delay this one.
    Empty if the program is refused, or not run at each event.
    """
    costs_ns = []
    for _ in range(ROUNDS):
        bare_ns = run()
        before = bpf.read_counter(counter)
        try:
            link = bpf.open_raw_tracepoint(program)
        except OSError:
            return []
        try:
            probed_ns = run()
        finally:
            os.close(link)
        if bpf.read_counter(counter) - before < events_count:
            return []
        costs_ns.append((probed_ns - bare_ns) / events_count)
    return costs_ns


def _messages_ns(here: socket.socket, there: socket.socket) -> int:
    start_ns = time.perf_counter_ns()
    for _ in range(MESSAGES):
        here.send(b"x")
        there.recv(1)
    return time.perf_counter_ns() - start_ns


@contextmanager
def _partner() -> Iterator[tuple[int, int]]:
    """A child that answers each byte: descriptors to read from and to write to."""
    to_child, from_parent = os.pipe()
    to_parent, from_child = os.pipe()
    # Ctrl-C is for this process. The child ends with it, and must never go on as a second tlstax.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    child = os.fork()
    if child == 0:
        try:
            os.close(from_parent)
            os.close(to_parent)
            while os.read(to_child, 1):
                os.write(from_child, b"x")
        finally:
            os._exit(0)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.close(to_child)
    os.close(from_child)
    try:
        yield to_parent, from_parent
    finally:
        os.close(from_parent)
        os.close(to_parent)
        os.waitpid(child, 0)


def _trips_ns(trip: tuple[int, int]) -> int:
    reading, writing = trip
    start_ns = time.perf_counter_ns()
    for _ in range(TRIPS):
        os.write(writing, b"x")
        os.read(reading, 1)
    return time.perf_counter_ns() - start_ns


def sample_price() -> list[Price]:
    """The cost of a CPU-clock sample with both stacks; empty if the kernel refuses it."""
    costs = []
    with ExitStack() as stack:
        try:
            _, address = stack.enter_context(code_page(_spinning_code()))
            counter = counter_map(stack)
            stacks = kept(stack, bpf.create_map(MapType.STACK_TRACE, 4, 8 * 64, 1024))
            walking = _walking_program(stacks, counter)
            program = kept(stack, bpf.load_program(ProgramType.PERF_EVENT, walking))
        except OSError:
            return []
        spin = ctypes.CFUNCTYPE(None, ctypes.c_int)(address)
        spin(FRAMES)
        for _ in range(ROUNDS):
            bare_ns = _spin_ns(spin)
            before = bpf.read_counter(counter)
            with ExitStack() as attached:
                if not _start_sampling(attached, program):
                    return []
                sampled_ns = _spin_ns(spin)
            samples = bpf.read_counter(counter) - before
            if samples:
                costs.append((sampled_ns - bare_ns) / samples)
    if len(costs) < ROUNDS // 2:
        return []
    return [price_of("perf_event", f"sample, stack of {FRAMES} frames", costs)]


def _start_sampling(attached: ExitStack, program: int) -> bool:
    """Sample this thread until `attached` unwinds; False if the kernel accepts no rate."""
    for hz in SAMPLES_HZ:
        try:
            event = kept(attached, bpf.open_cpu_clock(hz, cpu=-1, pid=0))
        except OSError:
            continue
        kept(attached, bpf.link_perf_event(program, event))
        return True
    return False


def _spin_ns(spin: Callable[[int], None]) -> int:
    start_ns = time.perf_counter_ns()
    spin(FRAMES)
    return time.perf_counter_ns() - start_ns


def _spinning_code() -> bytes:
    """A function with frame pointers that calls itself as often as its argument says, then spins.

    push %rbp; mov %rsp,%rbp; dec %edi; je 1f; call itself; pop %rbp; ret;
    1: mov $SPIN_LOOPS,%ecx; 2: dec %ecx; jne 2b; pop %rbp; ret
    """
    if IS_ARM64:
        return _spinning_code_of_arm64()
    code = b"\x55\x48\x89\xe5\xff\xcf\x74\x07\xe8" + struct.pack("<i", -13) + b"\x5d\xc3"
    return code + b"\xb9" + struct.pack("<I", SPIN_LOOPS) + b"\xff\xc9\x75\xfc\x5d\xc3"


def _spinning_code_of_arm64() -> bytes:
    """The same for arm64.

    stp x29, x30, [sp, #-16]!; mov x29, sp; subs w0, w0, #1; b.eq 1f; bl itself;
    ldp x29, x30, [sp], #16; ret; 1: mov w1, SPIN_LOOPS; 2: subs w1, w1, #1; b.ne 2b; ldp; ret
    """
    leave = (0xA8C17BFD, 0xD65F03C0)
    loops = 0x52800001 | (SPIN_LOOPS & 0xFFFF) << 5, 0x72A00001 | SPIN_LOOPS >> 16 << 5
    words = (0xA9BF7BFD, 0x910003FD, 0x71000400, 0x54000080, 0x97FFFFFC, *leave, *loops)
    return struct.pack("<13I", *words, 0x71000421, 0x54FFFFE1, *leave)


def _walking_program(stacks: int, counter: int) -> bytes:
    """Walk the kernel's and the user's stack, then count."""
    walk = b""
    for flags in (0, USER_STACK):
        walk += (
            instruction(0xBF, 1, 6)  # r1 = context
            + load_map_address(2, stacks)
            + instruction(0xB7, 3, imm=flags)
            + instruction(0x85, imm=GET_STACKID)
        )
    return instruction(0xBF, 6, 1) + walk + count_program(counter)
