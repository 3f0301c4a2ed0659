# SPDX-License-Identifier: GPL-2.0-only
"""What a kernel offers, by its configuration: the rows of docs/limits.md of hosts that are not run.

    python tests/kernels/hosts.py NAME RELEASE CONFIG [NAME RELEASE CONFIG ...]

NAME begins with the distribution, RELEASE is what `uname -r` prints there, CONFIG a file like its
/boot/config-RELEASE. What is said is what configuration and number allow, not what was tried.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tlstax.collectors.preflight.hazards import VARIANTS, load_hazards
from tlstax.collectors.preflight.judge import Observed, Status, judge
from tlstax.collectors.preflight.kernel_build import parse_build, preemption_mode

LEAST: Final = (5, 15)
SOCKET_TRACEPOINTS: Final = (6, 3)
TYPES: Final = "DEBUG_INFO_BTF"
NEEDED: Final = (
    TYPES, "BPF_SYSCALL", "BPF_JIT", "BPF_EVENTS", "PERF_EVENTS", "UPROBES", "UPROBE_EVENTS",
)  # fmt: skip
MAKERS: Final = {"Ubuntu": "#1-Ubuntu", "Debian": "#1 Debian"}
"""What `uname -v` says of who built a kernel whose release does not."""
RETURNS: Final = ("DYNAMIC_FTRACE_WITH_DIRECT_CALLS", "IPV6", "UNIX")
"""What programs at the returns of all socket functions need: none of them in a module."""


@dataclass(frozen=True)
class Host:
    """A distribution, its kernel's release, and the text of that kernel's configuration."""

    name: str
    release: str
    config: str

    def has(self, option: str) -> bool:
        return re.search(rf"^CONFIG_{option}=y$", self.config, re.MULTILINE) is not None


def verdict(host: Host) -> tuple[str, str, str]:
    """Whether it can be recorded, what tells commands at level flow, and what is left out."""
    maker = MAKERS.get(host.name.partition(" ")[0], "")
    kernel = parse_build(host.release, maker, "", preemption_mode("", "", host.config))
    if lacking := [option for option in NEEDED if not host.has(option)]:
        return f"refused: no CONFIG_{lacking[0]}", "", ""
    if not kernel.keeps_upstream:
        return "not known: changes of newer kernels below an old number", "", ""
    if kernel.version[:2] < LEAST:
        return f"refused: Linux {'.'.join(map(str, LEAST))} is needed", "", ""
    if kernel.version[:2] >= SOCKET_TRACEPOINTS:
        sockets = "tracepoints"
    elif all(host.has(option) for option in RETURNS):
        sockets = "returns of functions"
    else:
        sockets = "nothing: level `command`"
    variants = dict.fromkeys(
        VARIANTS[finding.variant]
        for finding in judge(load_hazards(), Observed(kernel, {}))
        if finding.hazard.hurts == "kernel" and finding.status == Status.VARIANT
    )
    return "expected to work", sockets, "; ".join(variants) or "nothing"


def rows(hosts: list[Host]) -> Iterator[str]:
    """The table's rows."""
    for host in hosts:
        types = "yes" if host.has(TYPES) else "no"
        yield "| " + " | ".join((host.name, host.release, types, *verdict(host))) + " |"


def main(words: list[str]) -> int:
    """Print the rows."""
    if not words or len(words) % 3:
        print(__doc__, file=sys.stderr)
        return 2
    parts = [words[at : at + 3] for at in range(0, len(words), 3)]
    for row in rows([Host(name, release, Path(file).read_text()) for name, release, file in parts]):
        print(row)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
