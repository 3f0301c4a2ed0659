# SPDX-License-Identifier: GPL-2.0-only
"""Folded stacks of a group, which split the times of the ledger."""

from collections.abc import Sequence

from tlstax.analysis.classify import repair
from tlstax.analysis.classify import stacks as folding
from tlstax.analysis.classify.taxonomy import Taxonomy, builtin
from tlstax.analysis.rows import (
    coverage,
    ledger,
)
from tlstax.analysis.rows.series import number
from tlstax.analysis.rows.tables import Group, Tables, groups
from tlstax.collectors.capture.schema import Ledger


def fold(
    part: Group, kind: str, tables: Tables, taxonomy: Taxonomy | None = None
) -> folding.FoldedStacks:
    """The folded stacks of a group, `kind` on_cpu or off_cpu."""
    ledger_rows = coverage.scale(tables).ledger
    return _fold(part, kind, tables, ledger_rows, repair.repair(tables), taxonomy or builtin())


def fold_all(tables: Tables) -> dict[str, folding.Folded]:
    """The whole stacks of every group by GROUP/KIND; flame graphs leave out what is too small."""
    scaled, mended = coverage.scale(tables).ledger, repair.repair(tables)
    return {
        f"{part.name}/{kind}": _fold(part, kind, tables, scaled, mended, builtin()).folded
        for part in groups(tables)
        for kind in ("on_cpu", "off_cpu")
    }


def _fold(
    part: Group,
    kind: str,
    tables: Tables,
    scaled: Sequence[Ledger],
    mended: repair.Repaired,
    rules: Taxonomy,
) -> folding.FoldedStacks:
    totals, _ = split_times(part, tables, ledger.totals(scaled, part.window_ids))
    return fold_totals(totals, part, kind, tables, mended, rules)


def fold_totals(
    totals: ledger.Totals,
    part: Group,
    kind: str,
    tables: Tables,
    mended: repair.Repaired,
    rules: Taxonomy,
) -> folding.FoldedStacks:
    """The stacks of one kind of time, which split these totals."""
    ids = part.window_ids
    if kind == "off_cpu":
        return folding.FoldedStacks(
            *folding.fold_off_cpu(tables.waits, ids, totals, mended.resolved, rules)
        )
    of_perf = folding.Mended(mended.repaired_ids)
    folded, count = folding.fold_on_cpu(
        mended.samples, ids, totals, mended.resolved, rules, of_perf
    )
    return folding.FoldedStacks(folded, count, of_perf.folded, repair.sentence(mended))


def split_times(part: Group, tables: Tables, totals: ledger.Totals) -> tuple[ledger.Totals, str]:
    """What the stacks split: the ledger, or, without one, their own times, and a note of that."""
    if any(totals.values()):
        return totals, ""
    hz = number(tables.meta.get("bpftrace_sample_hz", "")) or 0.0
    own = folding.own_times(tables.samples, tables.waits, part.window_ids, hz)
    return own, "no ledger was kept: times are those of the samples and waits"
