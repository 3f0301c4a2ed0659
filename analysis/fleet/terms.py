# SPDX-License-Identifier: GPL-2.0-only
"""What an engine adds up for the sums of `metrics`, and the sums by name from it.

Several sums are the same terms over other intervals: commands of all of them, and of those in which
records were observed. So an engine adds each term once, by what was observed (`known`), and the
sums are put together here. On the intervals of a minute that takes a fifth less CPU time than a
column for each sum.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from tlstax.analysis.fleet.metrics import SEEN, SUMS
from tlstax.analysis.statistics.units import Floats

_KINDS: Final = ("ledger", "handshake", "record")


class Term(NamedTuple):
    """A column of an interval."""

    column: str
    scaled_by: str
    """By which observed time; '' = not at all."""

    @property
    def sql(self) -> str:
        """Over the scales of `of_intervals`; 0 where its kind was not observed."""
        value = f"CAST({self.column} AS DOUBLE)"
        return f"{value} * {self.scaled_by}_scale" if self.scaled_by else value


def needed(names: Sequence[str]) -> tuple[Term, ...]:
    """The terms that these sums are made of."""
    return tuple(dict.fromkeys(term for name in names for term, _ in _of(name)))


def _of(name: str) -> tuple[tuple[Term, float], ...]:
    is_seen = name.endswith(SEEN)
    parts = SUMS[name.removesuffix(SEEN)].parts
    return tuple((Term(column, "" if is_seen else by), times) for column, by, times in parts)


def of_intervals(terms: Sequence[Term], condition: str) -> str:
    """The intervals that meet a condition, as SQL: host, start_wall_ns, known, term_0, term_1, ...

    `known` has a bit for each kind that was observed.
    """
    scales = ", ".join(
        f"CASE WHEN {kind}_observed_ns > 0 THEN CAST(recorded_ns AS DOUBLE) / "
        f"CAST({kind}_observed_ns AS DOUBLE) ELSE 0 END AS {kind}_scale"
        for kind in _KINDS
    )
    known = " + ".join(
        f"CASE WHEN {kind}_observed_ns > 0 THEN {_bit(kind)} ELSE 0 END" for kind in _KINDS
    )
    values = ", ".join(f"{term.sql} AS term_{number}" for number, term in enumerate(terms))
    return (
        f"SELECT host, start_wall_ns, known, {values} FROM (SELECT *, {scales}, {known} AS known "
        f"FROM interval WHERE {condition}) observed"
    )


def added(terms: Sequence[Term]) -> str:
    """The sums of terms over `of_intervals`, as SQL, under the same names."""
    return ", ".join(f"SUM(term_{number}) AS term_{number}" for number in range(len(terms)))


def sums(
    names: Sequence[str], terms: Sequence[Term], found: Any, cells: Any, shape: tuple[int, ...]
) -> dict[str, Floats]:
    """The sums by name and cell, from an Arrow table with `known` and the terms.

    `cells`: the place of each of its rows in an array of this shape. Equal sums share their values.
    """
    known = found["known"].to_numpy()
    observed = {kind: known & _bit(kind) != 0 for kind in _KINDS}
    number_of = {term: number for number, term in enumerate(terms)}
    made: dict[Any, Floats] = {}
    for of, when in dict.fromkeys(_key(name, observed) for name in names):
        values: Any = None
        for term, times in of:
            column = found[f"term_{number_of[term]}"].to_numpy()
            part = column if times == 1 else column * times
            values = part if values is None else values + part
        if when:
            values = values * observed[when]
        added: Any = np.bincount(cells, values, math.prod(shape)).reshape(shape)
        # What is left of a difference of nothing is less than nothing by rounding.
        made[of, when] = np.maximum(added, 0.0) if any(times < 0 for _, times in of) else added
    return {name: made[_key(name, observed)] for name in names}


def _key(name: str, observed: Mapping[str, Any]) -> tuple[tuple[tuple[Term, float], ...], str]:
    """The terms of a sum, and what must have been observed; '' if that changes nothing."""
    of, when = _of(name), SUMS[name.removesuffix(SEEN)].when
    is_implied = all(term.scaled_by == when for term, _ in of) or observed[when].all()
    return of, "" if is_implied else when


def _bit(kind: str) -> int:
    return 1 << _KINDS.index(kind)
