# SPDX-License-Identifier: GPL-2.0-only
"""The poor man's profiler: the stack of each thread, from snapshots of the stopped server.

For hosts where BPF is not allowed. pt-pmp stops the whole server with gdb for every snapshot, which
clients notice. So it runs only with --allow-pause, and the duration of the pause is measured from
outside and reported with every result.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.sources.pmp.text import Stacks, parse
from tlstax.collectors.sources.stacks.stack_phases import BACKGROUND, StackPhases

FIRST_ID: Final = 1 << 41
"""Ids of frames, stacks and windows begin here, above those of the native engine."""
KINDS: Final = ("running", "lock", "io", "network", "idle", "wait")
"""What a thread was doing: `wait` is a wait that nothing in its stack explains."""
_NETWORK: Final = frozenset(
    [
        "poll",
        "ppoll",
        "select",
        "pselect",
        "epoll_wait",
        "epoll_pwait",
        "recv",
        "recvfrom",
        "recvmsg",
        "read",
        "send",
        "sendto",
        "sendmsg",
        "write",
        "accept",
        "accept4",
    ]
)
_DISK: Final = frozenset(
    [
        "fsync",
        "fdatasync",
        "sync_file_range",
        "pread",
        "pread64",
        "pwrite",
        "pwrite64",
        "preadv",
        "pwritev",
        "preadv64",
        "pwritev64",
        "open",
        "openat",
        "close",
    ]
)
_SLEEP: Final = (
    "futex", "pthread_cond", "sigwait", "sigtimedwait", "nanosleep", "io_getevents",
    "os_aio_linux_", "lll_lock_wait", "pthread_mutex_lock", "sem_wait", "pause", "syscall",
)  # fmt: skip
_STATE: Final = {"lock": "blocked_lock", "io": "blocked_disk", "network": "blocked_network",
                 "idle": "blocked_network", "wait": "blocked_futex"}  # fmt: skip
_POLL_S: Final = 0.001
_SNAPSHOT_PATIENCE_S: Final = 120
_STOPPED: Final = "tT"
"""States of proc(5): stopped by a tracer, stopped by a signal."""


class Finding(NamedTuple):
    """The meaning of one stack."""

    kind: str
    phase: str

    @property
    def state(self) -> str:
        """The state of the capture."""
        return "on_cpu" if self.kind == "running" else _STATE[self.kind]


@dataclass(frozen=True)
class Snapshot:
    """Threads by stack, and how long the server was stopped for it."""

    stacks: Stacks
    iterations_count: int
    start_ns: int
    end_ns: int
    pause_ns: int
    """How long the server was stopped, in total."""


def classify(functions: Sequence[str], phases: StackPhases) -> Finding:
    """Lock, I/O, network, idle or running, and the phase, of one stack (leaf first)."""
    phase = phases.phase(functions)
    if phases.wait_state(functions):
        kinds = {state: kind for kind, state in _STATE.items() if kind != "idle"}
        return Finding(kinds.get(phases.wait_state(functions), "wait"), phase)
    top = [_wrapper(name) for name in functions[:4]]
    # A background thread, or one between commands, that waits is waiting for work.
    is_free = phase in (BACKGROUND, "record_read", "unknown")
    if top and top[0] in _DISK:
        return Finding("io", phase)
    if top and top[0] in _NETWORK:
        return Finding("idle", "idle") if is_free else Finding("network", phase)
    if any(name.startswith(_SLEEP) for name in top):
        if any("mutex_lock" in name or "rwlock" in name or "lll_lock" in name for name in top):
            return Finding("lock", phase)
        return Finding("idle", "idle") if is_free else Finding("wait", phase)
    return Finding("running", phase)


def to_rows(snapshot: Snapshot, phases: StackPhases) -> list[schema.Row]:
    """One window of the engine `pmp`: each thread seen stands for one sample."""
    each_ns = (snapshot.end_ns - snapshot.start_ns) // max(snapshot.iterations_count, 1)
    rows: list[schema.Row] = [
        schema.Window(FIRST_ID, None, snapshot.start_ns, snapshot.end_ns, 1, "sample", "pmp")
    ]
    frames: dict[str, int] = {}
    for number, (functions, count) in enumerate(snapshot.stacks.items(), start=FIRST_ID):
        for name in functions:
            if name not in frames:
                frames[name] = FIRST_ID + len(frames)
                rows.append(schema.Frame(frames[name], "", "", 0, name, 0, "pmp", ""))
        rows.append(schema.Stack(number, " ".join(str(frames[name]) for name in functions)))
        kind, phase = found = classify(functions, phases)
        if kind == "running":
            rows.append(schema.SampleStack(FIRST_ID, phase, -1, number, None, count))
        else:
            times = (count, count * each_ns)
            rows.append(schema.OffcpuStack(FIRST_ID, phase, found.state, -1, number, None, *times))
    return rows


def count_kinds(stacks: Stacks, phases: StackPhases) -> Counter[str]:
    """The number of threads by what they were doing."""
    kinds: Counter[str] = Counter()
    for functions, count in stacks.items():
        kinds[classify(functions, phases).kind] += count
    return kinds


def take(pid: int, iterations_count: int, interval_s: int, *, allow_pause: bool) -> Snapshot:
    """Run pt-pmp on a live server. Raises TlstaxError unless pauses are allowed."""
    if not allow_pause:
        raise TlstaxError(
            "pt-pmp was not run",
            "it stops the whole server for seconds at every snapshot",
            "Add --allow-pause if clients may wait that long, or read a saved file with --from",
            ExitCode.USAGE,
        )
    program = shutil.which("pt-pmp")
    if program is None or shutil.which("gdb") is None:
        raise TlstaxError(
            "pt-pmp cannot run",
            f"{'pt-pmp' if program is None else 'gdb'} is not on the PATH",
            "Install the packages percona-toolkit and gdb",
            ExitCode.HOST,
        )
    if not Path(f"/proc/{pid}").exists():
        raise TlstaxError(
            f"process {pid} not found", "it does not exist", "Check the process id", ExitCode.TARGET
        )
    watch = PauseWatch(pid)
    start_ns = time.monotonic_ns()
    command = [program, "--pid", str(pid), "--iterations", str(iterations_count)]
    with watch:
        process = subprocess.Popen(
            [*command, "--interval", str(interval_s)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, errors="replace", start_new_session=True,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "HOME": "/"},
        )  # fmt: skip
        patience_s = iterations_count * (interval_s + _SNAPSHOT_PATIENCE_S)
        try:
            printed, complaints = process.communicate(timeout=patience_s)
        except subprocess.TimeoutExpired as error:
            raise TlstaxError(
                "pt-pmp did not end",
                f"it was still running after {patience_s} s",
                "The server runs again; check what gdb was waiting for",
                ExitCode.FAILED,
            ) from error
        finally:
            # gdb stops the server; when gdb has ended, the kernel lets it run again.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with process:  # its pipes are closed however it ended
                process.wait()
    end_ns = time.monotonic_ns()
    if process.returncode != 0:
        raise TlstaxError(
            "pt-pmp failed",
            (complaints.strip() or "no reason given").split("\n")[-1],
            "Run it by hand for details",
            ExitCode.FAILED,
        )
    return Snapshot(parse(printed), iterations_count, start_ns, end_ns, watch.pause_ns)


class PauseWatch:
    """Measures how long a process is stopped, by reading its state 1000 times a second."""

    def __init__(self, pid: int) -> None:
        self._path = f"/proc/{pid}/stat"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.pause_ns = 0

    def __enter__(self) -> "PauseWatch":
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        last_ns, was_stopped = time.monotonic_ns(), False
        while not self._over.wait(_POLL_S):
            now_ns, is_stopped = time.monotonic_ns(), False
            with contextlib.suppress(OSError), open(self._path, encoding="ascii") as stat:
                is_stopped = stat.read().rpartition(")")[2].split()[0] in _STOPPED
            if was_stopped:
                self.pause_ns += now_ns - last_ns
            last_ns, was_stopped = now_ns, is_stopped


def _wrapper(name: str) -> str:
    """The name of a libc function without prefixes of variants: `poll` for `__GI___poll`."""
    plain = name.partition("(")[0].partition("@")[0]
    return plain.removeprefix("__GI_").lstrip("_").removeprefix("libc_").removesuffix("_nocancel")
