# SPDX-License-Identifier: GPL-2.0-only
"""Files that are kept for the next run: private, whole or not there."""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tlstax.collectors.capture.files import put_whole

BYTES_MOST: Final = 1 << 26
_LOOK_AGAIN_S: Final = 0.05


def keep_file(path: Path, content: bytes, folder_mode: int = 0o700) -> None:
    """Put a file there that only its owner can read; an earlier one is replaced at once.

    `folder_mode`: of its folder, if that is made. Raises OSError; then nothing is left of the new
    one.
    """
    path.parent.mkdir(mode=folder_mode, parents=True, exist_ok=True)
    put_whole(path, content, 0o600)


def read_kept(path: Path) -> bytes:
    """A file that this user, or root, has kept; a link, a pipe or a device is never read.

    Raises OSError, also if others could have written it, or if it is larger than BYTES_MOST.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(path, flags), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size > BYTES_MOST:
            raise OSError(errno.EINVAL, "it is not a file that was kept")
        if found.st_uid not in (0, os.geteuid()) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise OSError(errno.EPERM, "others can write it")
        return file.read(BYTES_MOST)


@contextmanager
def turn(path: Path, wait_s: float) -> Iterator[bool]:
    """Let processes that would make the same file follow each other; whether this one may begin.

    It holds a lock on `path`, a file for nothing else, which stays. The kernel releases the lock of
    a process that dies. False: the folder cannot be written, or another process still held the lock
    after `wait_s`. Then no lock is held.
    """
    descriptor = -1
    try:
        with suppress(OSError):
            descriptor = _open_lock(path)
        yield descriptor >= 0 and _is_locked(descriptor, wait_s)
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _open_lock(path: Path) -> int:
    """Open or create a lock file that only its owner can open; raises OSError for a link."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a lock file")
    return descriptor


def _is_locked(descriptor: int, wait_s: float) -> bool:
    """Lock a file within some time; False also where its file system has no locks."""
    end = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(_LOOK_AGAIN_S)
        except OSError:
            return False
        else:
            return True
