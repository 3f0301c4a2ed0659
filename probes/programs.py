# SPDX-License-Identifier: GPL-2.0-only
"""The bpftrace programs of this folder: their headers, and the lines that depend on a build.

A program runs unchanged on a common server. Above each block whose attach points depend on the
server's build, a line names the boundaries that they represent:

    // @boundary! action:handshake_call enter
    uprobe:/usr/lib/x86_64-linux-gnu/libssl.so.3:SSL_do_handshake
    /pid == $1/
    { ... }

The words after it choose boundaries of `probes/libraries`: an id, or terms `action:`, `phase:`,
`state:`, `primitive:` (a category), joined by `+`; a comma stands for "or". `!` marks a
boundary that the program requires. `tlstax probes print` inserts the attach points of one process.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tlstax import ExitCode, TlstaxError

_FOLDER = Path(__file__).parent
LABELS = ("Question", "Emits", "Attaches", "Needs", "Blind to", "Example")
MARK = re.compile(r"// @boundary(!?) (.+) (enter|exit)")
HEAD = re.compile(r"/\*\n \* (\w+) - (.+?)\n \*\n(.*?) \*/\n", re.DOTALL)
LABEL = re.compile(r"^ \* ([A-Z][a-z ]+): ?(.*)$")


@dataclass(frozen=True)
class Block:
    """A probe of a program whose attach points depend on the build."""

    selectors: tuple[tuple[str, ...], ...]  # any of these; all terms of one must hold
    event: str  # enter or exit
    required: bool
    points: tuple[str, ...]  # attach points as written in the file
    body: str  # the filter and the action

    @property
    def subject(self) -> str:
        """The boundaries it represents, as the program spells them."""
        return ", ".join("+".join(terms) for terms in self.selectors)


@dataclass(frozen=True)
class Program:
    """One bpftrace program."""

    name: str
    line: str  # what it does, one line
    labels: dict[str, str]
    pieces: tuple[str | Block, ...]  # its text in order, without the header

    @property
    def has_exits(self) -> bool:
        """Whether it sees the end of a function."""
        return any(isinstance(piece, Block) and piece.event == "exit" for piece in self.pieces)


def names() -> list[str]:
    """The names of all programs."""
    return sorted(file.stem for file in _FOLDER.glob("*.bt"))


def load(name: str) -> Program:
    """One program. Raises TlstaxError (USAGE) if there is none of that name."""
    if name not in names():
        raise TlstaxError(
            f"there is no program called {name!r}",
            f"the programs are {', '.join(names())}",
            "Choose one of them",
            ExitCode.USAGE,
        )
    return parse((_FOLDER / f"{name}.bt").read_text(encoding="utf-8"), name)


def parse(text: str, source: str) -> Program:
    """A program's text. Raises TlstaxError (USAGE) when its header is not complete."""
    head = HEAD.search(text)
    labels = _labels(head[3]) if head else {}
    lacking = [label for label in LABELS if not labels.get(label)]
    if head is None or lacking:
        raise TlstaxError(
            f"{source}.bt cannot be used",
            f"its header lacks {', '.join(lacking)}",
            "Correct the file",
            ExitCode.USAGE,
        )
    return Program(head[1], head[2], labels, tuple(_pieces(text[head.end() :])))


def _labels(text: str) -> dict[str, str]:
    labels: dict[str, str] = {}
    label = ""
    for line in text.splitlines():
        if (found := LABEL.match(line)) and found[1] in LABELS:
            label = found[1]
            labels[label] = found[2]
        elif label:
            labels[label] += "\n" + line.removeprefix(" *").removeprefix(" ")
    return labels


def _pieces(text: str) -> Iterator[str | Block]:
    plain: list[str] = []
    lines = iter(text.splitlines(keepends=True))
    for line in lines:
        mark = MARK.fullmatch(line.strip())
        if mark is None:
            plain.append(line)
            continue
        yield "".join(plain)
        plain.clear()
        points: list[str] = []
        body: list[str] = []
        for inner in lines:
            if body or inner.startswith(("/", "{")):
                body.append(inner)
            else:
                points.append(inner.strip().rstrip(","))
            if inner.rstrip() == "}":
                break
        selectors = tuple(tuple(one.strip().split("+")) for one in mark[2].split(","))
        yield Block(selectors, mark[3], bool(mark[1]), tuple(points), "".join(body))
    yield "".join(plain)
