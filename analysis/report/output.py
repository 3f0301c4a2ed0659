# SPDX-License-Identifier: GPL-2.0-only
"""Writing a report: to a file, whole or not at all, or to the standard output."""

import io
import os
import sys
from pathlib import Path

from tlstax import ExitCode, TlstaxError

STANDARD_OUTPUT = "-"


def print_safely() -> None:
    """Let the standard output take every character; what its encoding lacks is replaced."""
    _encode_output(None)


def _encode_output(encoding: str | None) -> None:
    """Let the standard output take every character, replaced where its encoding lacks one."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding=encoding, errors="replace")


def write(path: str, content: str | bytes) -> None:
    """Write a report to a file, whole or not at all, or to the standard output.

    Raises TlstaxError (IO) if the file cannot be written.
    """
    data = content.encode(errors="replace") if isinstance(content, str) else content
    if path == STANDARD_OUTPUT:
        if isinstance(content, str):
            _encode_output("utf-8")
            sys.stdout.write(content)
        else:
            sys.stdout.buffer.write(data)
        return
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        # A device such as /dev/stdout cannot be replaced, only written to.
        if target.exists() and not target.is_file():
            target.write_bytes(data)
            return
        try:
            partial.write_bytes(data)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise TlstaxError(
            f"cannot write {path}",
            (error.strerror or str(error)).lower(),
            "Choose another file, or make room",
            ExitCode.IO,
        ) from error
