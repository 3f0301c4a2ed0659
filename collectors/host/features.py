# SPDX-License-Identifier: GPL-2.0-only
"""What this kernel permits tlstax to do, found by trying it: the one list for all callers.

The engine, plans, the calibration and doctor use `HOST`. A feature is tried on first use, once per
process, so that a recording does not run trials that it does not need. No kernel version decides
anything.

Each trial does the thing on tlstax's own process, checks that it had its effect (a probe that
attaches and is never hit is a failure), and undoes everything by closing its file descriptors. A
trial returns what it observed and raises OSError (the kernel's refusal) or LackError (accepted, but
without effect). No other process is touched.
"""

import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Generic, TypeVar

from tlstax.collectors.host import bpf, socket_events
from tlstax.collectors.host.bpf import MapType, ProgramType
from tlstax.collectors.host.libbpf import open_library
from tlstax.collectors.host.settings import LackError
from tlstax.collectors.host.socket_events import SocketSource
from tlstax.collectors.host.trial_code import (
    PAGE_BYTES,
    RETURN_ZERO,
    attach_uprobe,
    count_program,
    counter_map,
    kept,
    probed_function,
    task_storage_program,
)

CALL_COUNT = 23
SPIN_SECONDS = 0.05
Found = TypeVar("Found")


class Feature(Generic[Found]):
    """One ability of this host; tried on first use."""

    def __init__(self, trial: Callable[[], Found]) -> None:
        self._trial = trial

    @cached_property
    def _outcome(self) -> Found | LackError | OSError:
        try:
            return self._trial()
        except (LackError, OSError) as refusal:
            return refusal.with_traceback(None)

    def __bool__(self) -> bool:
        return not isinstance(self._outcome, LackError | OSError)

    def ask(self) -> Found:
        """What the trial observed. Raises LackError or OSError if the host cannot do it."""
        if isinstance(self._outcome, LackError | OSError):
            raise self._outcome.with_traceback(None)
        return self._outcome


def bpf_call() -> str:
    """Create the simplest map."""
    with ExitStack() as stack:
        counter_map(stack)
    return "a map was created"


def program_load() -> str:
    """Load a program of two instructions."""
    with ExitStack() as stack:
        kept(stack, bpf.load_program(ProgramType.KPROBE, RETURN_ZERO))
    return "the verifier accepted a program"


def uprobe_perf_event() -> str:
    """Probe our own function through a perf event, call it, and count."""
    with ExitStack() as stack:
        path, call = stack.enter_context(probed_function())
        counter = counter_map(stack)
        program = bpf.load_program(ProgramType.KPROBE, count_program(counter))
        attach_uprobe(stack, path, 0, kept(stack, program))
        for _ in range(CALL_COUNT):
            call()
        hits = bpf.read_counter(counter)
    if hits == 0:  # a few may be missed: the kernel drops a hit that interrupts another program
        raise LackError(f"{CALL_COUNT} calls gave no hit")
    return f"{CALL_COUNT} calls gave {hits} hits"


def uprobe_multi() -> str:
    """Probe our own function through one multi link and call it from two threads.

    Kernels 6.6 to 6.9 filter such links by thread instead of by process: the second thread
    of the process is then never seen. Only counting hits shows this.
    """
    with ExitStack() as stack:
        path, call = stack.enter_context(probed_function())
        counter = counter_map(stack)
        program = bpf.load_program(
            ProgramType.KPROBE, count_program(counter), bpf.ATTACH_UPROBE_MULTI
        )
        kept(stack, program)
        kept(stack, bpf.attach_uprobe_multi(program, path, [0], [0], os.getpid(), False))
        call()
        own = bpf.read_counter(counter)
        other = threading.Thread(target=lambda: [call() for _ in range(CALL_COUNT)])
        other.start()
        other.join()
        others = bpf.read_counter(counter) - own
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
        types = kept(stack, bpf.load_types())
        no_preallocation = 1
        storage = bpf.create_map(MapType.TASK_STORAGE, 4, 8, 0, no_preallocation, types)
        kept(stack, storage)
        counter = counter_map(stack)
        code = task_storage_program(storage, counter)
        program = kept(stack, bpf.load_program(ProgramType.KPROBE, code))
        attach_uprobe(stack, path, 0, program)
        for _ in range(CALL_COUNT):
            call()
        hits = bpf.read_counter(counter)
    if hits == 0:
        raise LackError(f"{CALL_COUNT} calls never reached it")
    return f"{CALL_COUNT} calls reached it {hits} times"


def tracepoint_with_types() -> str:
    """Attach to sched_switch with its types (tp_btf) and see switches."""
    type_id = open_library().libbpf_find_vmlinux_btf_id(b"sched_switch", bpf.ATTACH_TRACE_RAW_TP)
    if type_id <= 0:
        raise OSError(-type_id, f"{os.strerror(-type_id)}: sched_switch is not in the kernel's BTF")
    with ExitStack() as stack:
        counter = counter_map(stack)
        code = count_program(counter)
        program = bpf.load_program(ProgramType.TRACING, code, bpf.ATTACH_TRACE_RAW_TP, type_id)
        kept(stack, program)
        kept(stack, bpf.open_raw_tracepoint(program))
        for _ in range(CALL_COUNT):
            time.sleep(0.001)
        switches = bpf.read_counter(counter)
    if switches < CALL_COUNT:
        raise LackError(f"{CALL_COUNT} sleeps gave {switches} switches")
    return f"sched_switch seen ({switches} switches)"


def ring_buffer() -> str:
    """Create a ring buffer of one page."""
    with ExitStack() as stack:
        kept(stack, bpf.create_map(MapType.RINGBUF, 0, 0, PAGE_BYTES))
    return "a ring buffer was created"


def stack_map() -> str:
    """Create a map of stack traces."""
    with ExitStack() as stack:
        kept(stack, bpf.create_map(MapType.STACK_TRACE, 4, 8 * 127, 16))
    return "a map of stack traces was created"


def cpu_clock_samples() -> str:
    """Sample every process of a CPU by the CPU clock into a program, and spin."""
    with ExitStack() as stack:
        counter = counter_map(stack)
        code = count_program(counter)
        program = kept(stack, bpf.load_program(ProgramType.PERF_EVENT, code))
        for cpu in sorted(os.sched_getaffinity(0)):
            event = kept(stack, bpf.open_cpu_clock(499, cpu=cpu))
            kept(stack, bpf.link_perf_event(program, event))
        end = time.monotonic() + SPIN_SECONDS
        while time.monotonic() < end:
            pass
        samples = bpf.read_counter(counter)
    if samples == 0:
        raise LackError(f"{SPIN_SECONDS * 1000:.0f} ms of spinning gave no sample")
    return f"{samples} samples in {SPIN_SECONDS * 1000:.0f} ms at 499 Hz"


def hardware_cycles() -> str:
    """Open a hardware cycle counter on this process."""
    with ExitStack() as stack:
        event = bpf.open_perf_event(
            bpf.PERF_TYPE_HARDWARE, bpf.PERF_COUNT_HW_CPU_CYCLES, pid=0, cpu=-1
        )
        kept(stack, event)
    return "a cycle counter was opened"


def state_of_switch() -> str:
    """Whether sched_switch passes the state of the thread that leaves the CPU."""
    count = socket_events.argument_counts()["sched_switch"]
    if count < 4:
        raise LackError(f"sched_switch passes {count} arguments")
    return f"sched_switch passes {count} arguments"


def events_of_sockets() -> str:
    """What tells that a socket received or sent."""
    try:
        return HOST.socket_tracepoints.ask()
    except (LackError, OSError) as lack:
        try:
            return HOST.socket_functions.ask()
        except (LackError, OSError) as further:
            raise LackError(f"{lack}; {further}") from None


def emulated_forms() -> frozenset[str]:
    """Instructions that the kernel emulates under a uprobe, beyond those of every kernel. Forks."""
    # Imported here: needs a disassembler; a process that stays attached does not.
    from tlstax.collectors.host import emulation

    return emulation.emulated_forms()


@dataclass(frozen=True)
class Features:
    """The abilities of a host. Tests replace single fields (dataclasses.replace)."""

    bpf_call: Feature[str]
    program_load: Feature[str]
    uprobe_perf_event: Feature[str]
    uprobe_multi: Feature[str]
    tp_btf: Feature[str]
    state_of_switch: Feature[str]
    socket_tracepoints: Feature[str]
    socket_functions: Feature[str]
    socket_events: Feature[str]  # either of both
    task_storage: Feature[str]
    ring_buffer: Feature[str]
    stack_map: Feature[str]
    cpu_clock: Feature[str]
    cycles: Feature[str]
    emulated_forms: Feature[frozenset[str]]


def socket_source(features: Features) -> SocketSource:
    """What events of sockets come from on a host."""
    if features.socket_tracepoints:
        return SocketSource.TRACEPOINTS
    return SocketSource.FUNCTIONS if features.socket_functions else SocketSource.NONE


def lack_of_sockets(features: Features) -> str:
    """Why a host has no events of sockets, as a clause; "" where it has them."""
    try:
        features.socket_events.ask()
    except (LackError, OSError) as lack:
        return str(lack)
    return ""


HOST: Final = Features(
    bpf_call=Feature(bpf_call),
    program_load=Feature(program_load),
    uprobe_perf_event=Feature(uprobe_perf_event),
    uprobe_multi=Feature(uprobe_multi),
    tp_btf=Feature(tracepoint_with_types),
    state_of_switch=Feature(state_of_switch),
    socket_tracepoints=Feature(socket_events.tracepoints),
    socket_functions=Feature(socket_events.functions),
    socket_events=Feature(events_of_sockets),
    task_storage=Feature(task_storage),
    ring_buffer=Feature(ring_buffer),
    stack_map=Feature(stack_map),
    cpu_clock=Feature(cpu_clock_samples),
    cycles=Feature(hardware_cycles),
    emulated_forms=Feature(emulated_forms),
)
