# SPDX-License-Identifier: GPL-2.0-only
"""What holds for tlstax itself on this host: lockdown, memory limit, confinement."""

import re
from pathlib import Path
from typing import Final

from tlstax.collectors.preflight.cgroups import PROC, memory_left_bytes
from tlstax.collectors.preflight.target_facts import memory_outcome, security_label
from tlstax.collectors.preflight.trial_child import Outcome, State

OWN_HEADROOM_BYTES: Final = 96 << 20
"""Memory of tlstax while it plans and records, with its BPF maps."""


def host_outcomes(lockdown_text: str | None, proc: Path = PROC) -> dict[str, Outcome]:
    """The readings of hazards of the kind `host`, by their names."""
    return {
        "lockdown": lockdown(lockdown_text),
        "own_memory": memory_outcome(memory_left_bytes("self", proc), OWN_HEADROOM_BYTES),
        "confinement": confinement(security_label(proc / "self")),
    }


def lockdown(text: str | None) -> Outcome:
    """`text` is /sys/kernel/security/lockdown: `none [integrity] confidentiality`."""
    if text is None:
        return Outcome(State.UNKNOWN, "not in this kernel, or it cannot be read")
    mode = re.search(r"\[(\w+)\]", text)
    if mode is None:
        return Outcome(State.UNKNOWN, text)
    state = State.HARMFUL if mode[1] == "confidentiality" else State.SAFE
    return Outcome(state, f"the mode is {mode[1]}")


def confinement(label: str) -> Outcome:
    """`label` is that of AppArmor or SELinux; "" without them."""
    if not label:
        return Outcome(State.SAFE, "no label of SELinux or AppArmor")
    apparmor_free = label.startswith("unconfined") or label.endswith("(complain)")
    selinux_free = re.search(r":(unconfined_t|kernel_t|initrc_t)(:|$)", label)
    if apparmor_free or selinux_free:
        return Outcome(State.SAFE, f"tlstax runs as {label}")
    return Outcome(State.HARMFUL, f"tlstax runs as {label}")
