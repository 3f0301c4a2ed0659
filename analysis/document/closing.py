# SPDX-License-Identifier: GPL-2.0-only
"""Closure in a report: the figures, the worst, and what the report may not be used for."""

from collections.abc import Iterator, Sequence
from typing import Final

from tlstax.analysis import quantities
from tlstax.analysis.model.trust import Closure, ClosureFigure
from tlstax.analysis.rows import closure
from tlstax.analysis.rows.closure import OBSERVED_NS, Check
from tlstax.analysis.rows.tables import Tables

_TELLING: Final = 0.005
"""A smaller share of the CPU time is not worth a sentence."""


def close(tables: Tables) -> Closure:
    """The figures of a capture. Captures without references have none that was checked."""
    checks = closure.check(tables)
    judged = [check for check in checks if check.verdict in ("ok", "failed")]
    worst = closure.worst(checks)
    recorded = bool(tables.process_clocks)
    return Closure(
        ok=all(check.verdict == "ok" for check in judged) if judged else None,
        summary=_summary(checks, worst, recorded),
        worst=worst.figure.key if worst else "",
        forbidden=[_forbidden(check) for check in closure.failed(checks)],
        uncertain_ns=sum(row.uncertain_ns for row in tables.clocks),
        healed_count=sum(row.healed_count for row in tables.clocks),
        figures=[_figure(check, recorded, _handed(check, tables)) for check in checks],
    )


def _summary(checks: Sequence[Check], worst: Check | None, recorded: bool) -> str:
    if not recorded:
        return "not checked in this capture: it holds no clocks but the ledger's"
    if worst is None:
        return "too little observed to check"
    bad = sum(check.verdict == "failed" for check in checks)
    judged = sum(check.verdict in ("ok", "failed") for check in checks)
    head = f"{bad} of {judged} figures beyond their bounds" if bad else f"{judged} figures hold"
    parts = [f"{head}; worst: {_comparison(worst)}"]
    for verdict, words in (("too little", "too little observed"), ("not checked", "not checked")):
        names = [quantities.name(one.figure.key) for one in checks if one.verdict == verdict]
        if names:
            parts.append(f"{words}: {', '.join(names)}")
    return "; ".join(parts)


def _comparison(check: Check) -> str:
    """Figure, value, reference and bound in words: "switches ...: 99.98 % (at most 0.2 % off)"."""
    about = f" ({check.what})" if check.what else ""
    return f"{check.figure.name}{about}: {_values(check)}"


def _values(check: Check) -> str:
    value, reference = _amount(check, check.value), _amount(check, check.reference)
    allowed = quantities.plain(_amount(check, check.allowed))
    text = f"{value} against {reference}, {allowed} off allowed"
    if check.reference and check.value is not None:
        text = f"{quantities.share(check.value / check.reference)} ({text})"
    where = "" if check.windows is None else f" in windows {check.windows[0]} to {check.windows[1]}"
    return quantities.plain(f"{text}{where}")


def _amount(check: Check, value: float | None) -> str:
    if check.figure.unit == "ns":
        return quantities.time(value)
    return quantities.count(None if value is None else round(value))


def _forbidden(check: Check) -> str:
    return f"Do not use this report for {check.figure.forbids}: {_comparison(check)}."


def _handed(check: Check, tables: Tables) -> str:
    """What the ledger has and `top` has not; the figure of CPU time is compared without it."""
    handed_ns = sum(row.handed_ns for row in tables.process_clocks)
    told_ns = sum(row.process_cpu_ns or 0 for row in tables.process_clocks)
    if check.figure.key != "on_cpu" or not told_ns or handed_ns < _TELLING * told_ns:
        return ""
    share = quantities.share(handed_ns / (told_ns + handed_ns))
    return quantities.plain(
        f"Of all CPU time in the ledger, Linux charges {quantities.time(handed_ns)} ({share}) to"
        " the threads that came next on the CPU: top and pidstat show that much less."
    )


def _figure(check: Check, recorded: bool, handed: str) -> ClosureFigure:
    return ClosureFigure(
        key=check.figure.key,
        name=check.figure.name,
        verdict=check.verdict,
        about=check.what,
        value=check.value,
        reference=check.reference,
        unit=check.figure.unit,
        ratio=check.value / check.reference
        if check.reference and check.value is not None
        else None,
        error=check.error,
        allowed=check.allowed,
        used_share=check.used if check.verdict in ("ok", "failed") else None,
        windows="" if check.windows is None else f"{check.windows[0]} to {check.windows[1]}",
        note=" ".join([*_notes(check, recorded), *filter(None, [handed])]),
    )


def _notes(check: Check, recorded: bool) -> Iterator[str]:
    if check.verdict == "failed":
        yield f"Do not use this report for {check.figure.forbids}."
    elif not recorded:
        yield "Not checked in this capture."
    elif check.verdict == "not checked":
        yield f"Not checked: {check.figure.absent}."
    elif check.verdict == "too little":
        seconds = OBSERVED_NS // 1_000_000_000
        yield f"Too little observed: a verdict needs {seconds} s, and enough to compare."
