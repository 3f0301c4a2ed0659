# SPDX-License-Identifier: GPL-2.0-only
"""The host that --ssh names, and the command line of ssh for it.

ssh is the user's own, with its configuration, keys, agent and jump hosts. Nothing of the name can
become an option of ssh, or a word of a shell.
"""

import re
from dataclasses import dataclass
from typing import Final

_NAME: Final = re.compile(
    r"(?:ssh://)?(?:[A-Za-z0-9_][A-Za-z0-9_.+\\-]*@)?(?:[A-Za-z0-9_][A-Za-z0-9_.:%-]*|\[[0-9a-fA-F:.%\w]+\](?::\d+)?)/?"
)
_DIRECTORY: Final = re.compile(r"(?:/[A-Za-z0-9_.+-]+)+")
# No terminal, nothing forwarded, and a dead line is noticed. All else is as the user configured it.
_OPTIONS: Final = (
    "-T", "-a", "-x",
    "-o", "ClearAllForwardings=yes",
    "-o", "RemoteCommand=none",
    "-o", "ServerAliveInterval=10",
    "-o", "ServerAliveCountMax=3",
)  # fmt: skip


@dataclass(frozen=True)
class Destination:
    """Where to record, and how."""

    name: str  # [USER@]HOST, as ssh takes it
    sudo: bool = False  # whether the recorder, and nothing else, runs as root by `sudo -n`
    directory: str = ""  # where it is copied to; "": memory-backed storage
    recorder: str = ""  # the one that is installed there, of which nothing is copied

    def command(self, script: str) -> list[str]:
        """ssh, running a script in the shell of the other host."""
        return ["ssh", *_OPTIONS, "--", self.name, f"exec sh -c '{script}'"]


def host_name(text: str) -> str:
    """[USER@]HOST, or ssh://[USER@]HOST[:PORT]. Raises ValueError."""
    if not _NAME.fullmatch(text):
        raise ValueError(f"{text!r} is not [USER@]HOST")
    return text


def directory_name(text: str) -> str:
    """An absolute path of plain characters. Raises ValueError."""
    if not _DIRECTORY.fullmatch(text) or "/../" in f"{text}/":
        raise ValueError(f"{text!r} is not an absolute path of letters, digits and ._+-")
    return text
