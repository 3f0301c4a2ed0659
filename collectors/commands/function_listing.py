# SPDX-License-Identifier: GPL-2.0-only
"""What `tlstax probes plan --functions` prints: the functions that would be counted, and where."""

from typing import Any

from tlstax.collectors.capture.printable import visible
from tlstax.collectors.commands.plan_text import site_lines
from tlstax.collectors.placement.model import FunctionPlan, ProbedFunction


def as_document(planned: FunctionPlan) -> dict[str, Any]:
    """The plan as plain data."""
    return {
        "functions": [
            {
                "primitive": probed.primitive.id,
                "category": probed.primitive.category,
                "unit": probed.primitive.unit,
                "function": probed.function,
                "object": probed.object.path,
                "bytes": str(probed.primitive.size),
                "why_not_timed": probed.why_not_timed,
                "sites": [
                    {
                        "event": site.event,
                        "kind": site.kind,
                        "function": site.function,
                        "file_offset": site.file_offset,
                        "instruction": site.instruction,
                        "stepped": site.stepped,
                        "reason": site.reason,
                    }
                    for site in probed.sites
                ],
            }
            for probed in planned.functions
        ],
        "missing_functions": list(planned.absent),
        "unsafe_functions": list(planned.unsafe),
    }


def as_lines(planned: FunctionPlan) -> list[str]:
    """The plan as text for a terminal."""
    lines = [""]
    for probed in planned.functions:
        lines += _function_lines(probed)
    sites = [site for probed in planned.functions for site in probed.sites]
    stepped = sum(site.stepped for site in sites)
    lines.append("")
    lines.append(
        f"{len(planned.functions)} functions, {len(sites)} probes, {stepped} of them on a "
        "single-stepped instruction"
    )
    if planned.absent:
        lines.append(f"not in this process: {', '.join(planned.absent)}")
    if planned.unsafe:
        names = ", ".join(planned.unsafe)
        lines.append(f"left out, as only a probe that is not safe here would see them: {names}")
    return lines


def _function_lines(probed: ProbedFunction) -> list[str]:
    size = str(probed.primitive.size)
    found = f"{probed.primitive.category}, {probed.primitive.unit}"
    found += f", bytes: {size}" if size else ""
    found += f"; counted only: {probed.why_not_timed}" if probed.why_not_timed else ""
    lines = [f"{probed.primitive.id}: {visible(found)}"]
    return lines + [f"  {line}" for site in probed.sites for line in site_lines(site)]
