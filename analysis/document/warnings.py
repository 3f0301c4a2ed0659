# SPDX-License-Identifier: GPL-2.0-only
"""The warnings of a report: what weakens its result, in sentences."""

from collections.abc import Sequence
from typing import Final

from tlstax.analysis.classify.composition import MINIMUM_SAMPLES
from tlstax.analysis.model.trust import Closure, LossLine, Observer, Symbols, UntrackedThreads
from tlstax.analysis.quantities import share_text, time_text
from tlstax.analysis.rows.edges import open_commands
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture import known_sources
from tlstax.collectors.capture.vocabulary import REPAIRS

_UNKNOWN_WARNING: Final = 0.05
_PROBE_WARNING: Final = 0.10
_MISJUDGED: Final = 2.0
"""An observed overhead above this multiple of the predicted one is a warning."""
_NEGLIGIBLE: Final = 0.005
_FATES: Final = {
    "failed": "ended early, and its rows are incomplete",
    "missing": "is missing",
}


def warnings(
    tables: Tables,
    losses: Sequence[LossLine],
    closure: Closure,
    observer: Observer,
    symbols: Symbols,
) -> list[str]:
    """Sentences about what weakens the result, the most serious first."""
    texts = list(closure.forbidden)
    if not tables.windows:
        texts.append("The capture has no complete window.")
    facts = {**known_sources.FACTS, **{row.key: row for row in tables.source_facts}}
    engines = {window.engine for window in tables.windows}
    alone = [facts[engine].alone for engine in sorted(engines & facts.keys())]
    texts += [text for text in alone if text]
    texts += [
        f"The source {row.name} {_FATES[row.state]}: {row.note}"
        for row in tables.collectors
        if row.state in _FATES
    ]
    beside = {row.name.partition(" ")[0] for row in tables.collectors if row.rows_count}
    uncounted = [name for name in sorted(beside & facts.keys()) if not facts[name].cost_counted]
    if uncounted:
        whose = "its" if len(uncounted) == 1 else "their"
        texts.append(f"{' and '.join(uncounted)} also ran; {whose} overhead is not included.")
    texts += [loss_sentence(line) for line in losses if line.kind not in REPAIRS]
    if symbols.unknown_share is not None and symbols.unknown_share > _UNKNOWN_WARNING:
        texts.append(f"{share_text(symbols.unknown_share)} of the samples match no category.")
    if tables.windows and symbols.sample_count < MINIMUM_SAMPLES:
        texts.append(
            f"{symbols.sample_count:,} CPU samples are too few to split phases into categories "
            f"(a share needs {MINIMUM_SAMPLES:,})."
        )
    texts += _effect_warnings(observer)
    if observer.probe_cpu_share is not None and observer.probe_cpu_share > _PROBE_WARNING:
        texts.append(
            f"The probes used {share_text(observer.probe_cpu_share)} of one CPU; "
            "this is not subtracted from any result."
        )
    return texts


def untracked_threads(found: UntrackedThreads | None) -> list[str]:
    """What of the process is not in the ledger."""
    if found is None:
        return []
    share = "" if found.cpu_share is None else f", {share_text(found.cpu_share)} of the process's"
    text = (
        f"{found.thread_count:,} of {found.process_thread_count:,} threads found no room in the "
        f"ledger: {time_text(found.cpu_ns)} of CPU time{share}, and all their waits are missing. "
        "Record with more room (attach --max-threads)."
    )
    return [text]


def unfinished_commands(tables: Tables) -> list[str]:
    """Which commands are known by a lower bound only."""
    every = {window.window_id for window in tables.windows}
    found = open_commands.lengths_ns(tables.unfinished, every)
    if not found:
        return []
    longest = time_text(max(found))
    were, they = ("was", "It") if len(found) == 1 else ("were", "They")
    text = (
        f"{len(found):,} command{'' if len(found) == 1 else 's'} {were} under way for whole "
        f"windows when the ledger began or ended, the longest for at least {longest}. {they} "
        f"{were} longer than that: latencies of commands with ≥ contain such a lower bound."
    )
    return [text]


def _effect_warnings(observer: Observer) -> list[str]:
    """Overhead above the budget, or above the prediction."""
    if not observer.effects or (observed := observer.effects[-1].observed_share) is None:
        return []
    texts = []
    budget, predicted = observer.budget_share, observer.effects[-1].predicted_share
    if budget is not None and observed > budget:
        texts.append(
            f"The overhead was {share_text(observed)} of the server's CPU time, above the "
            f"budget of {share_text(budget)}."
        )
    if predicted and observed > _MISJUDGED * predicted and observed > _NEGLIGIBLE:
        texts.append(
            f"The overhead was {share_text(observed)} of the server's CPU time, more than twice "
            f"the predicted {share_text(predicted)}."
        )
    return texts


def loss_sentence(line: LossLine) -> str:
    """What was lost, how often, and the consequence."""
    return f"Lost: {line.meaning}, {line.count:,} times; {line.consequence}."
