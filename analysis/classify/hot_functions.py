# SPDX-License-Identifier: GPL-2.0-only
"""The functions that samples hit most, by their names or by what their code shows."""

from collections import Counter
from collections.abc import Collection
from typing import Final

from tlstax.analysis.classify.composition import Stacks
from tlstax.analysis.classify.taxonomy import Taxonomy, is_named
from tlstax.analysis.model.libraries import HotFunction
from tlstax.analysis.rows.tables import Group, Tables
from tlstax.analysis.statistics.bootstrap import wilson
from tlstax.collectors.capture.schema import Frame

SHOWN: Final = 5
LEAST_SHARE: Final = 0.02


def hot_functions(
    group: Group, phases: Collection[str], tables: Tables, taxonomy: Taxonomy
) -> list[HotFunction]:
    """The user-space functions with the most samples of a group in some phases."""
    stacks = Stacks(tables.frames, tables.stacks)
    found: Counter[tuple[str, str]] = Counter()
    total = 0
    for row in tables.samples:
        if row.window_id not in group.window_ids or row.phase not in phases:
            continue
        total += row.sample_count
        leaf = stacks.frames(row.user_stack_id)[:1]
        if row.kernel_stack_id is None and leaf:
            category = taxonomy.category(stacks.sample(row))
            found[function_name(leaf[0]), category] += row.sample_count
    return [
        HotFunction(name, category, count / total, *wilson(count, total), count)
        for (name, category), count in found.most_common(SHOWN)
        if count >= LEAST_SHARE * total
    ]


def function_name(frame: Frame) -> str:
    """A function without its arguments; one without a name by its file and its evidence."""
    if is_named(frame):
        name = frame.symbol
        start = 0 if not name.startswith("(anonymous") else 1
        return name if "(" not in name[start + 1 :] else name[: name.index("(", start + 1)]
    file = frame.object.rpartition("/")[2]
    return f"nameless in {file}" + (f" ({frame.code})" if frame.code else "")
