# SPDX-License-Identifier: GPL-2.0-only
"""Files of a process that sees another root directory, such as one in a container.

/proc/PID/root leads to that directory. But the kernel follows an absolute symbolic link below it
from the root directory of whoever opens it, so that a path of a container may end in a file of the
host. Here links lead to where they lead for the process, and `..` never leads out, as with
RESOLVE_IN_ROOT of openat2(2). Each step is made from the directory that was opened before it, so a
process that moves its links meanwhile gains nothing.
"""

import errno
import os
import stat
from pathlib import Path
from typing import Final

_LINKS_MOST: Final = 40  # as the kernel


def open_below(root: str | Path, path: str) -> int:
    """A descriptor of the regular file at `path` for a process with this root directory.

    What is no regular file, such as a pipe or a device, is not opened. Raises OSError.
    """
    descriptor, _ = _walk(root, path)
    try:
        return reopen_regular(descriptor)
    finally:
        os.close(descriptor)


def path_below(root: str | Path, path: str) -> Path:
    """Where this process finds that file or folder: without links below `root`. Raises OSError.

    The process may put a link there before it is opened: check what was opened.
    """
    descriptor, found = _walk(root, path)
    os.close(descriptor)
    return found


def open_regular(path: str | Path) -> int:
    """A descriptor of a regular file of this host; nothing else is opened. Raises OSError."""
    descriptor = _opened(path, os.O_PATH)
    try:
        return reopen_regular(descriptor)
    finally:
        os.close(descriptor)


def reopen_regular(descriptor: int) -> int:
    """A readable descriptor of what an O_PATH descriptor refers to. Raises OSError."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    return os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)


def _walk(root: str | Path, path: str) -> tuple[int, Path]:
    """An O_PATH descriptor, which the caller closes, and the path without links below `root`."""
    opened = [_opened(root, os.O_PATH | os.O_DIRECTORY)]
    names: list[str] = []
    left = path.split("/")[::-1]
    links_count = 0
    try:
        while left:
            name = left.pop()
            if name == "..":
                if names:
                    names.pop()
                    os.close(opened.pop())
            elif name not in ("", "."):
                found = _opened(name, os.O_PATH | os.O_NOFOLLOW, opened[-1])
                opened.append(found)
                names.append(name)
                if not stat.S_ISLNK(os.fstat(found).st_mode):
                    continue
                leads_to = os.readlink("", dir_fd=found)
                links_count += 1
                if links_count > _LINKS_MOST:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                kept = 1 if leads_to.startswith("/") else len(names)
                while len(opened) > kept:
                    os.close(opened.pop())
                del names[kept - 1 :]
                left += leads_to.split("/")[::-1]
        return opened.pop(), Path(root, *names)
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _opened(path: str | Path, flags: int, folder: int | None = None) -> int:
    try:
        return os.open(path, flags | os.O_CLOEXEC, dir_fd=folder)
    except ValueError:  # a NUL byte
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL)) from None
