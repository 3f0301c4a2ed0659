# SPDX-License-Identifier: GPL-2.0-only
"""The target process: its program, its mapped objects, its TLS library.

Everything is read from /proc; nothing is traced or stopped. Process ids are those of the initial
pid namespace, because the BPF programs see those; a process in another pid namespace has a
different id there. A process that cannot be a target raises TlstaxError (exit code TARGET).
"""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.process.mappings import (
    DELETED,
    PROC,
    MappedObject,
    read_maps,
    require_proc,
    root_of,
    seen_inside,
)

TLS_OBJECT = re.compile(r"lib(ssl|gnutls|wolfssl)[-.\w]*\.so[.\d]*", re.ASCII)
INITIAL_PID_NAMESPACE = 0xEFFFFFFC  # its inode, the same on every Linux (PROC_PID_INIT_INO)
MACHINES = frozenset({62, 183})  # EM_X86_64, EM_AARCH64
OTHER_MACHINES = {243: "RISC-V", 21: "PowerPC", 22: "S/390", 258: "LoongArch"}


@dataclass(frozen=True)
class Target:
    """A process that can be measured."""

    pid: int
    name: str  # /proc/PID/comm: any bytes, at most 15
    exe: str  # the path that the process sees
    start_ticks: int  # with the pid, identifies one process uniquely
    objects: tuple[MappedObject, ...]
    tls_objects: tuple[MappedObject, ...] = field(default=())
    own_pid: int = 0  # its pid in its own pid namespace; 0 when not read
    proc: Path = field(default=PROC, compare=False)  # see `process.mappings`

    @property
    def program(self) -> MappedObject:
        """The executable itself."""
        return next(entry for entry in self.objects if entry.path == self.exe)


def may_read_memory(target: Target) -> bool:
    """Whether the kernel permits reading the process's memory; True if it has ended."""
    try:
        os.close(os.open(target.proc / str(target.pid) / "mem", os.O_RDONLY | os.O_CLOEXEC))
    except PermissionError:
        return False
    except OSError:
        return True
    return True


def open_target(pid: int, proc: Path = PROC) -> Target:
    """Read the program and mappings of process `pid`. TlstaxError if it cannot be a target."""
    process = _process(pid, proc)
    if process.state in "ZX":
        why = f"{process.name} has ended and only waits for its parent"
        raise _no_target(pid, why, "Pass the pid of a running process")
    if process.group != pid:
        why = f"it is a thread of process {process.group} ({process.name})"
        raise _no_target(pid, why, f"Pass the pid of the process: {process.group}")
    exe, maps = _read_program(pid, process.name, proc)
    root = root_of(pid, proc)
    exe = seen_inside(exe.removesuffix(DELETED), root)
    if proc == PROC:
        require_64_bit(pid, PROC / str(pid) / "exe")
    objects = read_maps(pid, maps, root=root, proc=proc)
    program = next((entry for entry in objects if entry.path == exe), None)
    if program is None:
        raise _no_target(pid, "its program is not among its mappings", "Name a server process")
    if proc != PROC:
        first = program.segments[0]
        require_64_bit(pid, proc / str(pid) / f"map_files/{first.start:x}-{first.end:x}")
    tls = tuple(entry for entry in objects if TLS_OBJECT.fullmatch(entry.name))
    for entry in objects:
        needed = entry in tls or entry.path == exe or entry.name.startswith("libcrypto")
        if entry.unreachable and needed:
            why = f"{entry.path}: {entry.unreachable}"
            raise _no_target(pid, why, "Run as root, or restart the server")
    own_pid = process.own_pid
    return Target(pid, process.name, exe, process.start_ticks, objects, tls, own_pid, proc)


def require_host_pids() -> None:
    """Raise TlstaxError (exit code HOST) unless pids are those of the host."""
    require_proc("no process can be measured")
    try:
        here = os.stat(PROC / "self/ns/pid").st_ino
    except OSError:
        here = 0
    if here != INITIAL_PID_NAMESPACE:
        raise TlstaxError(
            "tlstax runs in its own pid namespace",
            "the BPF programs use the process ids of the host",
            "Run it on the host, or in a container with the host's pid namespace (--pid=host)",
            ExitCode.HOST,
        )


def _read_program(pid: int, name: str, proc: Path) -> tuple[str, str]:
    """(program, text of maps) of a process."""
    try:
        exe = os.readlink(proc / str(pid) / "exe")
        return exe, (proc / str(pid) / "maps").read_text(errors="surrogateescape")
    except PermissionError:
        raise _no_target(
            pid,
            "it belongs to another user, or has more privileges",
            "Run as root with CAP_SYS_PTRACE, or as the user of the process",
        ) from None
    except FileNotFoundError:
        if (proc / str(pid)).exists():
            raise _no_target(pid, no_program(name), "Name a server process") from None
        raise _gone(pid) from None
    except ProcessLookupError:
        raise _gone(pid) from None


def no_program(name: str = "it") -> str:
    """Why nothing can be measured in a process that /proc lists without a program."""
    return f"{name} has no program: it has just ended, or it is a kernel thread"


def still_runs(target: Target) -> bool:
    """Whether the process still has its program mapped at the same address (no execve since).

    False also if it has ended. Programs loaded at a fixed address cannot be distinguished.
    """
    first = target.program.segments[0]
    wanted = (
        f"{first.start:08x}-{first.end:08x}",
        target.program.device,
        str(target.program.inode),
    )
    try:
        with open(PROC / str(target.pid) / "maps", errors="surrogateescape") as maps:
            lines = [line.split(maxsplit=5) for line in maps]
        same_age = _process(target.pid).start_ticks == target.start_ticks
    except (OSError, TlstaxError):
        return False
    return same_age and any((line[0], line[3], line[4]) == wanted for line in lines)


class _Process(NamedTuple):
    """What /proc shows of a process to any user."""

    name: str
    state: str  # a letter, as ps shows it
    group: int  # the pid of the process; differs from `pid` if that is a thread id
    start_ticks: int  # since boot
    own_pid: int  # its pid in its innermost pid namespace


def _process(pid: int, proc: Path = PROC) -> _Process:
    directory = proc / str(pid)
    try:
        text = (directory / "stat").read_text(errors="surrogateescape")
        status = (directory / "status").read_text(errors="surrogateescape")
    except PermissionError:
        raise _hidden(pid) from None
    except (FileNotFoundError, ProcessLookupError):
        raise _gone(pid) from None
    name, _, rest = text.partition("(")[2].rpartition(") ")
    values = rest.split()
    lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    try:
        own_pid = lines.get("NSpid", str(pid)).split()[-1]
        return _Process(name, values[0], int(lines["Tgid"]), int(values[19]), int(own_pid))
    except (KeyError, IndexError, ValueError):  # texts of another host may be anything
        raise _no_target(
            pid, "its stat and status are not as Linux writes them", "Run tlstax on that host"
        ) from None


def require_64_bit(pid: int, program: Path) -> None:
    """Raise TlstaxError unless the program is for x86-64 or arm64."""
    try:
        with program.open("rb") as file:
            header = file.read(20)
    except OSError as error:
        raise _no_target(
            pid, f"its program cannot be read ({error.strerror})", "Run as root"
        ) from None
    if header[:4] == b"\x7fELF" and header[4] == 1:
        raise _no_target(
            pid, "it is a 32-bit process", "Use a 64-bit build of the server; 32-bit is unsupported"
        )
    machine = int.from_bytes(header[18:20], "little")
    if machine not in MACHINES:
        named = OTHER_MACHINES.get(machine, f"machine {machine}")
        raise _no_target(
            pid,
            f"its program is not for x86-64 or arm64 but for {named}",
            "Use tlstax on a machine of these",
        )


def _gone(pid: int) -> TlstaxError:
    """The error for a process that does not exist or that /proc hides."""
    if pid <= 0:  # kill() would ask for groups of processes
        return _no_target(pid, "the id of a process is above 0", "List processes with ps -e")
    require_proc(f"Process {pid} cannot be measured")
    try:
        os.kill(pid, 0)  # tests for existence; sends no signal
    except PermissionError:
        return _hidden(pid)
    except (ProcessLookupError, OverflowError):
        return _no_target(pid, "there is no such process", "List processes with ps -e")
    return _hidden(pid)


def _hidden(pid: int) -> TlstaxError:
    why = "it exists, but /proc does not show it (mounted with hidepid)"
    return _no_target(pid, why, "Run as root, or as a member of the group that /proc admits (gid=)")


def _no_target(pid: int, why: str, do: str) -> TlstaxError:
    return TlstaxError(f"Process {pid} cannot be measured", why, do, ExitCode.TARGET)
