# SPDX-License-Identifier: GPL-2.0-only
"""The functions that samples hit most, by their names or by what their code shows."""

from collections import defaultdict
from collections.abc import Collection
from typing import Final

import numpy as np

from tlstax.analysis.classify.composition import Stacks
from tlstax.analysis.classify.taxonomy import Taxonomy, is_named
from tlstax.analysis.model.libraries import HotFunction
from tlstax.analysis.rows import window_units
from tlstax.analysis.rows.tables import Group, Tables
from tlstax.analysis.statistics import shares
from tlstax.analysis.statistics.units import Floats
from tlstax.collectors.capture.schema import Frame

SHOWN: Final = 5
LEAST_SHARE: Final = 0.02


def hot_functions(
    group: Group, phases: Collection[str], tables: Tables, taxonomy: Taxonomy
) -> list[HotFunction]:
    """The user-space functions with the most samples of a group in some phases."""
    stacks = Stacks(tables.frames, tables.stacks)
    of = window_units.of_group(group, tables.windows)
    found: defaultdict[tuple[str, str], Floats] = defaultdict(lambda: np.zeros(of.units.count))
    totals = np.zeros(of.units.count)
    for row in tables.samples:
        unit = of.unit_of.get(row.window_id)
        if unit is None or row.phase not in phases:
            continue
        totals[unit] += row.sample_count
        leaf = stacks.frames(row.user_stack_id)[:1]
        if row.kernel_stack_id is None and leaf:
            category = taxonomy.category(stacks.sample(row))
            found[function_name(leaf[0]), category][unit] += row.sample_count
    lines = []
    for key in sorted(found, key=lambda one: -float(found[one].sum()))[:SHOWN]:
        count = round(float(found[key].sum()))
        if count >= LEAST_SHARE * totals.sum():
            value, low, high, units, _ = shares.share(found[key], totals, of.units)
            lines.append(HotFunction(*key, value, low, high, count, units))
    return lines


def function_name(frame: Frame) -> str:
    """A function without its arguments; one without a name by its file and its evidence."""
    if is_named(frame):
        name = frame.symbol
        start = 0 if not name.startswith("(anonymous") else 1
        return name if "(" not in name[start + 1 :] else name[: name.index("(", start + 1)]
    file = frame.object.rpartition("/")[2]
    return f"nameless in {file}" + (f" ({frame.code})" if frame.code else "")
