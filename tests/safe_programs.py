# SPDX-License-Identifier: GPL-2.0-only
"""The ledger's programs as a recording chooses them, for tests that load them themselves."""

from functools import cache
from pathlib import Path

from tlstax.collectors.host.engine_trial import GUARDED
from tlstax.collectors.preflight.examination import examine
from tlstax.collectors.preflight.safety import restrictions
from tlstax.tests.loader.libbpf import object_path


@cache
def is_guarded() -> bool:
    """Whether this kernel needs programs that cannot be preempted.

    On a preemptible kernel since Linux 6.13 the usual ones can end the kernel (private-stacks).
    """
    return restrictions(examine(None)).guarded


def safe_programs() -> Path | None:
    """The object that this kernel bears; None: the usual one."""
    return object_path(GUARDED) if is_guarded() else None
