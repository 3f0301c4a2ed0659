# SPDX-License-Identifier: GPL-2.0-only
"""Times of the tiers below an hour in steps of 256 ns; what is left is counted in the next row.

The last digits of a time are noise that nothing packs: an eighth of the bytes of a number, a fifth
of those of a ledger of 10 s. A sum over an hour is exact, as the last row has all that is left.
"""

import importlib
from typing import Any, Final

from tlstax.analysis.fleet.columns import (
    HOUR_NS,
    SECOND_NS,
    TIERS,
    Handshake,
    Ledger,
    Row,
    columns,
    keys,
)

STEP_NS: Final = 256
"""A power of two: the last byte of each time is 0 then. Probes take longer than that."""
_STEPPED: Final = frozenset({Ledger, Handshake})


def in_steps(tier: str, table: type[Row], rows: Any) -> Any:
    """The sorted rows of an hour (Arrow); times of ledgers and handshakes are in steps.

    A row of a recording may have up to 255 ns of earlier ones that are about the same, never more.
    """
    is_whole = TIERS[tier] * SECOND_NS >= HOUR_NS
    if is_whole or table not in _STEPPED or not rows.num_rows:
        return rows
    numpy, pyarrow = importlib.import_module("numpy"), importlib.import_module("pyarrow")
    is_first = numpy.zeros(rows.num_rows, dtype=bool)
    is_first[0] = True
    texts = {column.name for column in columns(table) if column.kind == "str"}
    for name in keys(table):
        if name == "start_wall_ns":
            continue
        values = rows[name].combine_chunks()
        if name in texts:
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
