# SPDX-License-Identifier: GPL-2.0-only
"""Writing a report: to a file, whole or not at all, or to the standard output."""

import errno
import os
import sys
from pathlib import Path

from tlstax.collectors.capture.files import is_stream, put_whole, write_stream
from tlstax.collectors.capture.printable import harmless, output_error

STANDARD_OUTPUT = "-"


def write(path: str, content: str | bytes) -> None:
    """Write a report to a file, whole or not at all, or to the standard output.

    Texts are made harmless for a terminal, see `printable`.
    Raises TlstaxError (IO) if it cannot be written.
    """
    if isinstance(content, str):
        content = harmless(content)
    if path == STANDARD_OUTPUT:
        _print(content)
        return
    data = content.encode() if isinstance(content, str) else content
    target = Path(path)
    if not target.name:  # "", . and /
        number = errno.EISDIR if path else errno.ENOENT
        raise output_error(path or "to a file without a name", OSError(number, os.strerror(number)))
    try:
        if is_stream(target):
            write_stream(target, data)
        else:
            put_whole(target, data, mode=None)
    except OSError as error:
        raise output_error(path, error) from error


def _print(content: str | bytes) -> None:
    """Reports are UTF-8, whatever the encoding of the terminal."""
    if isinstance(content, bytes):
        try:
            if (binary := getattr(sys.stdout, "buffer", None)) is None:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            binary.write(content)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise output_error("to the standard output", error) from error
        return
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8")
    sys.stdout.write(content)
