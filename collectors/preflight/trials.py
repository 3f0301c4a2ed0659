# SPDX-License-Identifier: GPL-2.0-only
"""What can be tried on a process of our own, because it can hurt only that process.

Each trial first does the thing without a probe, which must work, then with one. A trial that could
not be made is UNKNOWN, never safe. Machine code is made at run time: no compiler is needed.
"""

import ctypes
import os
import struct
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from tlstax.collectors.host.features import HOST
from tlstax.collectors.host.settings import LackError
from tlstax.collectors.host.trial_code import (
    IS_ARM64,
    PAGE_BYTES,
    PROBED_CODE,
    code_page,
    mapped_code,
    probe_self,
)
from tlstax.collectors.preflight.private_mounts import mount, separate_mounts
from tlstax.collectors.preflight.throwing_code import CAUGHT, THROWER_OFFSET, ThrowingCode
from tlstax.collectors.preflight.trial_child import (
    Outcome,
    RunningTrial,
    State,
    Trial,
    hits,
)

CALLS: Final = 16
NOP5: Final = b"\x0f\x1f\x44\x00\x00"
_RED_ZONE_WORDS: Final = 16
_SYS_URETPROBE, _SYS_UPROBE = 335, 336  # of x86-64
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 22, 38  # linux/prctl.h
_SECCOMP_MODE_FILTER: Final = 2
_EPERM: Final = 1


def throw_through_return_probe() -> Outcome:
    """Throw through a function with a return probe, as C++ does."""
    if IS_ARM64:
        return Outcome(State.UNKNOWN, "it is not tried on arm64")
    code = ThrowingCode()
    with code_page(code.code) as (path, address):
        code.register(address)
        outer = ctypes.CFUNCTYPE(ctypes.c_int)(address)
        control = RunningTrial(lambda: Outcome(State.SAFE, str(outer()))).outcome()
        if control != Outcome(State.SAFE, str(CAUGHT)):
            return Outcome(State.UNKNOWN, "an exception is not caught even without a probe")
        probe_self(path, THROWER_OFFSET, is_return=True)
        caught = outer() == CAUGHT
    if not caught:
        return Outcome(State.HARMFUL, "an exception was not caught")
    return Outcome(State.SAFE, "an exception passed a return probe")


def return_probe_under_seccomp() -> Outcome:
    """Return from probed functions under a filter that refuses the system calls of probes."""
    if IS_ARM64:
        return Outcome(State.ABSENT, OF_X86["return_probe_under_seccomp"])
    with code_page(PROBED_CODE.ljust(32) + NOP5 + b"\xc3") as (path, address):
        returning = probe_self(path, 0, is_return=True)
        probe_self(path, 32)
        _refuse_system_calls((_SYS_URETPROBE, _SYS_UPROBE))
        for offset in (0, 32):
            function = ctypes.CFUNCTYPE(None)(address + offset)
            for _ in range(CALLS):
                function()
        if not hits(returning):
            return Outcome(State.UNKNOWN, f"{CALLS} calls gave no hit")
    return Outcome(State.SAFE, f"{CALLS} returns under a filter that refuses uretprobe")


def probe_in_red_zone() -> Outcome:
    """Probe a 5-byte nop in a leaf function that keeps its variables below the stack pointer."""
    if IS_ARM64:
        return Outcome(State.ABSENT, OF_X86["probe_in_red_zone"])
    depths = range(8, 8 * _RED_ZONE_WORDS + 1, 8)
    store = b"".join(b"\x48\x89\x7c\x24" + struct.pack("<b", -depth) for depth in depths)
    # xor into rcx what was stored, and collect the differences in rax
    check = b"".join(
        b"\x48\x8b\x4c\x24" + struct.pack("<b", -depth) + b"\x48\x31\xf9\x48\x09\xc8"
        for depth in depths
    )
    code = store + NOP5 + b"\x31\xc0" + check + b"\xc3"
    with code_page(code) as (path, address):
        function = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64)(address)
        if function(0x5A5A5A5A5A5A):
            return Outcome(State.UNKNOWN, "the function fails even without a probe")
        event = probe_self(path, len(store))
        changed = [function(0x5A5A5A5A5A5A) for _ in range(CALLS)]
        optimised = ctypes.string_at(address + len(store), 1) not in (b"\xcc", NOP5[:1])
        if not hits(event):
            return Outcome(State.UNKNOWN, f"{CALLS} calls gave no hit")
    if any(changed):
        lost = sum(map(bool, changed))
        return Outcome(State.HARMFUL, f"{lost} of {CALLS} calls lost a variable")
    how = "optimised" if optimised else "not optimised"
    return Outcome(State.SAFE, f"{CALLS} calls kept their variables; the probe is {how}")


def probe_on_rip_relative() -> Outcome:
    """Single-step a load, an address and a comparison that are relative to rip."""
    if IS_ARM64:
        return Outcome(State.ABSENT, OF_X86["probe_on_rip_relative"])
    value = 0x1122334455667788
    # mov / lea / cmp %rdi relative to rip, then ret; each slot's data is at its end.
    load = b"\x48\x8b\x05" + struct.pack("<i", 24 - 7) + b"\xc3"
    lea = b"\x48\x8d\x05" + struct.pack("<i", 24 - 7) + b"\xc3"
    compare = b"\x48\x3b\x3d" + struct.pack("<i", 24 - 7) + b"\x0f\x94\xc0\x0f\xb6\xc0\xc3"
    slots = (load, lea, compare)
    code = b"".join(slot.ljust(24, b"\xcc") + struct.pack("<Q", value) for slot in slots)
    with code_page(code) as (path, address):
        expected = (value, address + 32 + 24, 1)
        functions = [
            ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64)(address + 32 * number)
            for number in range(len(slots))
        ]
        if tuple(function(value) for function in functions) != expected:
            return Outcome(State.UNKNOWN, "the functions fail even without a probe")
        events = [probe_self(path, 32 * number) for number in range(len(slots))]
        results = [tuple(function(value) for function in functions) for _ in range(CALLS)]
        if not all(hits(event) for event in events):
            return Outcome(State.UNKNOWN, f"{CALLS} calls gave no hit")
    wrong = sum(result != expected for result in results)
    if wrong:
        return Outcome(State.HARMFUL, f"{wrong} of {CALLS} results are wrong")
    return Outcome(State.SAFE, f"{CALLS} times {len(slots)} instructions gave the right result")


def probe_on_overlay() -> Outcome:
    """Probe code that is mapped through overlayfs, in a mount namespace of the child's own."""
    separate_mounts()
    place = Path(tempfile.gettempdir())
    mount("tmpfs", place, "tmpfs")
    for name in ("lower", "upper", "work", "merged"):
        (place / name).mkdir()
    (place / "lower/code").write_bytes(PROBED_CODE.ljust(PAGE_BYTES, b"\xcc"))
    options = f"lowerdir={place}/lower,upperdir={place}/upper,workdir={place}/work"
    mount("overlay", place / "merged", "overlay", options)
    path = place / "merged/code"
    with path.open("rb") as file, mapped_code(file.fileno()) as address:
        event = probe_self(str(path), 0)
        function = ctypes.CFUNCTYPE(None)(address)
        for _ in range(CALLS):
            function()
        seen = hits(event)
    if not seen:
        return Outcome(State.HARMFUL, f"{CALLS} calls gave no hit")
    return Outcome(State.SAFE, f"{CALLS} calls gave {seen} hits")


def uprobe_multi_threads() -> Outcome:
    """Hits in a second thread through one link, as the engine's features try it."""
    try:
        return Outcome(State.SAFE, HOST.uprobe_multi.ask())
    except LackError as lack:
        return Outcome(State.HARMFUL, str(lack))
    except OSError as error:
        return Outcome(State.ABSENT, f"no uprobe_multi links: {error.strerror or error}")


OF_X86: Final = {
    "return_probe_under_seccomp": "on arm64 no system call belongs to probes",
    "probe_in_red_zone": "arm64 has no such nop, and no red zone",
    "probe_on_rip_relative": "on arm64 the kernel steps no such instruction",
}
"""Trials of what only x86-64 has, and why there is nothing to try on arm64."""
TRIALS: Final[Mapping[str, Trial]] = {
    trial.__name__: trial
    for trial in (
        throw_through_return_probe,
        return_probe_under_seccomp,
        probe_in_red_zone,
        probe_on_rip_relative,
        probe_on_overlay,
        uprobe_multi_threads,
    )
}


def begin(names: Iterable[str] = tuple(TRIALS)) -> Callable[[], dict[str, Outcome]]:
    """Begin trials, each in a child of its own, all at the same time; what waits for the outcomes.

    They wait for the kernel most of the time. Call it in a process that ends soon: see
    `trial_child`.
    """
    running = {name: RunningTrial(TRIALS[name]) for name in names}
    return lambda: {name: trial.outcome() for name, trial in running.items()}


def _refuse_system_calls(numbers: Iterable[int]) -> None:
    """Refuse system calls of this process with EPERM from now on, as containers do."""
    load, jump_equal, answer = 0x20, 0x15, 0x06  # BPF_LD | BPF_W | BPF_ABS and so on
    allow, refuse = 0x7FFF0000, 0x00050000 | _EPERM  # linux/seccomp.h
    code = [(load, 0, 0, 0)]  # the number is the first field of struct seccomp_data
    for number in numbers:
        code += [(jump_equal, 0, 1, number), (answer, 0, 0, refuse)]
    code.append((answer, 0, 0, allow))
    program = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *line) for line in code))
    described = ctypes.create_string_buffer(
        struct.pack("<H6xQ", len(code), ctypes.addressof(program))
    )
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in (
        (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.c_void_p(ctypes.addressof(described)), 0, 0),
    ):
        if libc.prctl(*arguments) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"seccomp: {os.strerror(number)}")
