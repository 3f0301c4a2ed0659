# SPDX-License-Identifier: GPL-2.0-only
"""Write a data set of replayed hosts, see fleet_replay.py."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import HOUR_NS, SECOND_NS, TIERS, Row
from tlstax.analysis.fleet.rollup.steps import in_steps
from tlstax.analysis.fleet.store import packing, parquet_files
from tlstax.analysis.fleet.store.layout import COMPACTED, Place
from tlstax.tests.fleet_hours import Hour
from tlstax.tests.fleet_replay import START_NS, Fleet, Traits


def write(
    fleet: Fleet,
    data: Path,
    tier: str,
    hours: int,
    tables: Sequence[type[Row]] = (columns.Interval,),
    start_ns: int = START_NS,
) -> int:
    """Write some tables of a tier, one compacted file for each hour; their size in bytes."""
    traits, step_ns = Traits(fleet), TIERS[tier] * SECOND_NS
    size_bytes = 0
    for hour in range(hours):
        starts = start_ns + hour * HOUR_NS + np.arange(0, HOUR_NS, step_ns)
        whole = Hour(fleet, traits, starts, step_ns)
        for table in tables:
            place = Place(tier, table, start_ns + hour * HOUR_NS)
            rows = whole.rows(table)
            if rows is not None:
                rows = in_steps(tier, table, rows)
                path = place.folder(data) / COMPACTED
                level = packing.merged_level(table, rows.num_rows)
                size_bytes += parquet_files.write(path, table, [rows], level)
    return size_bytes
