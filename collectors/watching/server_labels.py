# SPDX-License-Identifier: GPL-2.0-only
"""What tells servers of one host from each other, also after a restart: how they were started.

A pid or a container's id is another one after a restart, and what a server listens on is known
only when it has recovered.
"""

import re
from itertools import pairwise
from pathlib import Path
from typing import Final

from tlstax.collectors.process.control_groups import group_text
from tlstax.collectors.process.mappings import PROC

_OPTIONS: Final = (
    "--port", "--defaults-group-suffix", "--defaults-file", "--defaults-extra-file", "--datadir",
    "--socket",
)  # fmt: skip
# mariadb@second.service, but not the manager of a user's services, which is above them
_INSTANCE: Final = re.compile(r"/(?!user@)[^/@\n]+@([^/\n]+)\.service(?=/|$)", re.MULTILINE)
_LENGTH_MOST: Final = 60

Marks = tuple[tuple[str, str], ...]
"""How a server was started: what tells it from others, and its value, the plainest first."""


def server_marks(pid: int, proc: Path = PROC) -> Marks:
    """The instance of its systemd unit, then the options that tell; () also if it has ended."""
    found = _INSTANCE.findall(group_text(proc / str(pid)))
    instance = (("unit", found[-1]),) if found else ()
    words = _words(pid, proc)
    given: dict[str, str] = {}
    for word, following in pairwise([*words, ""]):
        name, equals, value = word.partition("=")
        given.setdefault(name.replace("_", "-"), value if equals else following)
    return (*instance, *((name, given[name]) for name in _OPTIONS if given.get(name)))


def may_be_its_parent(pid: int, proc: Path = PROC) -> bool:
    """Whether a process may be one that has forked a server and ends when this has started.

    `mysqld --daemonize` forks twice, so the server is no child of it, but has its command line. The
    leader of the server's session is the process between both, which has ended.
    """
    words = _words(pid, proc)
    if not any(word == "-D" or word.startswith("--daemonize") for word in words):
        return False
    fields = _stat(pid, proc)
    return bool(fields) and (proc / fields[3]).exists()


def short_label(marks: Marks) -> str:
    """A part of a name: the first mark; "": nothing tells."""
    return _plain(marks[0][1]) if marks else ""


def long_label(marks: Marks) -> str:
    """A part of a name: all marks, or the end of them."""
    return _plain("-".join(value for _, value in marks))


def started_at(pid: int, proc: Path = PROC) -> str:
    """When a process was started, in ticks since boot; "": it has ended.

    With its pid it is this process and no later one.
    """
    fields = _stat(pid, proc)
    return "" if not fields or fields[0] in "ZX" else fields[19]


def _stat(pid: int, proc: Path) -> list[str]:
    """What follows the name: state, parent, group, session, ...; [] if it has ended."""
    try:
        text = (proc / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _words(pid: int, proc: Path) -> list[str]:
    """Its command line; [] if it has ended."""
    try:
        return (proc / str(pid) / "cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return []


def _plain(text: str) -> str:
    """Its end, without what a file's name should not have."""
    return re.sub(r"[^\w.@]+", "-", text, flags=re.ASCII)[-_LENGTH_MOST:].strip("-.")
