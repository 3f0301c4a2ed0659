# SPDX-License-Identifier: GPL-2.0-only
"""Files that many commands make: temporary ones, and outputs that are whole or not there."""

import os
from pathlib import Path

from tlstax import ExitCode, TlstaxError


def no_temporary_folder(error: FileNotFoundError) -> TlstaxError:
    """The error (IO) of a host where no folder for them can be written.

    Raises `error` where one can: then it has another cause.
    """
    import tempfile  # imported here: attach must stay small

    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        return TlstaxError(
            "cannot make a temporary file",
            "neither TMPDIR nor /tmp, /var/tmp or the current folder can be written",
            "Set TMPDIR to a folder that you may write to and that has room",
            ExitCode.IO,
        )
    raise error


def is_stream(path: Path) -> bool:
    """Whether an output is written to and never replaced: a device, a pipe, an open descriptor.

    /dev/stdout is a link that leads to a file where the output is redirected: root would replace
    the link itself, for everybody.
    """
    folder = os.path.realpath(path.parent)
    return (
        folder in ("/dev", "/dev/fd")
        or folder.startswith("/proc/")
        or (path.exists() and not path.is_file())
    )


def write_stream(path: Path, content: bytes) -> None:
    """Write to what `is_stream` says is one, behind what it has already; raises OSError."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
    with open(os.open(path, flags), "wb") as stream:
        stream.write(content)


def put_whole(path: Path, content: bytes, mode: int | None) -> None:
    """Put a file there with these permissions, or leave what is there; raises OSError.

    `mode`: None for those of any new file of this user (umask).
    """
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.unlink(missing_ok=True)  # of a process that was killed
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(scratch, flags, 0o666 if mode is None else 0o600), "wb") as file:
            file.write(content)
            if mode is not None:
                os.fchmod(file.fileno(), mode)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
