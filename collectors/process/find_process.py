# SPDX-License-Identifier: GPL-2.0-only
"""Finds the one process of a given name, unit, container or pod."""

import os
from itertools import pairwise
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.process.control_groups import ID_LEAST, Group, group_text
from tlstax.collectors.process.mappings import PROC, require_proc

_TELLING: Final = (
    "--basedir", "--bind-address", "--datadir", "--defaults-extra-file", "--defaults-file",
    "--defaults-group-suffix", "--port", "--server-id", "--server_id", "--socket",
)  # fmt: skip
"""Options that tell servers of one name apart; any other may hold a password."""


def find_by_name(name: str, proc: Path = PROC) -> int:
    """The pid of the one process of that name (as in /proc/PID/comm, or its program's file name).

    Threads are ignored. Raises TlstaxError when there is none, or more than one.
    """
    return find_in_group(Group(), name, proc)


def find_in_group(group: Group, name: str, proc: Path = PROC, *, may_be_all: bool = False) -> int:
    """The pid of the one process of a unit, container or pod, and of that name if it is not "".

    The process that holds a pod's namespaces (pause) does not count. `may_be_all`: the command has
    --all. Raises TlstaxError when there is none, or more than one.
    """
    found = find_all(group, name, proc)
    if len(found) == 1:
        return found[0]
    of_group = f" of {group}" if any(group) else ""
    lines = ", ".join(
        f"{pid} ({_command_line(proc / str(pid))}{_unit(proc / str(pid))})" for pid in found[:8]
    )
    more = f" and {len(found) - 8} more" if len(found) > 8 else ""
    do = "Pass the pid of one of them" if name else "Add --name, or pass the pid of one of them"
    raise TlstaxError(
        f"{len(found)} processes{of_group} are called {name}"
        if name
        else f"{len(found)} processes belong to {group}",
        f"they are {lines}{more}",
        f"{do}, or --all to record each of them" if may_be_all else do,
        ExitCode.TARGET,
    )


def find_all(group: Group, name: str, proc: Path = PROC) -> list[int]:
    """All processes of which `find_in_group` finds the one. Raises TlstaxError if there is none."""
    named = pids_of_name(name, proc) if name else _programs(proc)
    found = [pid for pid in named if group.holds(group_text(proc / str(pid)))]
    if found:
        return found
    of_group = f" of {group}" if any(group) else ""
    why = "no process name and no program file name matches"
    if of_group and named:
        why = f"no process{f' called {name}' if name else ''} is in such a control group"
    if group.has_short_id:
        why += f"; an id needs at least {ID_LEAST} digits"
    raise TlstaxError(
        f"No process{of_group} is called {name}" if name else f"No process belongs to {group}",
        f"{why}{_hidden(proc)}",
        "List processes with ps -e -o pid,comm,cgroup, then pass what you see there or the pid"
        if of_group
        else "List processes with ps -e, then pass the name or the pid",
        ExitCode.TARGET,
    )


def _programs(proc: Path) -> list[int]:
    """The pids of all processes but this one, kernel threads, zombies and pods' pause."""
    if proc == PROC:
        require_proc("No process is found")
    own = os.getpid() if proc == PROC else 0
    pids = sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdigit())
    names = {pid: _names(proc / str(pid)) for pid in pids if pid != own}
    return [pid for pid, found in names.items() if found and "pause" not in found]


def pids_of_name(name: str, proc: Path = PROC) -> list[int]:
    """The pids of all processes of that name, but for this one."""
    if proc == PROC:
        require_proc(f"No process called {name} is found")
    own = os.getpid() if proc == PROC else 0
    pids = sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdigit())
    return [pid for pid in pids if pid != own and name in _names(proc / str(pid))]


def pids_in_group(group: Group, name: str, proc: Path = PROC) -> list[int]:
    """Those of a unit, container or pod; `Group()` is no restriction."""
    return [pid for pid in pids_of_name(name, proc) if group.holds(group_text(proc / str(pid)))]


def _names(process: Path) -> set[str]:
    """The names that select a process; empty for kernel threads and zombies."""
    try:
        comm = (process / "comm").read_text(errors="surrogateescape").rstrip("\n")
        command = _arguments(process)
    except OSError:
        return set()
    return {comm, os.path.basename(command[0])} if command else set()


def _arguments(process: Path) -> list[str]:
    text = (process / "cmdline").read_text(errors="surrogateescape")
    return text.split("\0") if text else []


def _command_line(process: Path) -> str:
    """The program and what tells it from others; never an argument that could be a secret."""
    try:
        program, *arguments = _arguments(process) or [""]
    except OSError:
        return "ended"
    told = []
    for word, following in pairwise([*arguments, ""]):
        if word.partition("=")[0] in _TELLING:
            told += [word] if "=" in word else [word, following]
    # Of each its first word: a title, or an argument quoted by mistake, goes on with what it likes.
    text = _printable(" ".join(word.split()[0] for word in (program, *told) if word.strip()))
    return text if len(text) <= 100 else text[:97] + "..."


def _unit(process: Path) -> str:
    """The service or container of a process, from its control group."""
    groups = group_text(process)
    for line in groups.splitlines():
        hierarchy, _, path = line.partition(":")[2].partition(":")
        name = os.path.basename(path)
        if hierarchy in ("", "name=systemd") and name:
            return f", in {_printable(name)}"
    return ""


def _printable(text: str) -> str:
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in text)


def _hidden(proc: Path) -> str:
    """A note for the error if /proc does not show process 1."""
    if (proc / "1").exists() or proc != PROC:
        return ""
    return "; /proc hides the processes of other users here (hidepid)"


def open_pidfd(pid: int) -> int:
    """A descriptor that becomes readable when the process ends. Raises TlstaxError (TARGET)."""
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        raise TlstaxError(
            f"process {pid} cannot be watched",
            error.strerror or str(error),
            "check that it is still running",
            ExitCode.TARGET,
        ) from error
