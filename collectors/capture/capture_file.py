# SPDX-License-Identifier: GPL-2.0-only
"""The file of a capture that is being written: created, locked, put in the place of an earlier one.

An earlier capture stays until the new one is worth keeping: the new file lies beside it until then.
Who writes a capture holds a lock on it (flock), so that two recordings cannot replace each other.
If a program reads a capture and does not end, a copy takes the capture's place in the same way.
"""

import errno
import fcntl
import os
import signal
import stat
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.schema import APPLICATION_ID

_INTERRUPTS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FLOCK: Final = "hhqqi4x"  # struct flock of 64-bit Linux
_SHARED_FIRST: Final = 0x40000002  # the bytes that a reader locks, by SQLite's file format
_SHARED_SIZE: Final = 510


class CaptureFile:
    """A new file that only its owner can read. It is locked until `close`."""

    def __init__(self, path: Path, overwrite: bool) -> None:
        """Create it at `path`, or beside the capture that it is to replace.

        Raises TlstaxError: USAGE if the file exists (with `overwrite`: if it is not a capture, or
        another recording writes it), IO if it cannot be created.
        """
        self.path = path
        self.current = path
        self._earlier = _locked_capture(path) if overwrite else -1
        self._lock = -1
        self._is_copy = False
        try:
            if self._earlier >= 0:
                self.current = path.with_name(f"{path.name}.{os.getpid()}.new")
            self._lock = _create_private(self.current)
        except BaseException:
            self.close()
            raise

    def take_place(self) -> bool:
        """Put it in the place of the earlier capture; False: it is there.

        Nobody may have it open, as SQLite remembers the name of its journal. Raises TlstaxError
        (IO).
        """
        if self.current == self.path:
            return False
        try:
            self._require_unreplaced()
            # A journal that a recording left behind belongs to its file, not to the new one.
            Path(f"{self.path}-journal").unlink(missing_ok=True)
            self.current.rename(self.path)
        except OSError as error:
            raise self._place_error(error) from error
        self.current = self.path
        self._is_copy = False
        os.close(self._earlier)
        self._earlier = -1
        return True

    def _require_unreplaced(self) -> None:
        """Raise OSError if the name is another file's by now. A file that was removed is none."""
        with suppress(FileNotFoundError):
            if not os.path.samestat(os.fstat(self._earlier), self.path.lstat()):
                raise FileExistsError(errno.EEXIST, "another file has this name by now")

    def _place_error(self, error: OSError) -> TlstaxError:
        failure = write_error(self.path, error)
        if not self._is_copy:
            return failure
        action = f"the whole capture is {self.current}: move it where it is wanted"
        return TlstaxError(failure.what, failure.why, action, ExitCode.IO)

    def begin_copy(self) -> None:
        """Create an empty file beside it, to which `take_place` gives the name of the capture.

        The present one stays as it is until then. Raises TlstaxError (IO, USAGE).
        """
        if self.current != self.path:
            raise write_error(self.path, OSError(errno.EBUSY, "it is not in its place yet"))
        copy = self.path.with_name(f"{self.path.name}.{os.getpid()}.{os.urandom(4).hex()}.new")
        lock = _create_private(copy)
        self._earlier, self._lock, self.current = self._lock, lock, copy
        self._is_copy = True

    def drop_copy(self) -> None:
        """Undo `begin_copy`."""
        self.remove()
        os.close(self._lock)
        self._lock, self._earlier, self.current = self._earlier, -1, self.path
        self._is_copy = False

    def reader(self) -> str:
        """Who reads it by SQLite, such as "process 4711 (sqlite3)": one of them."""
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, _SHARED_FIRST, _SHARED_SIZE, 0)
        pid = 0
        with suppress(OSError):  # a file system without locks
            pid = struct.unpack(_FLOCK, fcntl.fcntl(self._lock, fcntl.F_GETLK, asked))[-1]
        if pid <= 0:  # it ended just now, or is outside of this container
            return "another program"
        name = ""
        with suppress(OSError):
            name = f" ({Path(f'/proc/{pid}/comm').read_text(errors='replace').strip()})"
        return f"process {pid}{name}"

    def remove(self) -> None:
        """Remove it; an earlier capture that it has not replaced stays."""
        for name in (f"{self.current}-journal", str(self.current)):
            with suppress(OSError):
                os.unlink(name)

    def close(self) -> None:
        """Release the locks. Closing twice does nothing."""
        for descriptor in (self._lock, self._earlier):
            if descriptor >= 0:
                os.close(descriptor)
        self._lock = self._earlier = -1


def require_place(path: Path, overwrite: bool) -> None:
    """Raise what CaptureFile would, before anything is done for a capture; nothing is left."""
    with without_interrupts():
        file = CaptureFile(path, overwrite)
        file.remove()
        file.close()


@contextmanager
def without_interrupts() -> Iterator[list[int]]:
    """Ctrl-C and its like come after the block: a file that it creates is known by then.

    Yields the list of those that have come so far. Handlers see to it, as a signal that is blocked
    in this thread would be taken by another one, and then interrupt this one.
    """
    come: list[int] = []
    before = {}
    try:
        if threading.current_thread() is threading.main_thread():  # others are never interrupted
            for number in _INTERRUPTS:
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    before[number] = signal.signal(number, lambda number, _: come.append(number))
        yield come
    finally:
        for number, handler in reversed(before.items()):
            signal.signal(number, handler)
        for received in dict.fromkeys(come):
            signal.raise_signal(received)


def _create_private(path: Path) -> int:
    """Create an empty file with mode 0600, never through a link; its locked descriptor."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise TlstaxError(
            f"cannot create the capture {path}",
            "the file exists",
            "choose another name, or give --force if the command has it",
            ExitCode.USAGE,
        ) from error
    except OSError as error:
        raise write_error(path, error) from error
    _lock(descriptor, path)
    return descriptor


def _locked_capture(path: Path) -> int:
    """A locked descriptor of the capture at `path`; -1: there is none. Raises TlstaxError."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise _foreign(path)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return -1
    except OSError as error:
        raise write_error(path, error) from error
    try:
        header = os.pread(descriptor, 72, 0)
        if header and int.from_bytes(header[68:72], "big") != APPLICATION_ID:
            raise _foreign(path)
        _lock(descriptor, path)
        if not os.path.samestat(os.fstat(descriptor), path.lstat()):
            raise _busy(path)  # it was replaced just now
    except OSError as error:
        os.close(descriptor)
        raise write_error(path, error) from error
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _lock(descriptor: int, path: Path) -> None:
    """Lock a file without waiting. File systems without locks are taken as they are."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise _busy(path) from None


def _busy(path: Path) -> TlstaxError:
    return TlstaxError(
        f"cannot overwrite {path}",
        "another recording writes it at this moment",
        "choose another name, or end that recording first",
        ExitCode.USAGE,
    )


def _foreign(path: Path) -> TlstaxError:
    return TlstaxError(
        f"cannot overwrite {path}",
        "it is not a tlstax capture",
        "choose another name",
        ExitCode.USAGE,
    )


def write_error(path: Path, error: Exception) -> TlstaxError:
    """The error for a capture that cannot be written."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    action = "choose another directory or permit writing there"
    if "full" in reason or "space" in reason or "disk I/O" in reason:
        action = "free some space or choose another directory; finished windows are kept"
    elif "locked" in reason:
        action = "close the program that reads it; finished windows are kept"
    return TlstaxError(f"cannot write the capture {path}", reason, action, ExitCode.IO)
