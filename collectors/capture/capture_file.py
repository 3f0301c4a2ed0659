# SPDX-License-Identifier: GPL-2.0-only
"""The file of a capture that is being written: created, locked, put in the place of an earlier one.

An earlier capture stays until the new one is worth keeping: the new file lies beside it until then.
Who writes a capture holds a lock on it (flock), so that two recordings cannot replace each other.
"""

import errno
import fcntl
import os
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.schema import APPLICATION_ID


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
            # A journal that a recording left behind belongs to its file, not to the new one.
            Path(f"{self.path}-journal").unlink(missing_ok=True)
            self.current.rename(self.path)
        except OSError as error:
            raise write_error(self.path, error) from error
        self.current = self.path
        os.close(self._earlier)
        self._earlier = -1
        return True

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
def without_interrupts() -> Iterator[None]:
    """Ctrl-C and its like come after the block: a file that it creates is known by then."""
    waiting = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waiting)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


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
