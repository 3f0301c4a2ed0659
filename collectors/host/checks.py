# SPDX-License-Identifier: GPL-2.0-only
"""What this host can do, found by trying it: the checks behind `tlstax doctor`.

No kernel version decides anything. A check tries or reads something, and says what it is needed
for and what to do if it fails. The native engine needs all `required` checks; the others say
what a measurement will lack.
"""

import errno
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from tlstax.collectors.host import settings as host
from tlstax.collectors.host import tracefs
from tlstax.collectors.host.engine_trial import engine_object
from tlstax.collectors.host.features import HOST


class Check(NamedTuple):
    """One check of the host. Of the `uprobe` checks one is enough (see `ready`)."""

    check_id: str
    title: str
    need: str  # required | uprobe | useful | engine | note
    ask: Callable[[], str]
    needed_for: str
    do: str


@dataclass(frozen=True)
class Answer:
    """The result of a check. `ok` is False if the host refuses or lacks it."""

    check_id: str
    title: str
    need: str
    ok: bool
    found: str
    needed_for: str
    do: str


ROOT = "Run as root, or give CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE"

CHECKS = (
    Check(
        "machine",
        "x86-64 or arm64 machine",
        "required",
        host.machine,
        "placing probes by disassembly",
        "Measure on an x86-64 or arm64 host; other machines are not supported",
    ),
    Check(
        "privileges",
        "privileges",
        "required",
        host.privileges,
        "loading programs and attaching probes",
        ROOT,
    ),
    Check(
        "other_processes",
        "other users' processes",
        "useful",
        host.other_processes,
        "reading the server's program and libraries",
        ROOT,
    ),
    Check(
        "lockdown",
        "kernel lockdown",
        "required",
        host.lockdown,
        "BPF programs that read kernel memory",
        "Boot without lockdown=confidentiality",
    ),
    Check(
        "btf",
        "kernel types (BTF)",
        "required",
        host.kernel_types,
        "fitting the programs to this kernel",
        "Use a kernel with CONFIG_DEBUG_INFO_BTF=y (Debian, Ubuntu, RHEL kernels have it)",
    ),
    Check(
        "bpf",
        "bpf() system call",
        "required",
        HOST.bpf_call.ask,
        "everything",
        ROOT + "; in a container also allow bpf in its seccomp profile",
    ),
    Check(
        "libbpf", "libbpf", "required", host.libbpf, "loading the programs", "apt install libbpf1"
    ),
    Check("program", "BPF program", "required", HOST.program_load.ask, "everything", ROOT),
    Check(
        "object",
        "tlstax's own BPF object",
        "required",
        engine_object,
        "the native engine",
        "Run `make bpf`, or install a wheel of `make dist`; then run doctor again",
    ),
    Check(
        "uprobe",
        "uprobes (perf event)",
        "uprobe",
        HOST.uprobe_perf_event.ask,
        "phase boundaries",
        ROOT + ", on a kernel with CONFIG_UPROBE_EVENTS=y",
    ),
    Check(
        "uprobe_multi",
        "uprobes (one multi link)",
        "uprobe",
        HOST.uprobe_multi.ask,
        "phase boundaries at lower cost, faster detach",
        "Nothing: single uprobes are used instead; kernel 6.10 and later support it",
    ),
    Check(
        "tp_btf",
        "typed tracepoints (tp_btf)",
        "required",
        HOST.tp_btf.ask,
        "thread states from the scheduler",
        "Use a kernel with BTF and CONFIG_BPF_EVENTS=y",
    ),
    Check(
        "socket_events",
        "socket events",
        "useful",
        HOST.socket_events.ask,
        "level flow: commands without a probe in each of them",
        "Nothing: level command is recorded instead, with two probes a command",
    ),
    Check(
        "task_storage",
        "task-local storage",
        "required",
        HOST.task_storage.ask,
        "the state of each thread",
        "Use kernel 5.15 or later",
    ),
    Check(
        "ring_buffer",
        "BPF ring buffer",
        "required",
        HOST.ring_buffer.ask,
        "handshake records",
        "Use kernel 5.8 or later",
    ),
    Check(
        "stack_map",
        "stack traces",
        "useful",
        HOST.stack_map.ask,
        "flame graphs",
        "Use a kernel with CONFIG_PERF_EVENTS=y",
    ),
    Check(
        "cpu_clock",
        "CPU clock samples",
        "useful",
        HOST.cpu_clock.ask,
        "what the CPU did inside a phase",
        ROOT,
    ),
    Check(
        "cycles",
        "hardware cycle counter",
        "note",
        HOST.cycles.ask,
        "samples inside interrupts-off code; without it the CPU clock is used",
        "Nothing: virtual machines often have none",
    ),
    Check(
        "thread_clocks",
        "scheduler clocks",
        "useful",
        host.thread_clocks,
        "checking the ledger against independent clocks",
        "Use a kernel with CONFIG_SCHED_INFO=y",
    ),
    Check(
        "kernel_symbols",
        "kernel symbols",
        "useful",
        host.kernel_symbols,
        "names of kernel frames",
        "sysctl kernel.kptr_restrict=1 and run as root",
    ),
    Check(
        "tracefs",
        "tracefs",
        "note",
        host.tracing_files,
        "tracepoints of the bpftrace programs; the native engine does not need it",
        tracefs.REMEDY,
    ),
    Check(
        "perf_event_paranoid",
        "perf_event_paranoid",
        "useful",
        host.perf_paranoia,
        "CPU clock samples",
        ROOT,
    ),
    Check(
        "unprivileged_bpf",
        "unprivileged BPF",
        "note",
        host.unprivileged_bpf,
        "nothing: tlstax runs privileged",
        "Nothing",
    ),
    Check(
        "memlock",
        "locked memory",
        "useful",
        host.locked_memory,
        "BPF maps before kernel 5.11",
        "ulimit -l unlimited",
    ),
    Check(
        "confinement",
        "confinement",
        "note",
        host.confinement,
        "seeing the host's processes",
        "Run on the host, or in its pid namespace (docker run --privileged --pid=host)",
    ),
    Check(
        "bpftrace",
        "bpftrace",
        "engine",
        host.bpftrace,
        "the readable stand-alone probes",
        "apt install bpftrace",
    ),
    Check(
        "perf", "perf", "engine", host.perf, "comparison with perf record", "apt install linux-perf"
    ),
    Check(
        "bcc", "bcc", "engine", host.bcc, "comparison with bcc's tools", "apt install python3-bpfcc"
    ),
)


def examine(check: Check) -> Answer:
    """Run one check; a refusal by the kernel is a result, not an error."""
    do = check.do
    try:
        ok, found = True, check.ask()
    except host.LackError as lack:
        ok, found = False, str(lack)
    except subprocess.TimeoutExpired as error:
        ok, found = False, f"no answer within {error.timeout} s"
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES) and check.need != "note":
            do = ROOT
        # dlopen failures of ctypes have no errno, only a text.
        named = error.strerror or (os.strerror(error.errno) if error.errno else str(error))
        ok, found = False, f"{named} ({error.filename})" if error.filename else named
    return Answer(check.check_id, check.title, check.need, ok, found, check.needed_for, do)


def examine_all() -> list[Answer]:
    """Every check, in order. Takes about a second, most of it in `--version` of other tools."""
    return [examine(check) for check in CHECKS]


def ready(answers: list[Answer]) -> bool:
    """Whether the native engine can run: all required checks, and one kind of uprobe."""
    required = all(answer.ok for answer in answers if answer.need == "required")
    return required and any(answer.ok for answer in answers if answer.need == "uprobe")


def engines(answers: list[Answer]) -> list[str]:
    """Names of the engines that can run here."""
    found = ["native"] if ready(answers) else []
    return found + [answer.check_id for answer in answers if answer.need == "engine" and answer.ok]
