# SPDX-License-Identifier: GPL-2.0-only
"""Which functions of the TLS library `--functions` would probe, and where.

The planning itself (`tlstax.collectors.function_sites`) needs a disassembler, so it is done in a
forked child, as for the ledger's boundaries. This module imports none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tlstax.collectors.child import run_in_child
from tlstax.collectors.mappings import MappedObject
from tlstax.collectors.planning import Site
from tlstax.probes.primitives import Primitive

MAX_FUNCTIONS = (
    64  # that the programs tell apart (probes/bpf/functions.h), one is the calibration's
)


@dataclass(frozen=True)
class ProbedFunction:
    """A function in one object of the target, with its probes."""

    primitive: Primitive
    function: str  # symbol
    object: MappedObject
    sites: tuple[Site, ...]
    why_not_timed: str  # "" where it is timed, else it is counted only


@dataclass(frozen=True)
class FunctionPlan:
    """What would be probed, and what was asked for and is not in the target."""

    pid: int
    functions: tuple[ProbedFunction, ...]
    absent: tuple[str, ...]  # ids of primitives


def plan_functions_in_child(
    pid: int, names: Sequence[str], extra: Path | None = None
) -> FunctionPlan:
    """Find the functions of categories or ids in a process.

    `extra` is a directory of further definitions. Raises TlstaxError: USAGE for a name that no
    definition knows, TARGET when the process has none of the functions or too many.
    """
    return run_in_child(f"Examining process {pid}", lambda: _plan(pid, names, extra))


def _plan(pid: int, names: Sequence[str], extra: Path | None) -> FunctionPlan:
    from tlstax.collectors.function_sites import plan_functions
    from tlstax.collectors.target import open_target
    from tlstax.probes.definitions import load_definitions

    return plan_functions(open_target(pid), load_definitions(extra), names)
