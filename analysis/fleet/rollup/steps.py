# SPDX-License-Identifier: GPL-2.0-only
"""Times of the shortest tier in steps of 256 ns; what is left of one is counted in the next row.

The last digits of a time are noise that nothing packs: an eighth of the bytes of a number, a fifth
of those of a ledger of 10 s. A sum over an hour is exact, as the last row has all that is left.
"""

import importlib
from typing import Any, Final

from tlstax.analysis.fleet.columns import TIERS, Ledger, Row

STEP_NS: Final = 256
"""A power of two: the last byte of each time is 0 then. Probes take longer than that."""
_NAMES: Final = ("host", "source_id", "role", "phase")
_SHORTEST: Final = min(TIERS, key=TIERS.__getitem__)


def in_steps(tier: str, table: type[Row], rows: Any) -> Any:
    """The sorted rows of an hour (Arrow), with times in steps if they are a ledger of 10 s.

    A row of a recording may have up to 255 ns of earlier ones of its role and phase, never more.
    """
    if tier != _SHORTEST or table is not Ledger or not rows.num_rows:
        return rows
    numpy, pyarrow = importlib.import_module("numpy"), importlib.import_module("pyarrow")
    is_first = numpy.zeros(rows.num_rows, dtype=bool)
    is_first[0] = True
    for name in _NAMES:
        values = rows[name].combine_chunks()
        if name != "source_id":
            values = values.dictionary_encode().indices
        is_first[1:] |= numpy.diff(values.to_numpy()) != 0
    firsts = numpy.flatnonzero(is_first)
    lasts = numpy.append(firsts[1:], rows.num_rows) - 1
    group = numpy.cumsum(is_first) - 1
    for at, name in enumerate(rows.column_names):
        if not name.endswith("_ns") or name == "start_wall_ns":
            continue
        exact = rows[name].to_numpy()
        whole = numpy.cumsum(exact)  # may pass the largest integer: differences stay right
        since = whole - (whole - exact)[firsts][group]
        ended = since & ~(STEP_NS - 1)
        ended[lasts] = since[lasts]
        before = numpy.concatenate([[0], ended[:-1]])
        before[firsts] = 0
        rows = rows.set_column(at, rows.schema.field(at), pyarrow.array(ended - before))
    return rows
