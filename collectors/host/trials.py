# SPDX-License-Identifier: GPL-2.0-only
"""What the kernel lets this process do with BPF and perf events, found by doing it.

Each trial does the thing on doctor's own process, checks that it had its effect (a probe
that attaches and is never hit is a failure), and takes everything back through its file
descriptors. A trial returns what it saw and raises OSError (the kernel's refusal) or
LackError (accepted, but without effect). No other process is touched.
"""

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from tlstax.collectors.host import bpf_trials as sys_calls
from tlstax.collectors.host.bpf_syscall import attach_uprobe_multi
from tlstax.collectors.host.bpf_trials import MapType, ProgramType
from tlstax.collectors.host.settings import LackError, quiet_libbpf

CALL_COUNT = 23
PAGE_BYTES = 4096
PROBED_CODE = b"\x90\xc3"  # nop (emulated by the kernel, one trap); ret
SPIN_SECONDS = 0.05


@contextmanager
def code_page(code: bytes) -> Iterator[tuple[str, int]]:
    """Code of our own in a file of our own: its path, and the address where it is mapped.

    The file is anonymous memory (memfd), so that no library's probes are disturbed.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    file_fd = os.memfd_create("tlstax-doctor", os.MFD_CLOEXEC)
    try:
        os.write(file_fd, code.ljust(PAGE_BYTES, b"\xcc"))
        read_execute, private = 1 | 4, 2
        address = libc.mmap(None, PAGE_BYTES, read_execute, private, file_fd, 0)
        if address in (None, ctypes.c_void_p(-1).value):
            raise OSError(ctypes.get_errno(), "executable mapping refused")
        try:
            yield f"/proc/self/fd/{file_fd}", address
        finally:
            libc.munmap(address, PAGE_BYTES)
    finally:
        os.close(file_fd)


@contextmanager
def probed_function(code: bytes = PROBED_CODE) -> Iterator[tuple[str, Callable[[], None]]]:
    """A function of our own: the path of its file, where it stands first, and a way to call it."""
    with code_page(code) as (path, address):
        yield path, ctypes.CFUNCTYPE(None)(address)


def _counter(stack: ExitStack) -> int:
    return _kept(stack, sys_calls.create_map(MapType.ARRAY, 4, 8, 1))


def _kept(stack: ExitStack, descriptor: int) -> int:
    """The descriptor, to be closed with the stack."""
    stack.callback(os.close, descriptor)
    return descriptor


def _spin(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def bpf_call() -> str:
    """Create the simplest map."""
    with ExitStack() as stack:
        _counter(stack)
    return "a map was created"


def program_load() -> str:
    """Let the verifier take a program of two instructions."""
    with ExitStack() as stack:
        _kept(stack, sys_calls.load_program(ProgramType.KPROBE, sys_calls.RETURN_ZERO))
    return "the verifier took a program"


def uprobe_perf_event() -> str:
    """Probe our own function through a perf event, call it, and count."""
    with ExitStack() as stack:
        path, call = stack.enter_context(probed_function())
        counter = _counter(stack)
        program = sys_calls.load_program(ProgramType.KPROBE, sys_calls.count_program(counter))
        _attach(stack, path, _kept(stack, program))
        for _ in range(CALL_COUNT):
            call()
        hits = sys_calls.read_counter(counter)
    if hits == 0:  # a few may be missed: the kernel drops a hit that interrupts another program
        raise LackError(f"{CALL_COUNT} calls gave no hit")
    return f"{CALL_COUNT} calls gave {hits} hits"


def _attach(stack: ExitStack, path: str, program: int) -> None:
    """Have the program run at the start of our own file, by a perf event."""
    name = ctypes.create_string_buffer(path.encode())
    event = sys_calls.open_perf_event(
        uprobe_event_type(), 0, pid=os.getpid(), cpu=-1, config1=ctypes.addressof(name)
    )
    _kept(stack, event)
    _kept(stack, sys_calls.link_perf_event(program, event))


def uprobe_event_type() -> int:
    """Type number of the uprobe event source; OSError when the kernel has none."""
    with open("/sys/bus/event_source/devices/uprobe/type", encoding="ascii") as file:
        return int(file.read())


def uprobe_multi() -> str:
    """Probe our own function through one multi link and call it from two threads.

    Kernels 6.6 to 6.9 filter such links by thread instead of by process: the second thread
    of the process is then never seen. Only counting tells.
    """
    with ExitStack() as stack:
        path, call = stack.enter_context(probed_function())
        counter = _counter(stack)
        program = sys_calls.load_program(
            ProgramType.KPROBE, sys_calls.count_program(counter), sys_calls.ATTACH_UPROBE_MULTI
        )
        _kept(stack, program)
        _kept(stack, attach_uprobe_multi(program, path, [0], [0], os.getpid(), False))
        call()
        own = sys_calls.read_counter(counter)
        other = threading.Thread(target=lambda: [call() for _ in range(CALL_COUNT)])
        other.start()
        other.join()
        others = sys_calls.read_counter(counter) - own
    if others == 0 and own > 0:
        raise LackError(
            f"{CALL_COUNT} calls of a second thread gave {others} hits:"
            " this kernel filters such links by thread"
        )
    if others == 0:
        raise LackError(f"{CALL_COUNT + 1} calls gave no hit")
    return f"{CALL_COUNT} calls of a second thread gave {others} hits"


def task_storage() -> str:
    """Use storage that belongs to a task from a uprobe program."""
    with ExitStack() as stack:
        path, call = stack.enter_context(probed_function())
        types = _kept(stack, sys_calls.load_types())
        no_preallocation = 1
        storage = sys_calls.create_map(MapType.TASK_STORAGE, 4, 8, 0, no_preallocation, types)
        _kept(stack, storage)
        counter = _counter(stack)
        code = sys_calls.task_storage_program(storage, counter)
        program = _kept(stack, sys_calls.load_program(ProgramType.KPROBE, code))
        _attach(stack, path, program)
        for _ in range(CALL_COUNT):
            call()
        hits = sys_calls.read_counter(counter)
    if hits == 0:
        raise LackError(f"{CALL_COUNT} calls never reached it")
    return f"{CALL_COUNT} calls reached it {hits} times"


def tracepoint_with_types() -> str:
    """Attach to sched_switch with its types (tp_btf) and see switches."""
    libbpf = quiet_libbpf()
    type_id = libbpf.libbpf_find_vmlinux_btf_id(b"sched_switch", sys_calls.ATTACH_TRACE_RAW_TP)
    if type_id <= 0:
        raise OSError(-type_id, f"{os.strerror(-type_id)}: sched_switch is not in the kernel's BTF")
    with ExitStack() as stack:
        counter = _counter(stack)
        code = sys_calls.count_program(counter)
        program = sys_calls.load_program(
            ProgramType.TRACING, code, sys_calls.ATTACH_TRACE_RAW_TP, type_id
        )
        _kept(stack, program)
        _kept(stack, sys_calls.open_raw_tracepoint(program))
        for _ in range(CALL_COUNT):
            time.sleep(0.001)
        switches = sys_calls.read_counter(counter)
    if switches < CALL_COUNT:
        raise LackError(f"{CALL_COUNT} sleeps gave {switches} switches")
    return f"sched_switch seen ({switches} switches)"


def ring_buffer() -> str:
    """Create a ring buffer of one page."""
    with ExitStack() as stack:
        _kept(stack, sys_calls.create_map(MapType.RINGBUF, 0, 0, PAGE_BYTES))
    return "a ring buffer was created"


def stack_map() -> str:
    """Create a map of stack traces."""
    with ExitStack() as stack:
        _kept(stack, sys_calls.create_map(MapType.STACK_TRACE, 4, 8 * 127, 16))
    return "a map of stack traces was created"


def cpu_clock_samples() -> str:
    """Sample every process of a CPU by the CPU clock into a program, and spin."""
    with ExitStack() as stack:
        counter = _counter(stack)
        code = sys_calls.count_program(counter)
        program = _kept(stack, sys_calls.load_program(ProgramType.PERF_EVENT, code))
        for cpu in sorted(os.sched_getaffinity(0)):
            event = sys_calls.open_perf_event(
                sys_calls.PERF_TYPE_SOFTWARE,
                sys_calls.PERF_COUNT_SW_CPU_CLOCK,
                cpu=cpu,
                frequency_hz=499,
            )
            _kept(stack, event)
            _kept(stack, sys_calls.link_perf_event(program, event))
        _spin(SPIN_SECONDS)
        samples = sys_calls.read_counter(counter)
    if samples == 0:
        raise LackError(f"{SPIN_SECONDS * 1000:.0f} ms of spinning gave no sample")
    return f"{samples} samples in {SPIN_SECONDS * 1000:.0f} ms at 499 Hz"


def hardware_cycles() -> str:
    """Open a hardware cycle counter on ourselves."""
    with ExitStack() as stack:
        event = sys_calls.open_perf_event(
            sys_calls.PERF_TYPE_HARDWARE, sys_calls.PERF_COUNT_HW_CPU_CYCLES, pid=0, cpu=-1
        )
        _kept(stack, event)
    return "a cycle counter was opened"
