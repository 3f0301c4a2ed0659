# SPDX-License-Identifier: GPL-2.0-only
"""Data quality, shown above the first number: losses, closure, overhead, symbols."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from tlstax.analysis.classify.composition import Stacks, symbol_quality
from tlstax.analysis.classify.taxonomy import Taxonomy
from tlstax.analysis.document import warnings
from tlstax.analysis.document.closing import close
from tlstax.analysis.model.trust import (
    EffectLine,
    GapLine,
    Health,
    LossLine,
    Observer,
    ProbeLine,
    SendCost,
    Symbols,
)
from tlstax.analysis.rows import untracked
from tlstax.analysis.rows.series import number
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.schema import Probe
from tlstax.collectors.capture.vocabulary import LOSSES

_ENDS: Final = ("", "low_", "high_", "said_", "told_")
_SEND_COST: Final = (
    *(f"send_cost_{end}ns" for end in _ENDS),
    *("send_cpu_ns", "send_cost_pair_count"),
)
_NO_ROOM: Final = "thread_slots_full"
_STACK_LOSSES: Final = {
    "user_stack_failed": {"on_cpu", "off_cpu"},
    "kernel_stack_failed": {"on_cpu", "off_cpu"},
    "stack_map_full": {"on_cpu", "off_cpu"},
    "walk_no_mapping": {"on_cpu", "off_cpu"},
    "walk_no_row": {"on_cpu", "off_cpu"},
    "walk_unsupported": {"on_cpu", "off_cpu"},
    "walk_unreadable": {"on_cpu", "off_cpu"},
    "walk_too_deep": {"on_cpu", "off_cpu"},
    "walk_not_sent": {"on_cpu", "off_cpu"},
    "stack_forgotten": {"on_cpu", "off_cpu"},
    "sample_map_full": {"on_cpu"},
    "offcpu_map_full": {"off_cpu"},
    "bcc_stack_missed": {"on_cpu", "off_cpu"},
    "bcc_map_full": {"on_cpu", "off_cpu"},
    "stack_cut": {"on_cpu", "off_cpu"},
}
"""Losses that remove stacks from a flame graph, by kind of time."""
_OUTGOING: Final = (
    "The server made {count:,} of them as a client (replication, SPIDER and the like); "
    "figures and tables of handshakes lack them."
)
_EFFECT_LABELS: Final = {
    "probe": "probe hits",
    "scheduler": "the server's scheduler and socket events",
    "neighbour": "those of other processes",
    "sample": "CPU samples",
    "engine": "tlstax itself",
    "all": "together",
}


def examine(tables: Tables, stacks: Stacks, taxonomy: Taxonomy) -> Health:
    """The data quality of a capture, with its warnings."""
    losses = count_losses(tables)
    closure = close(tables)
    observer = observe(tables)
    symbols = name_quality(tables, stacks, taxonomy)
    untracked_threads = untracked.find(tables)
    texts = [
        *warnings.untracked_threads(untracked_threads),
        *warnings.unfinished_commands(tables),
        *warnings.warnings(
            tables, [line for line in losses if line.kind != _NO_ROOM], closure, observer, symbols
        ),
    ]
    gaps = [GapLine(row.subject, row.consequence) for row in tables.gaps]
    if count := len(tables.outgoing):
        gaps.append(GapLine("handshakes with other servers", _OUTGOING.format(count=count)))
    return Health(texts, losses, closure, observer, symbols, gaps, untracked_threads)


def count_losses(tables: Tables) -> list[LossLine]:
    """Losses by kind, most frequent first; kinds that never happened are absent."""
    counts: dict[str, int] = {}
    for row in tables.losses:
        counts[row.kind] = counts.get(row.kind, 0) + row.lost_count
    lines = []
    for kind, count in sorted(counts.items(), key=lambda item: -item[1]):
        if count > 0:
            known = LOSSES.get(kind)
            meaning = (
                known.meaning if known else "a kind of loss that this version does not recognize"
            )
            consequence = known.consequence if known else "the consequence is unknown"
            lines.append(LossLine(kind, count, meaning, consequence))
    return lines


def stack_losses(tables: Tables, kinds: Collection[str]) -> list[str]:
    """What was lost of the stacks of these kinds of time (on_cpu, off_cpu), in sentences."""
    wanted = {loss for loss, of in _STACK_LOSSES.items() if not of.isdisjoint(kinds)}
    return [warnings.loss_sentence(line) for line in count_losses(tables) if line.kind in wanted]


def duration_ns(tables: Tables) -> int:
    """Sum of all windows."""
    return sum(window.end_ns - window.start_ns for window in tables.windows)


def observe(tables: Tables) -> Observer:
    """The overhead: what probes cost, and the collector's own CPU time and memory.

    Probes as the recording charged them (`effects`: in a server a hit costs a multiple of what it
    does in a loop), or hits x calibrated cost where it did not.
    """
    lines = sorted(
        (_probe_line(row) for row in tables.probes),
        key=lambda line: (-(line.total_ns or 0.0), -line.hits_count),
    )
    length_ns = duration_ns(tables)
    # Programs at scheduler events and samples are timed only for some events: see `effects`.
    probes = [line for line in lines if line.kind.startswith("u")]
    hits = sum(line.hits_count for line in probes)
    known = [line.total_ns for line in probes if line.total_ns is not None]
    charged_ns = _sum(row.probe_ns for row in tables.effects)
    in_a_loop_ns = sum(known) if known else None
    probe_ns = in_a_loop_ns if charged_ns is None else charged_ns
    engine_ns = sum(row.engine_cpu_ns for row in tables.system)
    return Observer(
        hits_count=hits,
        hits_per_second=hits / length_ns * 1e9 if length_ns else 0.0,
        probe_ns=probe_ns,
        probe_cpu_share=probe_ns / length_ns if probe_ns is not None and length_ns else None,
        uncosted_hits_count=sum(line.hits_count for line in probes if line.cost_ns is None),
        engine_cpu_share=engine_ns / length_ns if tables.system and length_ns else None,
        engine_rss_bytes=max((row.engine_rss_bytes for row in tables.system), default=None),
        probes=lines,
        target_cpu_ns=_target_cpu_ns(tables),
        start_cpu_ns=_fact(tables, "start_cpu_ns"),
        end_cpu_ns=_fact(tables, "end_cpu_ns"),
        whole_share=_whole_share(tables),
        recorded_with=tables.meta.get("recorded_with", ""),
        thread_room=_fact(tables, "thread_room"),
        thread_room_bytes=_fact(tables, "thread_room_bytes"),
        budget_share=_fact(tables, "budget_share"),
        budget_choice=tables.meta.get("budget_choice", ""),
        hit_cost_source=tables.meta.get("hit_cost_source", ""),
        hit_cost_ns=_fact(tables, "hit_cost_ns"),
        hit_cost_low_ns=_fact(tables, "hit_cost_low_ns"),
        hit_cost_high_ns=_fact(tables, "hit_cost_high_ns"),
        hit_cost_pair_count=_fact(tables, "hit_cost_pair_count"),
        send_cost=send_cost(tables.meta),
        effects=effects(tables),
    )


def send_cost(meta: Mapping[str, str]) -> SendCost | None:
    """What recording costs for a send; None: it was not measured."""
    known = [value for key in _SEND_COST if (value := number(meta.get(key, ""))) is not None]
    if len(known) < len(_SEND_COST):
        return None
    server_ns, low_ns, high_ns, said_ns, told_ns, without_ns, pair_count = known
    host = [number(meta.get(f"send_host_cost_{end}ns", "")) for end in _ENDS]
    if None in host:
        host = [None] * len(_ENDS)
    host_ns, host_low_ns, host_high_ns, host_said_ns, host_told_ns = host
    return SendCost(
        server_ns=server_ns,
        server_low_ns=low_ns,
        server_high_ns=high_ns,
        without_ns=without_ns,
        server_share=server_ns / without_ns if without_ns else None,
        server_said_ns=said_ns,
        server_told_ns=told_ns,
        pair_count=round(pair_count),
        host_ns=host_ns,
        host_low_ns=host_low_ns,
        host_high_ns=host_high_ns,
        host_said_ns=host_said_ns,
        host_told_ns=host_told_ns,
        host_is_used=meta.get("send_host_cost_is_used") == "1",
    )


def effects(tables: Tables) -> list[EffectLine]:
    """The predicted and the observed overhead; nothing without such figures.

    Shares are of the server's CPU time, or, with a budget, of the base of the budget. The
    prediction assumes the load at the start: an experiment starts idle and changes its load, so it
    has none.
    """
    if not tables.effects:
        return []
    base_ns = _base_ns(tables)
    observed = {
        "probe": _sum(row.probe_ns for row in tables.effects),
        "scheduler": _sum(row.scheduler_ns for row in tables.effects),
        "neighbour": _sum(row.neighbour_ns for row in tables.effects),
        "sample": _sum(row.sample_ns for row in tables.effects),
        "engine": _sum(row.engine_cpu_ns for row in tables.system),
    }
    lines = []
    for name, value in observed.items():
        predicted = None if tables.runs else _fact(tables, f"predicted_{name}_share")
        lines.append(_effect(name, predicted, value, base_ns))
    known = [value for value in observed.values() if value is not None]
    total_ns = sum(known) if known else None
    predicted = None if tables.runs else _fact(tables, "predicted_share")
    return [*lines, _effect("all", predicted, total_ns, base_ns)]


def _target_cpu_ns(tables: Tables) -> int | None:
    return _sum(row.target_cpu_ns for row in tables.effects)


def _base_ns(tables: Tables) -> float:
    """What shares of the overhead are of."""
    floor_cpus = _fact(tables, "effect_floor_cpus") or 0.0
    return max(_target_cpu_ns(tables) or 0, floor_cpus * duration_ns(tables))


def _whole_share(tables: Tables) -> float | None:
    """The observed overhead with startup and end; None if these or the server's are unknown."""
    outside_ns = [_fact(tables, key) for key in ("start_cpu_ns", "end_cpu_ns")]
    known_ns = [value for value in outside_ns if value is not None]
    if _target_cpu_ns(tables) is None or not known_ns:
        return None
    base_ns, in_windows_ns = _base_ns(tables), effects(tables)[-1].observed_ns
    if in_windows_ns is None or not base_ns:
        return None
    return (in_windows_ns + sum(known_ns)) / base_ns


def _effect(name: str, predicted: float | None, time_ns: int | None, base_ns: float) -> EffectLine:
    share = time_ns / base_ns if time_ns is not None and base_ns else None
    return EffectLine(name, _EFFECT_LABELS[name], predicted, share, time_ns)


def _sum(values: Iterable[int | None]) -> int | None:
    """The sum of what is known; None if nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _fact(tables: Tables, key: str) -> float | None:
    """A number from the metadata of the recording; None if it is absent or no number."""
    return number(tables.meta.get(key, ""))


def _probe_line(row: Probe) -> ProbeLine:
    return ProbeLine(
        boundary=row.boundary,
        event=row.event,
        function=row.function,
        object=row.object,
        kind=row.kind,
        instruction=row.instruction,
        stepped=bool(row.stepped),
        hits_count=row.hits_count,
        cost_ns=row.cost_ns,
        total_ns=None if row.cost_ns is None else row.cost_ns * row.hits_count,
    )


def name_quality(tables: Tables, stacks: Stacks, taxonomy: Taxonomy) -> Symbols:
    """Shares of samples with a name, a category, a stack."""
    quality = symbol_quality(tables.samples, stacks, taxonomy)
    total = quality.sample_count
    return Symbols(
        sample_count=total,
        named_share=quality.named_count / total if total else None,
        unknown_share=quality.unknown_count / total if total else None,
        no_stack_share=quality.bare_count / total if total else None,
        sources=quality.sources,
    )
