# SPDX-License-Identifier: GPL-2.0-only
"""The ledger's programs as a recording chooses them, for tests that load them themselves."""

from functools import cache
from pathlib import Path

from tlstax.collectors.host.engine_trial import GUARDED
from tlstax.collectors.preflight.examination import examine
from tlstax.collectors.preflight.safety import restrictions
from tlstax.tests.loader.libbpf import object_path


@cache
def safe_programs() -> Path | None:
    """The object that this kernel bears; None: the usual one.

    On a preemptible kernel since Linux 6.13 the usual one can end the kernel (private-stacks).
    """
    return object_path(GUARDED) if restrictions(examine(None)).guarded else None
