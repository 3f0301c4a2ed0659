# SPDX-License-Identifier: GPL-2.0-only
"""A terminal for a live display: whole pictures, single keys, and left as it was found."""

import io
import os
import select
import shutil
import sys
import termios
import time
import tty
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

from rich.text import Text

from tlstax.collectors.capture.printable import harmless, with_controls
from tlstax.collectors.capture.safe_console import SafeConsole

ENTER: Final = "\x1b[?1049h\x1b[?25l"  # another screen, no cursor
LEAVE: Final = "\x1b[?25h\x1b[?1049l"
HOME: Final = "\x1b[H"
REST_OF_LINE: Final = "\x1b[K"
SIZE: Final = (80, 24)


class PlainOutput:
    """Pictures one after the other, for scripts and pipes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return

    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        found = shutil.get_terminal_size(SIZE)
        return found.columns, found.lines

    def show(self, lines: Sequence[Text]) -> None:
        """Print a picture."""
        _write("\n".join(encode(lines, sys.stdout.isatty())) + "\n")

    def key(self, seconds: float) -> str:
        """Wait; nobody presses a key."""
        time.sleep(seconds)
        return ""


class LiveScreen(PlainOutput):
    """The terminal itself. Use as a context manager: leaving it restores everything."""

    def __init__(self) -> None:
        self._saved: list[Any] | None = None

    def __enter__(self) -> Self:
        self._saved = termios.tcgetattr(sys.stdin.fileno())
        tty.setcbreak(sys.stdin.fileno())  # Ctrl-C stays a signal
        _write(ENTER)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _write(LEAVE)
        if self._saved is not None:
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._saved)

    def show(self, lines: Sequence[Text]) -> None:
        """Draw over the last picture, in one write so that it does not flicker."""
        text = "\r\n".join(f"{line}{REST_OF_LINE}" for line in encode(lines, True))
        _write(f"{HOME}{text}\x1b[J")

    def key(self, seconds: float) -> str:
        """A key, or '' when none came within this time."""
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        if not ready:
            return ""
        typed = os.read(sys.stdin.fileno(), 16)
        if not typed:
            return "q"  # the terminal is gone
        # Keys such as arrows are several bytes, and none of ours.
        return typed.decode("ascii", "replace") if len(typed) == 1 else "?"


def encode(lines: Sequence[Text], is_terminal: bool) -> list[str]:
    """The lines with escape sequences for their colours, if the terminal is to have any."""
    plain = not is_terminal or bool(os.environ.get("NO_COLOR"))
    if plain or os.environ.get("TERM", "") in ("", "dumb"):
        return [harmless(line.plain) for line in lines]
    found = []
    for line in lines:
        stream = io.StringIO()
        screen = SafeConsole(stream, force_terminal=True, color_system="standard", width=10_000)
        screen.print(line, end="", soft_wrap=True)
        found.append(stream.getvalue())
    return found


def _write(text: str) -> None:
    stream = with_controls(sys.stdout)
    stream.write(text)
    stream.flush()
