# SPDX-License-Identifier: GPL-2.0-only
"""The cost of a probe hit on this host, and the file that keeps it between runs.

Measured once a week, or by `tlstax doctor --calibrate`, and kept in a file for this kernel and CPU,
calibration.json in tlstax.cache_directory(). If the file is damaged or of another host, the cost
is measured again.
"""

import json
import os
import platform
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from tlstax import cache_directory
from tlstax.collectors.host.features import HOST
from tlstax.collectors.host.kept_file import keep_file
from tlstax.collectors.host.prices import HostCosts, Price, host_costs_of
from tlstax.collectors.host.recording_facts import cpu_field

FILE: Final = "calibration.json"
FRESH_S: Final = 7 * 86_400


def this_host_costs() -> HostCosts:
    """The stored costs of this host; if there are none, measure them (about 0.3 s).

    If attaching is not permitted, the defaults. Forks: call it while this process has one thread.
    """
    kept = load()
    if kept is not None:
        return kept
    # Imported here: a process that stays attached does not need it.
    from tlstax.collectors.host.calibration import measure_basic

    host_costs = host_costs_of(measure_basic(), HOST.emulated_forms.ask())
    if host_costs.measured:
        save(host_costs)
    return host_costs


def load() -> HostCosts | None:
    """The stored costs for this kernel and CPU; None if absent or too old."""
    try:
        content = json.loads(path().read_text(encoding="utf-8"))
        if content["host"] != host() or not 0 <= time.time() - content["time_s"] < FRESH_S:
            return None
        return host_costs_of((Price(*row) for row in content["rows"]), content["emulated"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def save(host_costs: HostCosts) -> None:
    """Store the costs for the next run; if that fails, the next run measures again."""
    content = {
        "host": host(),
        "time_s": int(time.time()),
        "rows": host_costs.rows,
        "emulated": sorted(host_costs.emulated),
    }
    with suppress(OSError):
        keep_file(path(), json.dumps(content, indent=1).encode(), folder_mode=0o755)


def path() -> Path:
    """The path of the file."""
    return cache_directory() / FILE


def host() -> str:
    """What the costs depend on: the kernel's build, the CPU model, the number of CPUs."""
    name = platform.uname()
    return f"{name.release} {name.version} / {cpu_field('model name')} x {os.cpu_count()}"
