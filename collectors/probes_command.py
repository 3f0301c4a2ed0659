# SPDX-License-Identifier: GPL-2.0-only
"""Show what would be probed in a process, where, and why there. Nothing is attached.

`tlstax probes plan PID` reads the process's binaries from /proc and prints one line per probe: the
boundary it times, the function, the instruction it would sit on, whether the kernel emulates
that instruction (one trap) or single-steps it (two traps, about 35 times dearer), what a hit costs,
and why it is there. Below stand what that makes for each command, handshake and connection, what is
unusual about the process, and what cannot be had. `-v` adds what was not chosen, and why.

Costs are this host's, measured on tlstax's own code (see `tlstax doctor --calibrate`).
"""

import argparse
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tlstax import ExitCode
from tlstax.collectors import bpftrace_command
from tlstax.probes.definitions import Level
from tlstax.probes.primitives import parse_names

if TYPE_CHECKING:
    from tlstax.collectors.planning import Missing, Plan, Site
    from tlstax.collectors.target import Target

_WHY_NONE = {
    "sock_recv_length": "after a command a thread receives nothing but the next one, or the next "
    "boundary says otherwise",
    "sock_send_length": "the result is sent when a send ends and none follows before the next "
    "boundary",
}


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `tlstax probes`."""
    parser = subparsers.add_parser(
        "probes",
        help="show what would be probed in a process, and why",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="probes_action", metavar="ACTION", required=True)
    bpftrace_command.register(actions)
    plan = actions.add_parser("plan", help="print the plan for a process")
    which = plan.add_mutually_exclusive_group(required=True)
    which.add_argument("pid", nargs="?", type=int, help="process id")
    which.add_argument("--name", help="name of the one process that is meant, e.g. mariadbd")
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
    plan.add_argument("--json", action="store_true", help="machine-readable output")
    plan.set_defaults(run=run_plan)


def run_plan(options: argparse.Namespace) -> int:
    """Print the plan. Raises TlstaxError when the process cannot be measured."""
    # The planner belongs to a later stage; only this command reaches over to it.
    from tlstax.collectors.find_process import find_by_name
    from tlstax.collectors.placement import plan
    from tlstax.collectors.price_list import this_kernel
    from tlstax.collectors.target import open_target
    from tlstax.probes.definitions import load_definitions

    definitions = load_definitions(options.definitions)
    pid = options.pid if options.pid is not None else find_by_name(options.name)
    target = open_target(pid)
    role = "client" if options.client else "server"
    planned = plan(target, definitions, Level[options.level.upper()], role, this_kernel())
    document, lines = as_document(target, planned), as_lines(target, planned, options.verbose)
    if options.functions:
        from tlstax.collectors import function_listing
        from tlstax.collectors.function_sites import plan_functions

        functions = plan_functions(target, definitions, options.functions)
        document |= function_listing.as_document(functions)
        lines += function_listing.as_lines(functions)
    print(json.dumps(document, indent=2) if options.json else "\n".join(lines))
    return int(ExitCode.OK)


def functions_option(text: str) -> tuple[str, ...]:
    """Names of categories or primitives, separated by commas."""
    try:
        return parse_names(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None


def as_document(target: "Target", planned: "Plan") -> dict[str, Any]:
    """The plan as plain data. Times are nanoseconds, offsets and addresses bytes."""
    told = sites_told(planned)
    return {
        "pid": target.pid,
        "exe": target.exe,
        "level": planned.level.name.lower(),
        "libraries": [
            {
                "id": library.id,
                "kind": library.kind,
                "version": library.version,
                "linkage": library.linkage,
                "objects": [{"path": o.path, "build_id": o.build_id} for o in library.objects],
            }
            for library in planned.libraries
        ],
        "sites": [
            {
                "boundary": site.boundary,
                "action": site.action,
                "phase": site.phase,
                "event": site.event,
                "kind": site.kind,
                "function": site.function,
                "object": site.object.path,
                "file_offset": site.file_offset,
                "instruction": site.instruction,
                "stepped": site.stepped,
                "cost_ns": site.cost_ns,
                "per": site.per,
                "register": site.register,
                "stack_bytes": site.stack_bytes,
                "only_in": site.only_in,
                "reason": site.reason,
                "kernel_event": site.kernel_event if site in told else "",
            }
            for site in planned.sites
        ],
        "missing": [
            {
                "boundary": m.boundary,
                "functions": list(m.functions),
                "consequence": m.consequence,
                "why": m.why,
            }
            for m in planned.missing
        ],
        "refused": [asdict(refused) for refused in planned.refused],
        "notes": list(planned.notes),
        "prices": {**asdict(planned.kernel.prices), "measured": planned.kernel.measured},
        "totals": [asdict(total) for total in totals_of(s for s in planned.sites if s not in told)],
        "gaps": [{"subject": g.boundary, "consequence": g.consequence} for g in planned.gaps],
        "accessors": planned.accessors,
    }


@dataclass(frozen=True)
class Total:
    """What the probes hit for one operation cost, when each boundary is crossed once for it."""

    per: str
    hits: float
    cost_ns: float


def totals_of(sites: Iterable["Site"]) -> list[Total]:
    """Hits and cost for each command, handshake and connection.

    A boundary with several entries (a function seen at its callers) or exits is crossed at one of
    them, so the dearest counts.
    """
    dearest: dict[tuple[str, str, str], tuple[float, float]] = {}
    for site in sites:
        key = (site.per, site.boundary, site.event)
        crossing = (site.hits * site.cost_ns, site.hits)
        dearest[key] = max(dearest.get(key, (0.0, 0.0)), crossing)
    found = []
    for per in ("command", "handshake", "connection"):
        parts = [value for (of, _, _), value in dearest.items() if of == per]
        if parts:
            found.append(Total(per, sum(hits for _, hits in parts), sum(ns for ns, _ in parts)))
    return found


def as_lines(target: "Target", planned: "Plan", verbose: bool = False) -> list[str]:
    """The plan as text for a terminal; names from binaries are shown with escapes."""
    lines = [f"{visible(target.name)} (pid {target.pid}), level {planned.level.name.lower()}"]
    for library in planned.libraries:
        paths = ", ".join(visible(entry.path) for entry in library.objects)
        version = visible(library.version) or f"{library.name}, version unknown"
        lines.append(f"  {version} ({library.linkage}): {paths}")
    lines.append("")
    told = sites_told(planned)
    for site in planned.sites:
        lines += site_lines(site, told)
    probed = [site for site in planned.sites if site not in told]
    stepped = sum(site.stepped for site in probed)
    lines.append("")
    lines.append(f"{len(probed)} probes, {stepped} of them on a single-stepped instruction")
    if needless := len(planned.sites) - len(probed):
        lines.append(f"{needless} boundaries need no probe here: the kernel's own events tell them")
    lines += [
        f"for each {total.per}: {total.hits:g} hits, {total.cost_ns / 1000:.1f} us, if every"
        " boundary is crossed once"
        for total in totals_of(probed)
    ]
    if not planned.kernel.measured:
        lines.append("prices are those of another machine: nothing could be calibrated here")
    lines += [f"note: {visible(note)}" for note in planned.notes]
    unknown = sorted(name for name, offset in planned.accessors.items() if offset < 0)
    if planned.accessors and not unknown:
        lines.append("all fields that the handshake record needs were found")
    lines += [f"cannot tell: {g.boundary}: {visible(g.consequence)}" for g in planned.gaps]
    lines += [_missing_line(missing) for missing in planned.missing]
    if verbose:
        lines += [
            f"not taken: {r.boundary}: {visible(r.function)}, {r.what}: {visible(r.why)}"
            for r in planned.refused
        ]
    return lines


def _missing_line(missing: "Missing") -> str:
    why = f" ({visible(missing.why)})" if missing.why else ""
    return f"missing: {missing.boundary}: {missing.consequence}{why}"


def sites_told(planned: "Plan") -> frozenset["Site"]:
    """Those that need no probe, because this kernel's own events tell what it would."""
    from tlstax.collectors.libbpf import load_library, tracepoint_argument_counts
    from tlstax.collectors.planning import KERNEL_EVENTS

    counts = tracepoint_argument_counts(load_library(), *KERNEL_EVENTS.values())
    return frozenset(filter(planned.is_told, planned.sites) if all(counts.values()) else ())


def site_lines(site: "Site", told: frozenset["Site"] = frozenset()) -> list[str]:
    """One probe: where it sits and what it costs, and why there; or why it needs none."""
    start = f"{site.boundary} {site.event}"
    if site in told:
        return [f"{start:28} no probe: {site.kernel_event}", f"    {_WHY_NONE[site.kernel_event]}"]
    where = f"{visible(site.object.name)}+{site.file_offset:#x}"
    price = "stepped" if site.stepped else "emulated"
    inside = f", only in {site.only_in}" if site.only_in else ""
    cost = f"{site.cost_ns / 1000:6.2f} us"
    return [
        f"{start:28} {where:26} {site.instruction:20} {price:9} {cost} {site.kind}{inside}",
        f"    {visible(site.function)}: {visible(site.reason)}",
    ]


def visible(text: str) -> str:
    """Text of unknown origin with everything but printable characters escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
