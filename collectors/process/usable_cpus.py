# SPDX-License-Identifier: GPL-2.0-only
"""The CPUs on which a process may run: those of its affinity that are online.

A cpuset (of a container, of systemd) limits the affinity, so it is in it. CPU time that a control
group limits (cpu.max) is another matter: such a process still runs on all of its CPUs.
"""

import re
from pathlib import Path
from typing import Final

_ALLOWED: Final = re.compile(r"^Cpus_allowed_list:\s*(\S+)$", re.MULTILINE)
_RANGE: Final = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")


def usable_cpus_count(pid: int, proc: Path) -> int:
    """How many they are, for the main thread; 1 where that cannot be read.

    `proc` as in `process.mappings`.
    """
    allowed = _ALLOWED.search(_text(proc / str(pid) / "status"))
    online = cpus_in(_text(proc.parent / "sys/devices/system/cpu/online").strip())
    usable = cpus_in(allowed[1]) if allowed else set()
    return max(1, len(usable & online if online else usable))


def cpus_in(text: str) -> set[int]:
    """The numbers in a list as the kernel writes it (0-3,6); empty if it is none."""
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            return set()
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:  # it has ended, or was not sent
        return ""
