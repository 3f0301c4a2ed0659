# SPDX-License-Identifier: GPL-2.0-only
"""Writes the table of hazards into docs/preflight.md.

python -m tlstax.collectors.preflight.hazard_table docs/preflight.md
"""

import re
import sys
from pathlib import Path

from tlstax.collectors.preflight.hazards import VARIANTS, Hazard, load_hazards

_HOW = {
    "trial": "tried on a process of our own",
    "table": "by the kernel's version",
    "host": "read of this host",
    "target": "read of the process",
}
_CONDITIONS = {
    "": "",
    "seccomp": ", if the process has a seccomp filter",
    "shadow_stack": ", if the process has a shadow stack",
    "overlay": ", if the process has files on overlayfs",
    "preemption": ", if the kernel is preemptible",
    "many_cpus": ", from 16 CPUs on",
}


def table() -> str:
    """The table, one row for each hazard."""
    head = "| hazard | what happens | how it is found | kernels | what is done instead | source |"
    lines = [head, "|---" * (head.count("|") - 1) + "|"]
    lines += [f"| {' | '.join(_cells(hazard))} |" for hazard in load_hazards()]
    return "\n".join(lines) + "\n"


def _cells(hazard: Hazard) -> tuple[str, ...]:
    kernels = hazard.ranges()
    if hazard.kernels:
        kernels += "" if hazard.confirmed else " (as reported)"
    done = VARIANTS[hazard.variant]
    if hazard.variant == "refuse":
        done += f", exit code {int(hazard.exit_code)} ({hazard.exit_code.name})"
    how = f"{_HOW[hazard.kind]}{_CONDITIONS[hazard.condition]}"
    what = f"{hazard.what}."
    return f"`{hazard.id}`", what, how, kernels, done, "; ".join(hazard.source)


def with_table(page: str) -> str:
    """The page with its table replaced by that of the list."""
    return re.sub(r"^\| hazard \|.*\n(?:\|.*\n)*", lambda _: table(), page, flags=re.MULTILINE)


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.write_text(with_table(place.read_text(encoding="utf-8")), encoding="utf-8")
