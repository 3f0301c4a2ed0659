# SPDX-License-Identifier: GPL-2.0-only
"""Show what would be probed in a process, where, and why there. Nothing is attached.

`tlstax probes plan PID` reads the process's binaries from /proc and prints one line per probe: the
boundary it times, the function, the instruction it would sit on, whether the kernel emulates that
instruction (one trap) or single-steps it (two traps, about 35 times as long), what a hit costs, and
why it is there. Then come the cost per command, handshake and connection, what is unusual about the
process, and what is unavailable. `-v` adds what was not chosen, and why.

`--output FILE` writes the plan as a text for `tlstax-recorder`, which records every process of the
same build with it (docs/plan-file.md).

Costs are those of the process's host, measured on tlstax's own code (`tlstax doctor --calibrate`)
on as many CPUs at once as the process may use.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.commands import programs
from tlstax.collectors.commands.options import (
    accept_option,
    functions_option,
    remote_options,
    require_ssh,
    target_options,
    target_pid,
)
from tlstax.probes.model import Level

if TYPE_CHECKING:
    from tlstax.collectors.placement.model import Plan
    from tlstax.collectors.preflight.safety import Safety
    from tlstax.collectors.remote.remote_plan import RemotePlan


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `tlstax probes`."""
    parser = subparsers.add_parser(
        "probes",
        help="show what would be probed in a process, and why",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="probes_action", metavar="ACTION", required=True)
    programs.register(actions)
    plan = actions.add_parser("plan", help="print the plan for a process")
    target_options(plan)
    plan.add_argument(
        "--level",
        choices=[level.name.lower() for level in Level],
        default=Level.RECORD.name.lower(),
        help="how much is probed (default: %(default)s)",
    )
    plan.add_argument(
        "--definitions", type=Path, metavar="DIR", help="directory with further definitions (.toml)"
    )
    plan.add_argument(
        "--client", action="store_true", help="plan it as a client, as `attach --client` does"
    )
    plan.add_argument(
        "-v", "--verbose", action="store_true", help="also what was not chosen, and why"
    )
    plan.add_argument(
        "--functions",
        type=functions_option,
        metavar="LIST",
        help="also the functions that `tlstax attach --functions LIST` would count",
    )
    plan.add_argument(
        "--calibrate",
        action="store_true",
        help="with --output and --level flow: also the probes of calibration stretches",
    )
    accept_option(plan)
    plan.add_argument("--json", action="store_true", help="machine-readable output")
    plan.add_argument(
        "--output", type=Path, metavar="FILE", help="write a plan file for tlstax-recorder instead"
    )
    plan.add_argument("--force", action="store_true", help="replace an existing plan file")
    remote_options(plan)
    plan.set_defaults(run=run_plan)


def run_plan(options: argparse.Namespace) -> int:
    """Print the plan. Raises TlstaxError when the process cannot be measured."""
    require_ssh(options)
    if options.calibrate and not (options.output and options.level == Level.FLOW.name.lower()):
        raise TlstaxError(
            "--calibrate was given without --output or without --level flow",
            "calibration stretches belong to level flow, and only the recorder takes them",
            "give --level flow --calibrate --output FILE",
            ExitCode.USAGE,
        )
    if options.ssh:
        return _plan_there(options)
    if options.output:
        return _write_plan_file(options)
    return _print_plan(options)


def _print_plan(options: argparse.Namespace) -> int:
    # The planner belongs to a later stage; only this command imports it.
    from tlstax.collectors.commands.plan_text import as_document, as_lines
    from tlstax.collectors.host.probe_costs.costs import this_host_costs
    from tlstax.collectors.host.probe_costs.prices import tell_unmeasured
    from tlstax.collectors.placement.placement import plan
    from tlstax.collectors.preflight.examination import examine
    from tlstax.collectors.preflight.safety import at_level, restrictions
    from tlstax.collectors.process.target import open_target
    from tlstax.collectors.process.usable_cpus import usable_cpus_count
    from tlstax.probes.definitions import load_definitions

    definitions = load_definitions(options.definitions)
    pid = target_pid(options)
    target = open_target(pid)
    role = "client" if options.client else "server"
    asked = Level[options.level.upper()]
    safety, level = at_level(restrictions(examine(pid, options.accept)), asked)
    notes: list[str] = []
    costs = this_host_costs(notes.append)
    planned = plan(target, definitions, level, role, costs, safety.limits)
    for note in notes:
        tell_unmeasured(note)
    planned = planned.priced(costs.on(usable_cpus_count(pid, target.proc)))
    planned = _with_notes(planned, safety)
    document, lines = as_document(target, planned), as_lines(target, planned, options.verbose)
    if options.functions:
        from tlstax.collectors.commands import function_listing
        from tlstax.collectors.placement.function_sites import plan_functions

        functions = plan_functions(target, definitions, options.functions, safety.limits)
        document |= function_listing.as_document(functions)
        lines += function_listing.as_lines(functions)
    print(json.dumps(document, indent=2) if options.json else "\n".join(lines))
    return int(ExitCode.OK)


def _with_notes(planned: "Plan", safety: "Safety") -> "Plan":
    """The plan with what preflight says."""
    notes = (f"preflight ({note.hazard}): {note.text}" for note in safety.notes)
    return replace(planned, notes=(*planned.notes, *notes))


def _plan_there(options: argparse.Namespace) -> int:
    """Print or write the plan for a process of another host."""
    from tlstax.collectors.commands import function_listing
    from tlstax.collectors.commands.plan_text import as_document, as_lines
    from tlstax.collectors.commands.remote import plan_elsewhere

    if options.output and not options.force:
        from tlstax.collectors.recording.stream.plan_file import require_no_plan

        require_no_plan(options.output)

    def show(made: "RemotePlan") -> None:
        if options.output:
            from tlstax.collectors.recording.stream.plan_file import write_plan_file

            write_plan_file(options.output, made.text(), options.force)
            print(f"{options.output}: {len(made.plan.sites)} probes for {made.target.exe}")
            return
        planned, covered = _with_notes(made.plan, made.safety), made.sockets
        document = as_document(made.target, planned, covered)
        lines = as_lines(made.target, planned, options.verbose, covered)
        if made.functions:
            document |= function_listing.as_document(made.functions)
            lines += function_listing.as_lines(made.functions)
        print(json.dumps(document, indent=2) if options.json else "\n".join(lines))

    return plan_elsewhere(options, show)


def _write_plan_file(options: argparse.Namespace) -> int:
    """Write the plan for the recorder. Raises TlstaxError when the process cannot be recorded."""
    from tlstax.collectors.placement.planning import plan_functions_in_child, plan_in_child
    from tlstax.collectors.preflight.safety import at_level
    from tlstax.collectors.recording.safe_request import preflight, require_functions
    from tlstax.collectors.recording.stream.plan_file import (
        plan_file_text,
        require_no_plan,
        write_plan_file,
    )
    from tlstax.collectors.recording.stream.tables_file import process_tables, write_tables

    pid = target_pid(options)
    safety, level = at_level(preflight(pid, options.accept), Level[options.level.upper()])
    role = "client" if options.client else "server"
    target, planned = plan_in_child(pid, level, options.definitions, role, safety.limits)
    functions = None
    if options.functions:
        require_functions(safety)
        of_functions = (pid, options.functions, options.definitions, safety.limits)
        functions = plan_functions_in_child(*of_functions)
    stretches = None
    if options.calibrate and planned.is_flow:
        asked = (pid, Level.RECORD, options.definitions, role, safety.limits)
        stretches = plan_in_child(*asked)[1]
    text = plan_file_text(target, planned, safety, functions, stretches)
    made = process_tables(pid, known=target.objects) if safety.user_stacks else None
    if not options.force:
        require_no_plan(options.output)
    # The larger file first. Its tables are found by build-id: they also suit an earlier plan.
    tables = write_tables(options.output, made, options.force)
    try:
        write_plan_file(options.output, text, options.force)
    except BaseException:
        if tables and not options.force:
            tables.unlink(missing_ok=True)
        raise
    print(f"{options.output}: {len(planned.sites)} probes for {target.exe}")
    if tables:
        print(f"{tables}: unwind tables, which the recorder looks for beside the plan")
    return int(ExitCode.OK)
