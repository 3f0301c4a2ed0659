# SPDX-License-Identifier: GPL-2.0-only
"""Stacks in the output of pt-pmp, gdb and eu-stack: the number of threads by stack.

- pt-pmp (Percona Toolkit): `12 leaf,caller,...` for each distinct stack, after the date.
- gdb, `thread apply all bt`: `Thread N (...):` and lines `#0  0x... in function (args) at file`.
- eu-stack (elfutils): `TID n:` and lines `#0  0x... function - file`.
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

from tlstax import ExitCode, TlstaxError

Stacks = Counter[tuple[str, ...]]
"""Threads by stack; function names, leaf first."""

UNNAMED: Final = "[unknown]"

_PT_PMP: Final = re.compile(r"\s*(\d+) (\S.*)$")
_OBJECT: Final = re.compile(r"\((?:[\w.+-]+\.so[\w.]*|[\w.+-]+:\d+)\)$")
_THREAD: Final = re.compile(r"Thread \d+ \(|TID \d+:")
_GDB: Final = re.compile(r"#\d+\s+(?:0x[0-9a-f]+ in )?(.+?) ?\(")
_EU_STACK: Final = re.compile(r"#\d+\s+0x[0-9a-f]+(?: (?!- )(.*?))?(?: - .*)?$")


def parse(text: str) -> Stacks:
    """The stacks in any of the three forms. Raises TlstaxError (FAILED) if there is none."""
    lines = text.splitlines()
    threads = any(_THREAD.match(line) for line in lines)
    stacks = _by_thread(lines) if threads else _aggregated(lines)
    if not stacks:
        raise TlstaxError(
            "no stack found",
            "the text is not the output of pt-pmp, gdb's `thread apply all bt` or eu-stack",
            "Name a file that one of them wrote",
            ExitCode.FAILED,
        )
    return stacks


def _aggregated(lines: Iterable[str]) -> Stacks:
    stacks: Stacks = Counter()
    for line in lines:
        found = _PT_PMP.match(line)
        if found:
            names = (_OBJECT.sub("", name) for name in _split(found[2]))
            stacks[tuple(UNNAMED if "??" in name else name for name in names)] += int(found[1])
    return stacks


def _split(text: str) -> list[str]:
    """Split at commas outside of parentheses and angle brackets."""
    parts, depth = [""], 0
    for letter in text:
        if letter == "," and depth == 0:
            parts.append("")
            continue
        depth += (letter in "(<") - (letter in ")>")
        parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def _by_thread(lines: Iterable[str]) -> Stacks:
    stacks: Stacks = Counter()
    frames: list[str] | None = None
    form = _GDB
    for line in lines:
        form = _EU_STACK if line.startswith("TID ") else form
        if _THREAD.match(line):
            if frames:
                stacks[tuple(frames)] += 1
            frames = []
        elif frames is not None and line.startswith("#"):
            frames.append(_function(line, form))
    if frames:
        stacks[tuple(frames)] += 1
    return stacks


def _function(line: str, form: re.Pattern[str]) -> str:
    found = form.match(line.rstrip())
    name = found[1] if found else None
    return UNNAMED if not name or "??" in name else name
