# SPDX-License-Identifier: GPL-2.0-only
"""Test what tlstax can do on this host, and print what to do about the rest.

Without PID: what this host supports, and the hazards of its kernel. Every line is one test on
doctor's own process (no other process is touched): what was tested, whether it works, what was
found, and, if it does not work, what needs it and what to do.
Also works without root and then prints what is missing. Exit status: 0 if the native engine can
run on this host, 3 if it cannot.

With PID: the hazards of this kernel and of this process, one line each: ok, not affected (and why),
safe variant (what a recording then does), refused, or unknown. What can hurt only a process is
tried on a process of doctor's own; what can hurt the kernel is never tried but told by the kernel's
version (docs/preflight.md has the list). The process is only read. Exit status: 0 if it can be
recorded, else 3 or 4.

With --calibrate it measures the cost of one hit of each kind of probe instead, on its own
functions: the median in nanoseconds with its 95 % interval. Plans and recordings use these costs
for a week.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from tlstax import ExitCode, TlstaxError, __version__
from tlstax.collectors.capture.printable import complain
from tlstax.collectors.commands.hazard_text import (
    exit_code_of,
    findings_json,
    findings_verdict,
    render_findings,
)
from tlstax.collectors.commands.options import accept_option, remote_options, require_ssh
from tlstax.collectors.host.checks import Answer, engines, examine_all, ready
from tlstax.collectors.preflight.examination import examine
from tlstax.collectors.process.mappings import require_proc

if TYPE_CHECKING:
    from tlstax.collectors.host.probe_costs.prices import HostCosts
    from tlstax.collectors.preflight.judge import Finding

MARKS = {"note": "note", "engine": "absent", "useful": "lacks", "uprobe": "lacks"}


def render(answers: list[Answer]) -> str:
    """The answers as lines of text, with the verdict last."""
    width = max(len(answer.title) for answer in answers)
    lines = []
    for answer in answers:
        mark = "yes" if answer.ok else MARKS.get(answer.need, "NO")
        lines.append(f"{mark:<7}{answer.title:<{width}}  {answer.found}")
        if not answer.ok:
            indent = " " * (7 + width + 2)
            lines.append(f"{indent}needed for: {answer.needed_for}")
            lines.append(f"{indent}what to do: {answer.do}")
    return "\n".join([*lines, "", verdict(answers)])


def verdict(answers: list[Answer]) -> str:
    """One sentence: can the native engine run, and if not, what is missing."""
    if ready(answers):
        lacking = [answer.title for answer in answers if not answer.ok and answer.need == "useful"]
        rest = f" Without: {', '.join(lacking)}." if lacking else ""
        return f"This host can be measured. Engines: {', '.join(engines(answers))}.{rest}"
    missing = [answer.title for answer in answers if not answer.ok and answer.need == "required"]
    if not any(answer.ok for answer in answers if answer.need == "uprobe"):
        missing.append("uprobes")
    return f"This host cannot be measured. Missing: {', '.join(missing)}. What to do: see above."


def run(options: argparse.Namespace) -> int:
    """Print the answers; the exit status shows whether the native engine can run."""
    require_ssh(options)
    if options.ssh:
        return examine_target_there(options)
    require_proc("this host cannot be examined")
    if options.calibrate:
        return calibrate(options.json)
    if options.pid is not None:
        return examine_target(options.pid, options.accept, options.json)
    answers = examine_all()
    findings = examine(None, options.accept, afresh=True)
    if options.json:
        document = {
            "tlstax_version": __version__,
            "ready": ready(answers),
            "engines": engines(answers),
            "checks": [asdict(answer) for answer in answers],
            "hazards": findings_json(findings),
        }
        print(json.dumps(document, indent=2))
    else:
        print(f"Hazards of this kernel:\n\n{render_findings(findings)}\n")
        print(f"What this host supports:\n\n{render(answers)}")
    return ExitCode.OK if ready(answers) else ExitCode.HOST


def examine_target(pid: int, accepted: Sequence[str], as_json: bool) -> int:
    """Print the hazards of this kernel and of a process."""
    return show_findings(pid, examine(pid, accepted, afresh=True), as_json)


def examine_target_there(options: argparse.Namespace) -> int:
    """Print the hazards of a process of another host and of its kernel."""
    if options.pid is None or options.calibrate:
        raise TlstaxError(
            "doctor --ssh was given without PID, or with --calibrate",
            "only a process and the hazards of its kernel are examined on another host",
            "Give the process id, or run `tlstax doctor` there",
            ExitCode.USAGE,
        )
    from tlstax.collectors.commands.remote import examine_there

    return show_findings(options.pid, examine_there(options), options.json)


def show_findings(pid: int, findings: Sequence["Finding"], as_json: bool) -> int:
    """Print findings on a process; the exit status is what a recording would have."""
    if as_json:
        document = {"tlstax_version": __version__, "pid": pid, "hazards": findings_json(findings)}
        print(json.dumps(document, indent=2))
    else:
        print(f"{render_findings(findings)}\n\n{findings_verdict(pid, findings)}")
    return exit_code_of(findings)


def calibrate(as_json: bool) -> int:
    """Measure every kind of probe, keep the result, print it. TlstaxError HOST if none works."""
    # Only here: examining a host needs none of it.
    from tlstax.collectors.host.features import HOST
    from tlstax.collectors.host.probe_costs.calibration_events import measure_all
    from tlstax.collectors.host.probe_costs.costs import host, own_cpus_count, path, save
    from tlstax.collectors.host.probe_costs.prices import host_costs_of

    host_costs = host_costs_of(measure_all(complain), HOST.emulated_forms.ask())
    if not host_costs.measured:
        raise TlstaxError(
            "probe costs cannot be calibrated on this host",
            "the kernel refuses a uprobe on a function of this process",
            "run `tlstax doctor` to see what this host lacks",
            ExitCode.HOST,
        )
    save(path(), host(), host_costs, own_cpus_count())
    if as_json:
        rows = [row._asdict() for row in host_costs.rows]
        print(json.dumps({"calibration": rows, "emulated": sorted(host_costs.emulated)}, indent=2))
    else:
        print("\n".join(price_lines(host_costs)))
        print(f"\nkept for a week in {path()}")
    return ExitCode.OK


def price_lines(host_costs: "HostCosts") -> list[str]:
    """The costs as a table, and the instructions that the kernel emulates."""
    lines = [f"{'probe':18} {'on':28} {'CPUs':>4} {'ns per hit':>10}  95 % interval"]
    for row in host_costs.rows:
        interval = f"{row.low_ns:.0f} .. {row.high_ns:.0f}"
        lines.append(
            f"{row.kind:18} {row.instruction:28} {row.cpus_count:4} {row.cost_ns:10.0f}  {interval}"
        )
    more = ", ".join(sorted(host_costs.emulated)) or "nothing"
    lines.append("")
    lines.append(f"emulated in addition to push, nop, jmp, jcc and call: {more}")
    return lines


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the sub-command `doctor`."""
    parser = subparsers.add_parser(
        "doctor",
        help="test what this host supports",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("pid", nargs="?", type=int, metavar="PID", help="examine this process, too")
    accept_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument(
        "--calibrate", action="store_true", help="measure the cost of a probe hit on this host"
    )
    remote_options(parser)
    parser.set_defaults(run=run)
