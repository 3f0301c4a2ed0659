# SPDX-License-Identifier: GPL-2.0-only
"""What preflight found, as text and as JSON: one line for each hazard, with the verdict last."""

from collections.abc import Iterable, Sequence

from tlstax import ExitCode
from tlstax.collectors.preflight.hazards import VARIANTS
from tlstax.collectors.preflight.judge import Finding, Status


def render_findings(findings: Sequence[Finding]) -> str:
    """A line for each hazard: its status, its name for --accept, and why."""
    widest = max(len(finding.hazard.id) for finding in findings)
    return "\n".join(
        f"{finding.status:<14}{finding.hazard.id:<{widest}}  {finding.sentence()}"
        for finding in findings
    )


def findings_json(findings: Iterable[Finding]) -> list[dict[str, object]]:
    """The findings as a JSON document holds them."""
    return [
        {
            "id": finding.hazard.id,
            "title": finding.hazard.title,
            "what": finding.hazard.what,
            "status": str(finding.status),
            "why": finding.why,
            "variant": finding.variant,
            "source": list(finding.hazard.source),
        }
        for finding in findings
    ]


def findings_verdict(pid: int, findings: Sequence[Finding]) -> str:
    """One sentence: what a recording of the process does, or why it is refused."""
    refused = [finding.hazard.id for finding in findings if finding.status == Status.REFUSED]
    if refused:
        options = " ".join(f"--accept {name}" for name in refused)
        return (
            f"`attach` does not record process {pid} because of {', '.join(refused)}. "
            f"If you know better: {options}."
        )
    variants = [f.hazard.variant for f in findings if f.status == Status.VARIANT]
    if not variants:
        return f"`attach` records process {pid} without restrictions."
    return f"`attach` records process {pid} with: {'; '.join(VARIANTS[v] for v in variants)}."


def exit_code_of(findings: Iterable[Finding]) -> ExitCode:
    """That of the first refusal, OK without one."""
    codes = [f.hazard.exit_code for f in findings if f.status == Status.REFUSED]
    return codes[0] if codes else ExitCode.OK
