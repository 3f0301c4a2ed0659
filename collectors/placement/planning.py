# SPDX-License-Identifier: GPL-2.0-only
"""Plans the probes in a child process, so that the attached process stays small.

Planning needs a disassembler and an ELF reader (about 17 MB and 0.1 s). `plan_in_child` runs it in
a forked child and returns the result: the process that stays attached for hours loads neither.
This module must not import them. A plan that is kept needs neither, and no child.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tlstax import TlstaxError
from tlstax.collectors.host.child import run_in_child
from tlstax.collectors.host.probe_costs.prices import HostCosts, tell_unmeasured
from tlstax.collectors.placement.model import NO_LIMITS, FunctionPlan, Limits, Plan
from tlstax.collectors.process.mappings import PROC
from tlstax.collectors.process.target import Target
from tlstax.probes.model import Level


def plan_in_child(
    pid: int,
    level: Level = Level.RECORD,
    extra: Path | None = None,
    role: str = "server",
    limits: Limits = NO_LIMITS,
    proc: Path = PROC,
    *,
    networks: bool = False,
) -> tuple[Target, Plan]:
    """Read the process and plan its probes, in a forked child that has ended on return.

    `extra` is a directory of further definitions; `proc` as in `process.mappings`: for another host
    than this one the default costs are used. `networks`: also probe what tells from where clients
    connect. Hits are priced for the CPUs that the process may use;
    where the probes are does not depend on that. Raises what open_target, load_definitions and
    plan raise (TlstaxError); call it before starting threads.
    """
    asked = _Asked(pid, level, extra, role, limits, proc, networks)
    with suppress(OSError):  # it has ended: the child says so
        kept = _kept(asked)
        if kept is not None:
            return kept
    target, made, notes = run_in_child(f"Examining process {pid}", lambda: _plan(asked))
    for note in notes:
        tell_unmeasured(note)
    return target, made


class _Asked(NamedTuple):
    """The arguments of plan_in_child()."""

    pid: int
    level: Level
    extra: Path | None
    role: str
    limits: Limits
    proc: Path
    networks: bool

    def of(self, made: Plan) -> Plan:
        """The plan without what was not asked for."""
        return made.as_asked(networks=self.networks and self.role == "server")


def _kept(asked: _Asked) -> tuple[Target, Plan] | None:
    """Target and plan, if the plan and the prices of this host are kept."""
    from tlstax.collectors.host.probe_costs import costs
    from tlstax.collectors.placement.plan_cache import has_plans, kept_plan, key_of
    from tlstax.collectors.process.target import open_target
    from tlstax.collectors.process.usable_cpus import usable_cpus_count
    from tlstax.probes.definitions import definition_files

    here = asked.proc == PROC
    prices = costs.load(costs.path(), costs.host()) if here else HostCosts()
    if prices is None or not has_plans():
        return None
    target = open_target(asked.pid, asked.proc)
    contents = [content for _, content in definition_files(asked.extra)]
    made = kept_plan(
        key_of(target, contents, asked.level, asked.role, prices, asked.limits), target
    )
    if made is None:
        return None
    made = asked.of(made)
    return target, made.priced(prices.on(usable_cpus_count(asked.pid, asked.proc)))


def _plan(asked: _Asked) -> tuple[Target, Plan, list[str]]:
    """Target, plan, and why the costs are not those of this host."""
    from tlstax.collectors.host.probe_costs.costs import this_host_costs
    from tlstax.collectors.placement.plan_cache import key_of
    from tlstax.collectors.process.target import open_target
    from tlstax.collectors.process.usable_cpus import usable_cpus_count
    from tlstax.probes.definitions import definition_files

    pid, level, extra, role, limits, proc, _ = asked
    target = open_target(pid, proc)
    notes: list[str] = []
    try:
        costs = this_host_costs(notes.append) if proc == PROC else HostCosts()
        files = definition_files(extra)
        contents = [content for _, content in files]
        key = key_of(target, contents, level, role, costs, limits)
        made = asked.of(_plan_once(key, target, asked, files, costs))
        return target, made.priced(costs.on(usable_cpus_count(pid, proc))), notes
    except (TlstaxError, OSError):
        open_target(pid, proc)  # if it has ended meanwhile, that is the reason
        raise


def _plan_once(
    key: str, target: Target, asked: _Asked, files: list[tuple[str, bytes]], costs: HostCosts
) -> Plan:
    """The plan of that key: of processes that ask for it at the same time, the first one makes it.

    `tlstax fleet record` runs many of them, whose hosts often have the same build. Files of other
    hosts were fetched before, so nobody waits for another host here.
    """
    from tlstax.collectors.placement.plan_cache import keep_plan, kept_plan, planning_turn

    with planning_turn(key):
        if kept := kept_plan(key, target):
            return kept
        from tlstax.collectors.placement.placement import plan  # not needed for a kept plan
        from tlstax.probes.definitions import parse_definitions

        definitions = parse_definitions(files)
        made = plan(target, definitions, asked.level, asked.role, costs, asked.limits)
        keep_plan(key, target, made)
        return made


def plan_functions_in_child(
    pid: int,
    names: Sequence[str],
    extra: Path | None = None,
    limits: Limits = NO_LIMITS,
    proc: Path = PROC,
) -> FunctionPlan:
    """Find the functions of categories or ids in a process.

    `extra`, `limits` and `proc` as of plan_in_child. Raises TlstaxError: USAGE for a name that no
    definition knows, TARGET when the process has none of the functions or too many, HOST when
    `limits` leave none.
    """
    asked = pid, names, extra, limits, proc
    return run_in_child(f"Examining process {pid}", lambda: _plan_functions(*asked))


def _plan_functions(
    pid: int, names: Sequence[str], extra: Path | None, limits: Limits, proc: Path
) -> FunctionPlan:
    from tlstax.collectors.placement.function_sites import plan_functions
    from tlstax.collectors.process.target import open_target
    from tlstax.probes.definitions import load_definitions

    target = open_target(pid, proc)
    try:
        return plan_functions(target, load_definitions(extra), names, limits)
    except (TlstaxError, OSError):
        open_target(pid, proc)
        raise
