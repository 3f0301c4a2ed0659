# SPDX-License-Identifier: GPL-2.0-only
"""The files with code mapped into a process, and how to open exactly those files.

A path does not identify a file: the process may see another root directory (chroot, container),
and a package may have replaced the file since it was mapped. Files are opened through
/proc/PID/root, where the process's own paths are valid, or through /proc/PID/map_files, which leads
to the mapped file even if its path has changed. A file opened by path is used only if it is the
mapped one: its device and inode must be those of map_files or, if that is not permitted, those in
maps.

`proc` is where /proc of the process's host is: elsewhere than at /proc, a directory that holds what
another host's recorder told of it (`collectors.remote.image`). Paths of that host mean nothing
here, so files are opened only through its map_files.
"""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.binary.rooted_files import open_regular

if TYPE_CHECKING:
    from tlstax.collectors.binary.elf import Headers

PROC = Path("/proc")
MAPS_LINE = re.compile(
    r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) ([0-9a-f]+:[0-9a-f]+) (\d+) *(.*)"
)
DELETED = " (deleted)"
REPLACED = (
    "the mapped file was deleted or replaced, and can now be opened only through "
    "map_files, which requires CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE"
)
UNREADABLE = "the mapped file cannot be opened"


@dataclass(frozen=True)
class TextSegment:
    """One executable mapping of an object. Addresses are the process's."""

    start: int
    end: int
    file_offset: int


@dataclass(frozen=True)
class MappedObject:
    """A file with code mapped into the process."""

    path: str  # the path that the process sees
    open_path: str  # the path that opens it in this process; "" if none does
    device: str  # major:minor in hex, as in /proc/PID/maps
    inode: int
    build_id: str
    deleted: bool
    segments: tuple[TextSegment, ...]
    headers: "Headers | None" = field(default=None, compare=False, repr=False)
    file_identity: tuple[int, int] = field(default=(0, 0), compare=False)  # st_dev, st_ino
    unreachable: str = ""  # why its code cannot be read, as part of a sentence; "" if it can
    modified_ns: int = field(default=0, compare=False)

    @property
    def name(self) -> str:
        """The file's own name, without its directory."""
        return self.path.rpartition("/")[2]

    @property
    def is_unchanged(self) -> bool:
        """Whether its path still leads to what was read; inodes are used again."""
        with suppress(OSError):
            found = os.stat(self.open_path)
            return self.file_identity == (found.st_dev, found.st_ino) and (
                self.modified_ns == found.st_mtime_ns
            )
        return False

    def address_of(self, file_offset: int | None) -> int | None:
        """The process address of a file offset; None if that part is not mapped as code."""
        if file_offset is None:
            return None
        for segment in self.segments:
            if 0 <= file_offset - segment.file_offset < segment.end - segment.start:
                return segment.start + file_offset - segment.file_offset
        return None


def require_proc(what: str) -> None:
    """Raise TlstaxError (HOST), saying `what` fails, unless /proc shows at least this process."""
    if not (PROC / "self").exists():
        raise TlstaxError(
            what,
            f"{PROC} is empty: the proc file system is not mounted there",
            "Mount it (mount -t proc proc /proc), or run tlstax where it is mounted",
            ExitCode.HOST,
        )


def root_of(pid: int, proc: Path = PROC) -> str:
    """The process's root directory as seen by this process.

    "/" if the process has another mount namespace, or if it cannot be read.
    """
    with suppress(OSError):
        return os.readlink(proc / str(pid) / "root")
    return "/"


def seen_inside(path: str, root: str) -> str:
    """A path as seen by the process with that root directory."""
    return path.removeprefix(root) if path.startswith(f"{root}/") else path


def open_mapped(mapped: MappedObject) -> int:
    """A file descriptor of the mapped file, which the caller closes.

    Raises TlstaxError (exit code TARGET) if its path now leads to another file.
    """
    try:
        descriptor = open_regular(mapped.open_path)
    except OSError as error:
        raise _lost(mapped, error.strerror or str(error)) from None
    found = os.fstat(descriptor)
    if (found.st_dev, found.st_ino) != mapped.file_identity:
        os.close(descriptor)
        raise _lost(mapped, "it was replaced after the process was examined")
    return descriptor


def _lost(mapped: MappedObject, why: str) -> TlstaxError:
    return TlstaxError(
        f"{mapped.path} cannot be probed", why, "Attach to the process again", ExitCode.TARGET
    )


def read_maps(
    pid: int,
    maps: str,
    known: Sequence[MappedObject] = (),
    root: str = "/",
    proc: Path = PROC,
) -> tuple[MappedObject, ...]:
    """The objects with executable file mappings in the text of /proc/PID/maps.

    Files in `known` are not read again. `root`: the process's root directory, see `root_of`.
    """
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
        else:
            objects.append(_read_object(proc / str(pid), path, root, device, inode, mapped))
    return tuple(objects)


def _read_object(
    process: Path, path: str, root: str, device: str, inode: int, mapped: list[TextSegment]
) -> MappedObject:
    from tlstax.collectors.binary.elf import Elf  # imported here: attach must stay small

    named = path.removesuffix(DELETED)
    inside = seen_inside(named, root)
    open_path, identity = _open_path(process, (inside, named), device, inode, mapped[0])
    headers, modified_ns = None, 0
    unreachable = "" if open_path else UNREADABLE
    if unreachable and path.endswith(DELETED):
        unreachable = REPLACED
    if open_path:
        try:
            modified_ns = _modified_ns(open_path)  # before it is read
            with Elf(open_path) as elf:
                headers = elf.headers
        except TlstaxError:
            open_path = ""  # not an ELF file (a JIT's dump, data mapped executable)
    return MappedObject(
        inside,
        open_path,
        device,
        inode,
        headers.build_id if headers else "",
        path.endswith(DELETED),
        tuple(mapped),
        headers,
        identity,
        unreachable,
        modified_ns,
    )


def _modified_ns(path: str) -> int:
    with suppress(OSError):
        return os.stat(path).st_mtime_ns
    return 0


def read_special_maps(pid: int, proc: Path = PROC) -> list[tuple[int, int, str]]:
    """(start, end, name) of executable mappings without a file: [vdso], generated code."""
    special = []
    with suppress(OSError):
        maps = (proc / str(pid) / "maps").read_text(errors="surrogateescape")
        for line in maps.split("\n"):
            match = MAPS_LINE.fullmatch(line)
            if match is not None and "x" in match[3] and match[6] == "0":
                special.append((int(match[1], 16), int(match[2], 16), match[7] or "[anonymous]"))
    return special


def _open_path(
    process: Path, names: tuple[str, str], device: str, inode: int, segment: TextSegment
) -> tuple[str, tuple[int, int]]:
    """A path that opens the mapped file in this process, and its (st_dev, st_ino); "" if none.

    The kernel prints paths as seen from the reader's root where it can (a chroot), else as seen in
    the process's own mount namespace (a container); so both names are tried.
    """
    inside, named = names
    by_map = f"{process}/map_files/{segment.start:x}-{segment.end:x}"
    mapped: tuple[int, int] | None = None
    try:
        real = os.stat(by_map)
        os.close(open_regular(by_map))
        mapped = (real.st_dev, real.st_ino)
    except OSError:
        by_map = ""  # needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE
    if process.parent != PROC:  # its own link has the name of the file
        return by_map and os.readlink(by_map), mapped or (0, 0)
    for candidate in (f"{process}/root{inside}", named, f"{process}/exe"):
        try:
            seen = os.stat(candidate)
        except OSError:
            continue
        number = f"{os.major(seen.st_dev):02x}:{os.minor(seen.st_dev):02x}"
        found = (seen.st_dev, seen.st_ino)
        if found == mapped or (mapped is None and (number, seen.st_ino) == (device, inode)):
            return candidate, found
    return by_map, mapped or (0, 0)
