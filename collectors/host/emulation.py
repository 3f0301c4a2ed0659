# SPDX-License-Identifier: GPL-2.0-only
"""Finds by trial which further instructions this kernel emulates under a uprobe.

Nothing is timed. To single-step an instruction the kernel needs memory for its copy, and maps
it into the process ([uprobes]) at the first step. So a child process runs a function with a probe
on one such instruction, then reads its own mappings. An instruction that is certainly stepped is
tried first: if no mapping appears there, the trial is inconclusive and the result is empty.
"""

import ctypes
import os
from contextlib import ExitStack
from typing import Final

from tlstax.collectors.binary.architectures import machine_of
from tlstax.collectors.binary.machine import SUPPORTED, TrialForm
from tlstax.collectors.host import bpf
from tlstax.collectors.host.trial_code import (
    RETURN,
    STEPPED,
    code_page,
    count_program,
    counter_map,
    kept,
)

SLOT_BYTES: Final = 32
CONTROL: Final = TrialForm(STEPPED, b"")
PLACE_OF_COPIES: Final = "[uprobes]"


def emulated_forms() -> frozenset[str]:
    """Names of the trial forms that the kernel emulates; empty if they cannot be tried.

    Needs the rights to attach a probe, and uprobe_multi links: kernels without them emulate
    none of the forms. Forks, so call it while this process has one thread.
    """
    name = {uname: machine for machine, uname in SUPPORTED.items()}.get(os.uname().machine)
    if name is None:
        return frozenset()
    forms = {"control": CONTROL, **machine_of(name).trial_forms}
    code = b"".join(
        (form.before + form.code + form.after + RETURN).ljust(SLOT_BYTES, b"\xcc")
        for form in forms.values()
    )
    offsets = [number * SLOT_BYTES + len(form.before) for number, form in enumerate(forms.values())]
    with ExitStack() as stack:
        try:
            path, address = stack.enter_context(code_page(code))
            counting = count_program(counter_map(stack))
            program = bpf.load_program(bpf.ProgramType.KPROBE, counting, bpf.ATTACH_UPROBE_MULTI)
            kept(stack, program)
            # No pid, so that children are probed, too; no other process maps this file.
            cookies = [0] * len(offsets)
            kept(stack, bpf.attach_uprobe_multi(program, path, offsets, cookies, 0, False))
        except OSError:
            return frozenset()
        stepped = {
            name: _is_stepped(address + number * SLOT_BYTES) for number, name in enumerate(forms)
        }
    if not stepped.pop("control"):
        return frozenset()
    return frozenset(name for name, steps in stepped.items() if not steps)


def _is_stepped(address: int) -> bool:
    """Whether a call of the function leads to a single step, tried in a child."""
    child = os.fork()
    if child == 0:
        status = 2
        try:
            ctypes.CFUNCTYPE(None)(address)()
            with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
                status = 1 if PLACE_OF_COPIES in maps.read() else 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) != 0
