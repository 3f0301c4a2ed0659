# SPDX-License-Identifier: GPL-2.0-only
"""The sentences of a report, by rules over its numbers."""

from collections.abc import Sequence
from typing import Final

from tlstax.analysis.classify.composition import MINIMUM_SAMPLES
from tlstax.analysis.compare.server_cost import cpu_factor_text, is_unseen
from tlstax.analysis.model.clients import EndToEnd, LanePart
from tlstax.analysis.model.composition import Composition
from tlstax.analysis.model.report import Answer
from tlstax.analysis.model.tables import (
    Cause,
    Comparison,
    CpuCost,
    HandshakeTable,
    LedgerBar,
)
from tlstax.analysis.quantities import (
    change_text,
    factor_text,
    listed,
    measure_text,
    share_text,
    time_text,
    unseen_text,
)
from tlstax.analysis.statistics.verdicts import NO_INTERVAL
from tlstax.collectors.capture.vocabulary import HANDSHAKE_PHASES

_FEW_HANDSHAKES: Final = 30
_LEAST_SHARE: Final = 0.05
_CRYPTO: Final = (
    "asymmetric",
    "cipher",
    "digest",
    "record_crypto",
    "kdf_rng",
    "certificate",
    "provider_fetch",
    "tls_protocol",
)


def _operation_text(comparison: Comparison) -> str:
    return {"connection": "a new connection", "query": "a query"}.get(
        comparison.operation, f"a {comparison.operation}"
    )


def comparison_sentence(comparison: Comparison) -> str:
    """The result of one comparison: what the server's CPUs paid, then the latency."""
    if comparison.refusal is not None or comparison.difference is None or comparison.ratio is None:
        return comparison.sentence
    what = _operation_text(comparison)
    cpu = _seen_cost(comparison)
    paid = f"{cpu_factor_text(cpu)} ({measure_text(cpu.difference)})" if cpu else ""
    if is_unseen(comparison.verdict, comparison.difference):
        unseen = f"no difference seen ({unseen_text(comparison.difference)})"
        return (
            f"With TLS, {what} takes {paid}; latency: {unseen}"
            if paid
            else (f"TLS, {what}: {unseen}")
        )
    late = f"{factor_text(comparison.ratio.value)} ({measure_text(comparison.difference)})"
    sentence = f"With TLS, {what} takes {f'{paid} and {late}' if paid else late}"
    causes = _causes(comparison)
    return f"{sentence}: {causes}" if causes and comparison.difference.value_ns > 0 else sentence


def _seen_cost(comparison: Comparison) -> CpuCost | None:
    """What the server's CPUs paid; None where TLS does not change it beyond doubt."""
    cpu = comparison.server_cpu
    return None if cpu is None or is_unseen(cpu.verdict, cpu.difference) else cpu


def both_sides_sentence(line: EndToEnd) -> str:
    """Where the time of an operation went, on both sides."""
    whole = line.latency.value_ns
    ready = next((p.cost.value_ns for p in line.parts if p.name == "client_runnable"), 0.0)
    for_cpu = f"{time_text(ready)} for a CPU and " if ready >= _LEAST_SHARE * whole else ""
    text = (
        f"of the {time_text(whole)} of a {line.operation}, the client computed "
        f"{time_text(line.client_cpu.value_ns)}{_largest(line.parts, 'client')} and waited "
        f"{for_cpu}{time_text(line.client_wait.value_ns)} for the server, which computed "
        f"{time_text(line.server_cpu.value_ns)}{_largest(line.parts, 'server')}"
    )
    rest = line.between.value_ns
    if rest >= 0:
        text += f"; {time_text(rest)} of the wait is network and scheduling"
    else:
        text += f", at least {time_text(-rest)} of it while the client did not wait"
    added = _added_text(line)
    return f"{text}; {added}" if added else text


def _added_text(line: EndToEnd) -> str:
    """What TLS adds to the CPU time of each side, and the largest of the client's own steps."""
    if line.latency_added is None or line.operation != "connection":
        return ""
    sums = {"client": 0.0, "server": 0.0}
    for part in line.parts:
        if part.kind == "cpu" and part.added is not None:
            sums[part.lane] += part.added.value_ns
    return (
        f"TLS adds {time_text(sums['client'])} to the client's CPU time and "
        f"{time_text(sums['server'])} to the server's"
    )


def _largest(parts: Sequence[LanePart], lane: str) -> str:
    """The category that most of a side's CPU time is, if enough samples say so."""
    times: dict[str, float] = {}
    mine = [part for part in parts if part.lane == lane and part.kind == "cpu" and part.made_of]
    if sum(part.sample_count or 0 for part in mine) < MINIMUM_SAMPLES:
        return ""
    for part in mine:
        for share in part.made_of:
            time_ns = part.cost.value_ns * share.share
            times[share.category] = times.get(share.category, 0.0) + time_ns
    category = max(times, key=lambda name: times[name])
    whole = sum(part.cost.value_ns for part in parts if part.lane == lane and part.kind == "cpu")
    return f" ({share_text(times[category] / whole)} {category.replace('_', ' ')})"


def _causes(comparison: Comparison) -> str:
    """The largest causes that are beyond doubt, and what is left unexplained."""
    texts = [f"{_share(cause)} is {cause.label}" for cause in _largest_causes(comparison)]
    steps = comparison.cells
    unexplained = next((step.share for step in steps if step.name == "unexplained"), None)
    if abs(unexplained or 0.0) > 1:
        return "not split, because the unexplained part is larger than the difference"
    texts.append(f"{share_text(unexplained or 0.0)} unexplained")
    return ", ".join(texts)


def _share(cause: Cause) -> str:
    """A share with its bounds; without bounds the estimate."""
    share = cause.share
    if share.low is None or share.high is None:
        return share_text(share.value)
    low, high = share_text(share.low), share_text(share.high)
    return low if low == high else f"{low.removesuffix(' %')} to {high}"


def _largest_causes(comparison: Comparison) -> list[Cause]:
    """At most two causes, largest first."""
    return [cause for cause in comparison.causes[:2] if cause.share.value >= _LEAST_SHARE]


def answer(
    comparisons: Sequence[Comparison],
    ledgers: Sequence[LedgerBar],
    compositions: Sequence[Composition],
    handshakes: Sequence[HandshakeTable],
    both: Sequence[EndToEnd] = (),
) -> Answer:
    """The answer of the whole report."""
    compared = [line for line in comparisons if line.refusal is None]
    # A new connection is where TLS costs most, so it leads.
    compared.sort(key=lambda line: line.operation != "connection")
    details = [f"{line.sentence}." for line in compared]
    details += [line.sentence for line in comparisons if line.refusal is not None]
    details += [text for table in handshakes if (text := _handshake_text(table))]
    # The sentences about both sides are given for TLS; the tables have the plaintext arm, too.
    details += [f"{line.label}: {line.sentence}." for line in both if line.arm != "plaintext"]
    if compared:
        return Answer(_headline(compared), details)
    if comparisons:
        return Answer(comparisons[0].sentence, details)
    return _attached(ledgers, compositions, details)


def _headline(compared: Sequence[Comparison]) -> str:
    """All comparisons in one sentence; intervals and smaller causes are left to the details."""
    texts: list[str] = []
    for line in compared:
        texts.append(_change_text(line, is_first=not any(texts)))
    changed = [text for text in texts if text]
    same = [_operation_text(line) for line, text in zip(compared, texts, strict=True) if not text]
    sentence = f"With TLS, {listed(changed)}" if changed else "TLS: no difference seen"
    if changed and same:
        sentence += "; no difference seen"
    if same:
        sentence += f" for {listed(same)}"
    return f"{sentence}."


def _change_text(line: Comparison, *, is_first: bool) -> str:
    """What TLS does to an operation, and why; '' where no difference was seen."""
    if line.difference is None or line.ratio is None:
        return ""
    cpu, what = _seen_cost(line), _operation_text(line)
    few = ""
    if line.verdict == NO_INTERVAL and is_first:
        few = f" in {line.round_count} rounds" if line.round_count > 1 else " in one round"
        if line.start_count > 1:
            few = f" in {line.start_count} server starts"
    paid = ""
    if cpu is not None:
        paid = f"{cpu_factor_text(cpu)} ({change_text(cpu.difference.value_ns)}"
    if is_unseen(line.verdict, line.difference):
        return f"{what} takes {paid}{few}; no difference in latency seen)" if paid else ""
    text = f"{change_text(line.difference.value_ns)}{few}"
    causes = _largest_causes(line) if line.difference.value_ns > 0 else []
    if causes and is_first:
        text += f"; {_share(causes[0])} of it {causes[0].label}"
    late = f"{factor_text(line.ratio.value)} ({text})"
    return f"{what} takes {f'{paid}) and {late}' if paid else late}"


def _handshake_text(table: HandshakeTable) -> str:
    """The mean handshake of a group in a sentence; nothing where few make no mean."""
    if table.mean is None or not table.parts or table.distribution.count < _FEW_HANDSHAKES:
        return ""
    largest = max(table.parts, key=lambda part: part.share)
    return (
        f"{table.label}: a handshake took {time_text(table.mean.value_ns)} on average over "
        f"{table.distribution.count:,}, {share_text(largest.share)} of it {largest.label}."
    )


def _attached(
    ledgers: Sequence[LedgerBar], compositions: Sequence[Composition], details: list[str]
) -> Answer:
    """The answer of a recording without runs: shares of the server's busy time."""
    bar = ledgers[0] if ledgers else None
    if bar is not None and not bar.measured_ns and bar.whole_ns:
        return Answer(_without_ledger(compositions), details)
    if bar is None or not bar.total_ns:
        return Answer(
            "The server served no connection during the recording: there is nothing to explain.",
            details,
        )
    handshake_ns = sum(part.time_ns for part in bar.segments if part.phase in HANDSHAKE_PHASES)
    about = f" ({bar.estimate})" if bar.estimate else ""
    return Answer(
        f"Of {'about ' if about else ''}{time_text(bar.total_ns)} spent serving connections, "
        f"handshakes took {share_text(handshake_ns / bar.total_ns)}{_crypto_text(compositions)}"
        f"{about}. Without a plaintext arm this is a share, not a difference.",
        details,
    )


def _without_ledger(compositions: Sequence[Composition]) -> str:
    """The answer of a recording at a level that keeps no ledger."""
    text = (
        "The time in each phase and wait was not measured: it needs the ledger, which is kept from "
        "level flow on"
    )
    for whole in compositions:
        count = sum(phase.sample_count for phase in whole.phases)
        if count and count >= whole.minimum_sample_count:
            share = sum(part.share for part in whole.total if part.category in _CRYPTO)
            text += (
                f". By {count:,} CPU samples, TLS and cryptography took {share_text(share)} of "
                "the CPU time of all threads of the server"
            )
    return f"{text}."


def _crypto_text(compositions: Sequence[Composition]) -> str:
    """The share of TLS and cryptography in all CPU time, if enough samples stand behind it."""
    if not compositions:
        return ""
    whole = compositions[0]
    if sum(phase.sample_count for phase in whole.phases) < whole.minimum_sample_count:
        return ""
    share = sum(part.share for part in whole.total if part.category in _CRYPTO)
    return f"; TLS and cryptography took {share_text(share)} of the CPU time"
