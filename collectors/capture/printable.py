# SPDX-License-Identifier: GPL-2.0-only
"""Text of unknown origin made safe for a terminal, and the standard streams that see to it.

Names of functions, files, threads and workloads come from other programs, from captures that
somebody sent and from definition files. An ESC or a carriage return in one of them would steer the
terminal, and a bidirectional mark would reorder what is read. Therefore `tlstax.__main__` runs each
command with `safe_streams`: what it prints passes `harmless`. A writer whose control characters are
its own (colours, a live display) prints to `with_controls(stream)` and cleans its texts itself.
"""

import errno
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TextIO, cast

from tlstax import ExitCode, TlstaxError

# C0 but tab and line feed, DEL, C1, separators of lines, marks that reorder text, surrogates.
_UNSAFE: Final = (
    *((0x00, 0x08), (0x0B, 0x1F), (0x7F, 0x9F), (0x061C, 0x061C), (0x200E, 0x200F)),
    *((0x2028, 0x202E), (0x2066, 0x2069), (0xD800, 0xDFFF)),
)
WARNING: Final = "tlstax: warning: "
"""Begins a line of `warn`: so a command that runs others finds it among theirs."""
# A table: compiling a pattern of them would be part of each start.
_REPLACED: Final = {code: "\ufffd" for first, last in _UNSAFE for code in range(first, last + 1)}


def visible(text: str) -> str:
    """Text of unknown origin with everything but printable characters escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def harmless(text: str) -> str:
    """Text in which each character that could steer a terminal is replaced by U+FFFD."""
    return text.translate(_REPLACED)


def whole_number(text: str, digits_most: int = 18) -> int | None:
    """The number that a text of unknown origin is: ASCII digits, and not too many; else None.

    str.isdigit() is also true of '²', of which int() makes no number.
    """
    is_number = text.isascii() and text.isdigit() and len(text) <= digits_most
    return int(text) if is_number else None


def output_error(where: str, error: OSError) -> TlstaxError:
    """The error (IO) for output that cannot be written."""
    return TlstaxError(
        f"cannot write {where}",
        (error.strerror or str(error)).lower(),
        "Choose another file, or make room",
        ExitCode.IO,
    )


class SafeStream:
    """A standard stream that prints harmless text only.

    If standard output cannot be written, TlstaxError (IO) is raised, or BrokenPipeError if its
    reader has gone. Errors of standard error are ignored: nobody could be told of them.
    """

    def __init__(self, raw: TextIO | None, *, is_error: bool, keeps_controls: bool = False) -> None:
        """`raw`: the stream, None if it was closed when the process started."""
        self._raw = raw
        self._is_error = is_error
        self._keeps_controls = keeps_controls
        if isinstance(raw, io.TextIOWrapper):
            raw.reconfigure(errors="replace")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._raw is not None and self._raw.isatty()

    def with_controls(self) -> "SafeStream":
        """The same stream for a writer that cleans its texts itself."""
        return SafeStream(self._raw, is_error=self._is_error, keeps_controls=True)

    def write(self, text: str) -> int:
        """Print it."""
        if text:
            self._try(lambda raw: raw.write(text if self._keeps_controls else harmless(text)))
        return len(text)

    def flush(self) -> None:
        """Hand what was printed to the system."""
        if self._raw is not None:
            self._try(lambda raw: raw.flush())

    def _try(self, act: Callable[[TextIO], object]) -> None:
        try:
            if self._raw is None:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            act(self._raw)
        except OSError as error:
            self._discard()
            if self._is_error:
                return
            if isinstance(error, BrokenPipeError):
                raise
            raise output_error("to the standard output", error) from error

    def _discard(self) -> None:
        """Let nothing that is still buffered be tried again, as at the end of the process."""
        if self._raw is None:
            return
        with suppress(OSError):
            nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.dup2(nowhere, self._raw.fileno())
            finally:
                os.close(nowhere)


@contextmanager
def safe_streams() -> Iterator[None]:
    """Replace the standard streams by safe ones; what was printed is written out at the end."""
    before = sys.stdout, sys.stderr
    sys.stdout = cast(TextIO, SafeStream(sys.stdout, is_error=False))
    sys.stderr = cast(TextIO, SafeStream(sys.stderr, is_error=True))
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    finally:
        sys.stdout, sys.stderr = before


def complain(text: str) -> None:
    """Print one line about a failure of the command to standard error."""
    line = f"tlstax: {harmless(text)}".replace("\n", " ")
    print(line, file=cast(TextIO, SafeStream(sys.stderr, is_error=True)), flush=True)


def warn(text: str) -> None:
    """Print one line to standard error about what the user should see to; the command goes on."""
    complain(f"warning: {text}")


def with_controls(stream: TextIO) -> TextIO:
    """A standard stream for a writer that prints control characters of its own."""
    return cast(TextIO, stream.with_controls()) if isinstance(stream, SafeStream) else stream
