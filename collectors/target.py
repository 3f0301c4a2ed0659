# SPDX-License-Identifier: GPL-2.0-only
"""The process that is asked about: its program, its mapped objects, its TLS library.

Everything is read from /proc; nothing is traced or stopped. Files are opened the way the process
sees them: through /proc/PID/root, so that chroots and containers resolve, or through
/proc/PID/map_files, which still reaches a binary that was deleted or replaced after the start. A
file counts as the mapped one only if its inode is the mapped inode.

Every way in which a process cannot be a target raises TlstaxError (exit code TARGET).
"""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tlstax import ExitCode, TlstaxError

if TYPE_CHECKING:
    from tlstax.collectors.elf import Headers

PROC = Path("/proc")
TLS_OBJECT = re.compile(r"lib(ssl|gnutls|wolfssl)[-.\w]*\.so[.\d]*", re.ASCII)
MAPS_LINE = re.compile(
    r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) ([0-9a-f]+:[0-9a-f]+) (\d+) *(.*)"
)
DELETED = " (deleted)"


@dataclass(frozen=True)
class TextSegment:
    """One executable mapping of an object. Addresses are the process's."""

    start: int
    end: int
    file_offset: int


@dataclass(frozen=True)
class MappedObject:
    """A file of which the process has code mapped."""

    path: str  # as the process names it
    open_path: str  # where it can be opened from here; "" when it cannot
    device: str  # major:minor in hex, as in /proc/PID/maps
    inode: int
    build_id: str
    deleted: bool
    segments: tuple[TextSegment, ...]
    headers: "Headers | None" = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The file's own name, without its directory."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class Target:
    """A process that can be measured."""

    pid: int
    name: str  # the kernel's name of the main thread: any bytes, at most 15
    exe: str
    start_ticks: int  # with the pid, this names one process for ever
    objects: tuple[MappedObject, ...]
    tls_objects: tuple[MappedObject, ...] = field(default=())

    @property
    def program(self) -> MappedObject:
        """The executable itself."""
        return next(entry for entry in self.objects if entry.path == self.exe)


def open_target(pid: int) -> Target:
    """Read what the process `pid` is made of. Raises TlstaxError when it cannot be a target."""
    name, state, start_ticks = _status(pid)
    if state in "ZX":
        raise _no_target(pid, f"{name} has ended and only waits for its parent", "Name a live one")
    exe_link = PROC / str(pid) / "exe"
    try:
        exe = os.readlink(exe_link)
        maps = (PROC / str(pid) / "maps").read_text(errors="surrogateescape")
    except PermissionError:
        raise _no_target(
            pid,
            "it belongs to another user, or has more privileges",
            "Run as root with CAP_SYS_PTRACE, or as the user of the process",
        ) from None
    except FileNotFoundError:
        if _exists(pid):
            raise _no_target(
                pid, f"{name} is a kernel thread and has no program", "Name a server process"
            ) from None
        raise _gone(pid) from None
    except ProcessLookupError:
        raise _gone(pid) from None
    exe = exe.removesuffix(DELETED)
    require_64_bit(pid, exe_link)
    objects = read_maps(pid, maps)
    if not any(entry.path == exe for entry in objects):
        raise _no_target(pid, "its program is not among its mappings", "Name a server process")
    tls = tuple(entry for entry in objects if TLS_OBJECT.fullmatch(entry.name))
    return Target(pid, name, exe, start_ticks, objects, tls)


def find_by_name(name: str) -> int:
    """The pid of the one process of that name (as in /proc/PID/comm, or its program's file name).

    Threads are not looked at. Raises TlstaxError when there is none, or more than one.
    """
    found = []
    for entry in sorted(int(e.name) for e in PROC.iterdir() if e.name.isdigit()):
        if entry != os.getpid() and name in _names(entry):
            found.append(entry)
    if len(found) == 1:
        return found[0]
    if not found:
        raise TlstaxError(
            f"No process is called {name}",
            "neither a process name nor a program's file name is the same",
            "Look it up with ps -e, and name it or give its pid",
            ExitCode.TARGET,
        )
    lines = ", ".join(f"{pid} ({_command_line(pid)})" for pid in found[:8])
    more = f" and {len(found) - 8} more" if len(found) > 8 else ""
    raise TlstaxError(
        f"{len(found)} processes are called {name}",
        f"they are {lines}{more}",
        "Give the pid of the one you mean",
        ExitCode.TARGET,
    )


def read_maps(pid: int, maps: str, known: Sequence[MappedObject] = ()) -> tuple[MappedObject, ...]:
    """The objects with executable file mappings in the text of /proc/PID/maps.

    Files among the `known` ones are not read again.
    """
    from tlstax.collectors.elf import Elf  # only here: attach itself must stay small

    segments: dict[tuple[str, int, str], list[TextSegment]] = {}
    for line in maps.split("\n"):
        match = MAPS_LINE.fullmatch(line)
        if match is None or "x" not in match[3] or match[6] == "0":
            continue
        start, end, offset = int(match[1], 16), int(match[2], 16), int(match[4], 16)
        key = (match[5], int(match[6]), match[7])
        segments.setdefault(key, []).append(TextSegment(start, end, offset))
    objects = []
    for (device, inode, path), mapped in segments.items():
        before = next((k for k in known if (k.device, k.inode) == (device, inode)), None)
        if before is not None:
            objects.append(replace(before, segments=tuple(mapped)))
            continue
        open_path = _open_path(pid, path, device, inode, mapped[0])
        headers = None
        if open_path:
            try:
                with Elf(open_path) as elf:
                    headers = elf.headers
            except TlstaxError:
                open_path = ""  # not an ELF file (a JIT's dump, data mapped executable)
        objects.append(
            MappedObject(
                path.removesuffix(DELETED),
                open_path,
                device,
                inode,
                headers.build_id if headers else "",
                path.endswith(DELETED),
                tuple(mapped),
                headers,
            )
        )
    return tuple(objects)


def still_runs(target: Target) -> bool:
    """Whether the process still has its program mapped where it was: it did not execute another.

    False also when it is gone. Programs that are loaded at a fixed address are taken for the same.
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
        same_age = _status(target.pid)[2] == target.start_ticks
    except (OSError, TlstaxError):
        return False
    return same_age and any((line[0], line[3], line[4]) == wanted for line in lines)


def read_special_maps(pid: int) -> list[tuple[int, int, str]]:
    """(start, end, name) of executable mappings without a file: [vdso], generated code."""
    special = []
    with suppress(OSError):
        maps = (PROC / str(pid) / "maps").read_text(errors="surrogateescape")
        for line in maps.split("\n"):
            match = MAPS_LINE.fullmatch(line)
            if match is not None and "x" in match[3] and match[6] == "0":
                special.append((int(match[1], 16), int(match[2], 16), match[7] or "[anonymous]"))
    return special


def _open_path(pid: int, path: str, device: str, inode: int, segment: TextSegment) -> str:
    """A path that opens the mapped file itself from here, "" if there is none.

    The kernel prints paths as seen from the reader's root where it can (a chroot), else as seen in
    the process's own mount namespace (a container); so both are tried.
    """
    named = path.removesuffix(DELETED)
    by_map = f"{PROC}/{pid}/map_files/{segment.start:x}-{segment.end:x}"
    mapped: tuple[object, int] | None = None
    try:
        real = os.stat(by_map)
        os.close(os.open(by_map, os.O_RDONLY | os.O_CLOEXEC))
        mapped = (real.st_dev, real.st_ino)
    except OSError:
        by_map = ""  # needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE
    for candidate in (f"{PROC}/{pid}/root{named}", named):
        try:
            seen = os.stat(candidate)
        except OSError:
            continue
        number = f"{os.major(seen.st_dev):02x}:{os.minor(seen.st_dev):02x}"
        if mapped == (seen.st_dev, seen.st_ino):
            return candidate
        if mapped is None and (number, seen.st_ino) == (device, inode):
            return candidate
    return by_map


def _status(pid: int) -> tuple[str, str, int]:
    """(name, state letter, start time in clock ticks since boot) of a process."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="surrogateescape")
    except (FileNotFoundError, ProcessLookupError):
        raise _gone(pid) from None
    name, _, rest = text.partition("(")[2].rpartition(") ")
    values = rest.split()
    return name, values[0], int(values[19])


def _exists(pid: int) -> bool:
    return (PROC / str(pid)).exists()


def require_64_bit(pid: int, program: Path) -> None:
    """Raise TlstaxError unless the program is for x86-64."""
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
    if header[18:20] != b"\x3e\x00":
        raise _no_target(pid, "its program is not for x86-64", "Use tlstax on an x86-64 machine")


def _names(pid: int) -> set[str]:
    """The names a process may be called by; empty for kernel threads and zombies."""
    try:
        comm = (PROC / str(pid) / "comm").read_text(errors="surrogateescape").rstrip("\n")
        command = _arguments(pid)
    except OSError:
        return set()
    return {comm, os.path.basename(command[0])} if command else set()


def _arguments(pid: int) -> list[str]:
    text = (PROC / str(pid) / "cmdline").read_text(errors="surrogateescape")
    return text.split("\0") if text else []


def _command_line(pid: int) -> str:
    try:
        text = " ".join(_arguments(pid)).strip()
    except OSError:
        return "ended"
    printable = text.encode("ascii", "replace").decode()
    return printable if len(printable) <= 60 else printable[:57] + "..."


def _gone(pid: int) -> TlstaxError:
    return _no_target(pid, "there is no such process", "Look it up with ps -e")


def _no_target(pid: int, why: str, do: str) -> TlstaxError:
    return TlstaxError(f"Process {pid} cannot be measured", why, do, ExitCode.TARGET)
