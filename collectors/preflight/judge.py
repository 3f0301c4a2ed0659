# SPDX-License-Identifier: GPL-2.0-only
"""From hazards, kernel, trials and readings to findings: one for each hazard, with what is done.

A trial decides over any version. Without one, the ranges of kernels decide. A hazard of which
nothing is known is never `ok`; one that could not be tried is treated as if it were there.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.preflight.hazards import VARIANTS, Hazard
from tlstax.collectors.preflight.kernel_build import KernelBuild
from tlstax.collectors.preflight.target_facts import CHECKS, TargetFacts
from tlstax.collectors.preflight.trial_child import Outcome, State

MANY_CPUS = 16
"""From this many CPUs on, the lock that every hit takes is worth a warning."""


class Status(StrEnum):
    """What a hazard means for a recording."""

    OK = "ok"
    NOT_AFFECTED = "not affected"
    VARIANT = "safe variant"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    ACCEPTED = "accepted"


@dataclass(frozen=True)
class Finding:
    """A hazard, its status here, and why, as one clause."""

    hazard: Hazard
    status: Status
    why: str

    @property
    def variant(self) -> str:
        """What a recording does because of it, a key of VARIANTS; "" for nothing."""
        return self.hazard.variant if self.status in (Status.VARIANT, Status.REFUSED) else ""

    def sentence(self) -> str:
        """The finding as text behind its title."""
        if self.status == Status.VARIANT:
            return f"{VARIANTS[self.hazard.variant]}: {self.why}"
        return self.why


@dataclass(frozen=True)
class Observed:
    """All that was seen. `target` is None where only the kernel is examined."""

    kernel: KernelBuild
    outcomes: Mapping[str, Outcome]  # of trials and of readings of the host
    target: TargetFacts | None = None


def judge(
    hazards: Sequence[Hazard], seen: Observed, accepted: Collection[str] = ()
) -> tuple[Finding, ...]:
    """A finding for each hazard; without a target those of targets are left out.

    Raises TlstaxError (USAGE) if `accepted` names a hazard that does not exist.
    """
    unknown = set(accepted) - {hazard.id for hazard in hazards}
    if unknown:
        raise TlstaxError(
            f"--accept {sorted(unknown)[0]} was given",
            "there is no hazard of this name",
            f"Give one of {', '.join(hazard.id for hazard in hazards)}",
            ExitCode.USAGE,
        )
    findings = []
    for hazard in hazards:
        if hazard.kind == "target" and seen.target is None:
            continue
        status, why = _judge(hazard, seen)
        if hazard.id in accepted and status in (Status.VARIANT, Status.REFUSED):
            status = Status.ACCEPTED
        findings.append(Finding(hazard, status, why))
    return tuple(findings)


def _judge(hazard: Hazard, seen: Observed) -> tuple[Status, str]:
    if hazard.kind == "table":
        return _by_table(hazard, seen)
    if hazard.kind == "target" and seen.target is not None:
        outcome = CHECKS[hazard.check](seen.target)
    else:
        nothing = Outcome(State.UNKNOWN, "it was not examined")
        outcome = seen.outcomes.get(hazard.check, nothing)
    if outcome.state == State.SAFE:
        return Status.OK, outcome.found
    if outcome.state == State.ABSENT:
        return Status.NOT_AFFECTED, outcome.found
    if outcome.state == State.UNKNOWN and hazard.kind != "trial":
        return Status.UNKNOWN, outcome.found
    return _affected(hazard, seen, outcome.found)


def _by_table(hazard: Hazard, seen: Observed) -> tuple[Status, str]:
    kernel = seen.kernel
    marks = []
    if not hazard.confirmed:
        marks.append("as reported")
    if kernel.distribution and kernel.release not in hazard.verified:
        marks.append(f"nobody verified this build of {kernel.distribution}")
    mark = f" ({'; '.join(marks)})" if marks else ""
    if not hazard.affects(kernel.version):
        if not kernel.keeps_upstream and kernel.release not in hazard.verified:
            why = f"Linux {kernel.name} has changes of {kernel.distribution}, of which nothing is"
            return Status.UNKNOWN, f"{why} known; affected: {hazard.ranges()}"
        return Status.NOT_AFFECTED, f"Linux {kernel.name}; affected: {hazard.ranges()}{mark}"
    if hazard.symbol and not kernel.has_symbol(hazard.symbol):
        return Status.NOT_AFFECTED, f"the kernel has no {hazard.symbol}()"
    return _affected(hazard, seen, f"Linux {kernel.name} is affected{mark}")


def _affected(hazard: Hazard, seen: Observed, why: str) -> tuple[Status, str]:
    """What follows where kernel or trial show the hazard and its condition decides."""
    missing, only = _condition(hazard, seen)
    if missing:
        return Status.NOT_AFFECTED, missing
    status = Status.REFUSED if hazard.variant == "refuse" else Status.VARIANT
    return status, f"{why}{only}"


def _condition(hazard: Hazard, seen: Observed) -> tuple[str, str]:
    """Why the condition does not hold ("" if it may), and for which processes it does."""
    kernel, target = seen.kernel, seen.target
    if hazard.condition == "preemption":
        if kernel.preemptible is False:
            return "threads are not preempted inside this kernel", ""
        return "", "" if kernel.preemptible else "; whether it is preemptible is unknown"
    if hazard.condition == "many_cpus":
        few = kernel.cpu_count < MANY_CPUS
        return (f"{kernel.cpu_count} CPUs share the lock", "") if few else ("", "")
    about = {
        "seccomp": ("a seccomp filter", target is not None and target.seccomp > 0),
        "shadow_stack": ("a shadow stack", target is not None and target.shadow_stack),
        "overlay": ("files on overlayfs", target is not None and "overlay" in target.file_systems),
    }
    if hazard.condition not in about:
        return "", ""
    name, holds = about[hazard.condition]
    if target is None:
        return "", f" (processes with {name})"
    return ("", "") if holds else (f"the process has no {name.removeprefix('a ')}", "")
