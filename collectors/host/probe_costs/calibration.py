# SPDX-License-Identifier: GPL-2.0-only
"""Measures the cost of one probe hit on this host, on test functions of its own process.

Most of the cost is the kernel's trap. Each kind of probe is attached to a tiny function that a loop
in machine code calls; the difference to the same loop without a probe is its cost. Each round
measures every kind once, and the result is the median of the rounds with a distribution-free 95 %
interval (order statistics). Only this process is probed.

It is for `tlstax doctor --calibrate` (`calibration_events` measures all but uprobes). What
attaching needs is measured by the recorder (`costs`).
"""

import ctypes
import os
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple

from tlstax.collectors.host import bpf
from tlstax.collectors.host.probe_costs.prices import PLAIN, STEPPED, Price, price_of
from tlstax.collectors.host.trial_code import (
    IS_ARM64,
    PROBED_CODE,
    RETURN,
    attach_uprobe,
    code_page,
    count_program,
    counter_map,
    kept,
)
from tlstax.collectors.host.trial_code import STEPPED as STEPPED_CODE

SLOT_BYTES: Final = 32
LOOPS_OFFSET: Final = 2048
OPTIMISED: Final = "nop of 5 bytes"


class Trial(NamedTuple):
    """One kind of probe, on the first instruction of a test function."""

    kind: str  # uprobe_multi, uretprobe_multi, uprobe, uretprobe; "" for no probe
    instruction: str
    code: bytes
    calls: int = 400


BARE: Final = Trial("", PLAIN, PROBED_CODE)
_OF_X86: Final = (
    Trial("uprobe_multi", "push %rbx", b"\x53\x5b\xc3"),
    Trial("uprobe_multi", "jmp", b"\xeb\x00\xc3"),
    Trial("uprobe_multi", "je", b"\x74\x00\xc3"),
    Trial("uprobe_multi", "call", b"\xe8\x00\x00\x00\x00\x58\xc3"),
    Trial("uprobe_multi", OPTIMISED, b"\x0f\x1f\x44\x00\x00\xc3"),
)
ALL: Final = (
    Trial("uprobe_multi", PLAIN, PROBED_CODE),
    Trial("uretprobe_multi", PLAIN, PROBED_CODE),
    Trial("uprobe_multi", STEPPED, STEPPED_CODE + RETURN, 50),
    *(() if IS_ARM64 else _OF_X86),
    Trial("uretprobe_multi", STEPPED, STEPPED_CODE + RETURN, 50),
    Trial("uprobe", PLAIN, PROBED_CODE),
    Trial("uretprobe", PLAIN, PROBED_CODE),
    Trial("uprobe", STEPPED, STEPPED_CODE + RETURN, 50),
)


def measure(trials: Sequence[Trial], rounds: int) -> list[Price]:
    """The costs of these kinds of probes, without those that the kernel refuses."""
    with ExitStack() as stack:
        try:
            path, address = stack.enter_context(code_page(_page([BARE, *trials])))
            counter = counter_map(stack)
        except OSError:
            return []
        working = []
        for number, trial in enumerate(trials, start=1):
            try:
                _attach(stack, trial, path, number * SLOT_BYTES, counter)
                working.append((number, trial))
            except OSError:
                continue
        bare = _loop(address, 0)
        loops = [(trial, _loop(address, number)) for number, trial in working]
        for run in (bare, *(loop for _, loop in loops)):
            run()  # the first calls map pages and optimise probes
        found: dict[Trial, list[float]] = {trial: [] for trial, _ in loops}
        for _ in range(rounds):
            bare_ns = _call_ns(bare, BARE.calls)
            for trial, loop in loops:
                found[trial].append(_call_ns(loop, trial.calls) - bare_ns)
    return [price_of(t.kind, t.instruction, differences) for t, differences in found.items()]


def _page(trials: Sequence[Trial]) -> bytes:
    """The functions, and for each of them a loop that calls it."""
    functions = b"".join(trial.code.ljust(SLOT_BYTES, b"\xcc") for trial in trials)
    page = functions.ljust(LOOPS_OFFSET, b"\xcc")
    for number, trial in enumerate(trials):
        loop = _loop_of_arm64 if IS_ARM64 else _loop_of_x86
        page += loop(number * SLOT_BYTES, len(page), trial.calls).ljust(SLOT_BYTES, b"\xcc")
    return page


def _loop_of_x86(function: int, at: int, calls: int) -> bytes:
    """Push %rbx; mov $calls,%ebx; call; dec %ebx; jne; pop %rbx; ret."""
    loop = b"\x53\xbb" + struct.pack("<I", calls)
    loop += b"\xe8" + struct.pack("<i", function - at - 11)
    return loop + b"\xff\xcb\x75\xf7\x5b\xc3"


def _loop_of_arm64(function: int, at: int, calls: int) -> bytes:
    """Mov x11, x30; mov w10, #calls; bl; subs w10, w10, #1; b.ne; ret x11."""
    call = 0x94000000 | (function - at - 8 >> 2) & 0x3FFFFFF
    words = (0xAA1E03EB, 0x5280000A | calls << 5, call, 0x7100054A, 0x54FFFFC1, 0xD65F0160)
    return struct.pack("<6I", *words)


def _loop(address: int, number: int) -> Callable[[], None]:
    return ctypes.CFUNCTYPE(None)(address + LOOPS_OFFSET + number * SLOT_BYTES)


def _call_ns(loop: Callable[[], None], calls: int) -> float:
    start_ns = time.perf_counter_ns()
    loop()
    return (time.perf_counter_ns() - start_ns) / calls


def _attach(stack: ExitStack, trial: Trial, path: str, offset_bytes: int, counter: int) -> None:
    """Attach a probe that counts until the stack unwinds. OSError when the kernel refuses."""
    is_return, multi = trial.kind.startswith("uret"), trial.kind.endswith("_multi")
    attach_type = bpf.ATTACH_UPROBE_MULTI if multi else 0
    program = bpf.load_program(bpf.ProgramType.KPROBE, count_program(counter), attach_type)
    kept(stack, program)
    if multi:
        pid = os.getpid()
        kept(stack, bpf.attach_uprobe_multi(program, path, [offset_bytes], [0], pid, is_return))
    else:
        attach_uprobe(stack, path, offset_bytes, program, is_return=is_return)
