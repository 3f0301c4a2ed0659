# SPDX-License-Identifier: GPL-2.0-only
"""The limit of open files: raised for a recording, which holds a descriptor for much it attaches.

Where it is too small, whatever happens to be opened last fails, and each of these failures would
name a reason of its own. So the limit is seen to before anything is opened.
"""

import os
import resource
from typing import Final

from tlstax import ExitCode, TlstaxError

BASE_COUNT: Final = 512
"""Maps, programs, one link or perf event for each probe, and the files of the target."""
PER_CPU_COUNT: Final = 8
"""Perf events of each CPU, and room for those of the sources."""


def require_open_files() -> None:
    """Raise the limit to what a recording may need. TlstaxError (HOST) if that is not allowed."""
    needed = BASE_COUNT + PER_CPU_COUNT * (os.cpu_count() or 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    is_enough = hard == resource.RLIM_INFINITY or hard >= needed
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard if is_enough else needed))
    except (OSError, ValueError):  # ValueError: a hard limit without CAP_SYS_RESOURCE
        raise TlstaxError(
            "too few files may be open",
            f"the limit is {hard}, and a recording on this host needs up to {needed}",
            f"Raise it (ulimit -n {needed}), or run as root with CAP_SYS_RESOURCE",
            ExitCode.HOST,
        ) from None
