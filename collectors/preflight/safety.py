# SPDX-License-Identifier: GPL-2.0-only
"""From findings to what a recording leaves out, or to the error that refuses it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from tlstax import TlstaxError
from tlstax.collectors.host.features import HOST, lack_of_sockets, socket_source
from tlstax.collectors.host.socket_events import SocketSource
from tlstax.collectors.placement.model import NO_LIMITS, Limits
from tlstax.collectors.preflight.hazards import VARIANTS
from tlstax.collectors.preflight.judge import Finding, Status
from tlstax.probes.model import Level

# What these leave out, if anything, the plan itself names, probe by probe.
_SEEN_IN_PLAN: Final = frozenset(
    {
        "leaf-return-probes",
        "no-return-probes",
        "no-nop5-probes",
        "no-stepped-probes",
        "single-probes",
        "guarded-programs",
    }
)

_SOCKET_EVENTS: Final = "socket-events"
_WITHOUT_EVENTS: Final = (
    "Level flow needs events of sockets (tracepoints of Linux 6.3, or programs at the returns of "
    "the kernel's functions), which this kernel lacks{why}: recorded at level command, which has "
    "two probes for each command."
)


class Note(NamedTuple):
    """What a recording lacks because of a hazard."""

    hazard: str
    text: str  # one or two sentences


_BY_FUNCTIONS: Final = Note(
    _SOCKET_EVENTS,
    "Commands are told by returns of the kernel's socket functions, as this kernel lacks the "
    "tracepoints (Linux 6.3): a receive that waited when tlstax attached is not seen to end.",
)


@dataclass(frozen=True)
class Safety:
    """How a recording stays safe. The default restricts nothing."""

    level_most: Level = Level.RECORD
    samples: bool = True
    user_stacks: bool = True
    guarded: bool = False  # uprobe programs that cannot be preempted
    limits: Limits = NO_LIMITS
    notes: tuple[Note, ...] = ()
    causes: tuple[tuple[str, str], ...] = ()  # hazard and the variant that is applied for it

    def causes_of(self, *variants: str) -> list[str]:
        """The hazards behind any of these variants."""
        return [hazard for hazard, variant in self.causes if variant in variants]


def safety_of(pid: int, findings: Sequence[Finding]) -> Safety:
    """What follows from the findings. Raises TlstaxError (HOST, TARGET) if one refuses."""
    for finding in findings:
        if finding.status == Status.REFUSED:
            raise _refusal(pid, finding)
    return restrictions(findings)


def at_level(
    safety: Safety, level: Level, sockets: SocketSource | None = None
) -> tuple[Safety, Level]:
    """What is recorded where `level` was asked for, with notes on what that lacks.

    `sockets`: what the kernel's events of sockets come from; None: as on this host.
    """
    level = min(level, safety.level_most)
    if level != Level.FLOW:
        return safety, level
    found = sockets or socket_source(HOST)
    if found == SocketSource.TRACEPOINTS:
        return safety, level
    if found == SocketSource.FUNCTIONS:
        return noted(safety, _BY_FUNCTIONS), level
    why = f" ({lack_of_sockets(HOST)})" if sockets is None else ""
    text = _WITHOUT_EVENTS.format(why=why)
    return noted(safety, Note(_SOCKET_EVENTS, text)), Level.COMMAND


def noted(safety: Safety, note: Note) -> Safety:
    """With a note, which is there once."""
    if note in safety.notes:
        return safety
    return replace(safety, notes=(*safety.notes, note))


def restrictions(findings: Sequence[Finding]) -> Safety:
    """What a recording leaves out, refused or not."""
    variants = {finding.variant for finding in findings}
    return Safety(
        level_most=Level.SAMPLE if "sample-only" in variants else Level.RECORD,
        samples="no-samples" not in variants,
        user_stacks="no-user-stacks" not in variants,
        guarded="guarded-programs" in variants,
        limits=Limits(
            return_probes="no-return-probes" not in variants,
            nop5="no-nop5-probes" not in variants,
            stepped="no-stepped-probes" not in variants,
        ),
        notes=tuple(
            Note(finding.hazard.id, _sentence(finding))
            for finding in findings
            if finding.status == Status.ACCEPTED
            or (finding.variant and finding.variant not in _SEEN_IN_PLAN)
        ),
        causes=tuple((f.hazard.id, f.variant) for f in findings if f.variant),
    )


def _sentence(finding: Finding) -> str:
    hazard = finding.hazard
    text = f"{finding.why}. {hazard.what}."
    if finding.status == Status.ACCEPTED:
        text = f"Accepted: {text}"
    elif hazard.variant != "warn":
        text = f"{VARIANTS[hazard.variant]}: {text}"
    return f"{text[0].upper()}{text[1:]}"


def _refusal(pid: int, finding: Finding) -> TlstaxError:
    hazard = finding.hazard
    return TlstaxError(
        f"process {pid} is not recorded ({hazard.title})",
        f"{finding.why}; {hazard.what[0].lower()}{hazard.what[1:]}",
        f"End that, or give --accept {hazard.id} if you know better",
        hazard.exit_code,
    )
