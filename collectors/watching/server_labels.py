# SPDX-License-Identifier: GPL-2.0-only
"""What tells servers of one host from each other, also after a restart: how they were started.

A pid or a container's id is another one after a restart, and what a server listens on is known
only when it has recovered.
"""

import re
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


def server_label(pid: int, proc: Path = PROC) -> str:
    """A part of a name: the instance of its systemd unit, else the first option that tells.

    "": nothing does, or it has ended.
    """
    process = proc / str(pid)
    if found := _INSTANCE.findall(group_text(process)):
        return _plain(found[-1])
    try:
        words = (process / "cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return ""
    given: dict[str, str] = {}
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        given.setdefault(name.replace("_", "-"), value if equals else following)
    return next((_plain(given[name]) for name in _OPTIONS if given.get(name)), "")


def _plain(text: str) -> str:
    """Its end, without what a file's name should not have."""
    return re.sub(r"[^\w.@]+", "-", text, flags=re.ASCII)[-_LENGTH_MOST:].strip("-.")
