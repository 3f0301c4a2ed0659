# SPDX-License-Identifier: GPL-2.0-only
"""Show what would be probed in a process, where, and why there. Nothing is attached.

`tlstax probes plan PID` reads the process's binaries from /proc and prints one line per probe: the
boundary it times, the function, the instruction it would sit on, and whether the kernel emulates
that instruction (one trap) or single-steps it (two traps, about 30 times dearer).
"""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tlstax import ExitCode
from tlstax.probes.definitions import Level

if TYPE_CHECKING:
    from tlstax.collectors.planning import Plan, Site
    from tlstax.collectors.target import Target


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `tlstax probes`."""
    parser = subparsers.add_parser(
        "probes",
        help="show what would be probed in a process, and why",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="probes_action", metavar="ACTION", required=True)
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
    plan.add_argument("--json", action="store_true", help="machine-readable output")
    plan.set_defaults(run=run_plan)


def run_plan(options: argparse.Namespace) -> int:
    """Print the plan. Raises TlstaxError when the process cannot be measured."""
    # The planner belongs to a later stage; only this command reaches over to it.
    from tlstax.collectors.find_process import find_by_name
    from tlstax.collectors.placement import plan
    from tlstax.collectors.target import open_target
    from tlstax.probes.definitions import load_definitions

    definitions = load_definitions(options.definitions)
    pid = options.pid if options.pid is not None else find_by_name(options.name)
    target = open_target(pid)
    planned = plan(target, definitions, Level[options.level.upper()])
    if options.json:
        print(json.dumps(as_document(target, planned), indent=2))
    else:
        print("\n".join(as_lines(target, planned)))
    return int(ExitCode.OK)


def as_document(target: "Target", planned: "Plan") -> dict[str, Any]:
    """The plan as plain data. Times are nanoseconds, offsets and addresses bytes."""
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
                "only_in": site.only_in,
                "reason": site.reason,
            }
            for site in planned.sites
        ],
        "missing": [
            {"boundary": m.boundary, "functions": list(m.functions), "consequence": m.consequence}
            for m in planned.missing
        ],
        "gaps": [{"subject": g.boundary, "consequence": g.consequence} for g in planned.gaps],
        "accessors": planned.accessors,
    }


def as_lines(target: "Target", planned: "Plan") -> list[str]:
    """The plan as text for a terminal; names from binaries are shown with escapes."""
    lines = [f"{visible(target.name)} (pid {target.pid}), level {planned.level.name.lower()}"]
    for library in planned.libraries:
        paths = ", ".join(visible(entry.path) for entry in library.objects)
        version = visible(library.version) or f"{library.name}, version unknown"
        lines.append(f"  {version} ({library.linkage}): {paths}")
    lines.append("")
    for site in planned.sites:
        lines += _site_lines(site)
    stepped = sum(site.stepped for site in planned.sites)
    lines.append("")
    lines.append(f"{len(planned.sites)} probes, {stepped} of them on a single-stepped instruction")
    unknown = sorted(name for name, offset in planned.accessors.items() if offset < 0)
    if planned.accessors and not unknown:
        lines.append("all fields that the handshake record needs were found")
    lines += [f"cannot tell: {g.boundary}: {visible(g.consequence)}" for g in planned.gaps]
    lines += [f"missing: {m.boundary}: {m.consequence}" for m in planned.missing]
    return lines


def _site_lines(site: "Site") -> list[str]:
    start = f"{site.boundary} {site.event}"
    where = f"{visible(site.object.name)}+{site.file_offset:#x}"
    price = "stepped" if site.stepped else "emulated"
    inside = f", only in {site.only_in}" if site.only_in else ""
    return [
        f"{start:28} {where:26} {site.instruction:20} {price:9} {site.kind}{inside}",
        f"    {visible(site.function)}: {visible(site.reason)}",
    ]


def visible(text: str) -> str:
    """Text of unknown origin with everything but printable characters escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
