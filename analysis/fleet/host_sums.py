# SPDX-License-Identifier: GPL-2.0-only
"""Sums of each host over a span of time, or over each period of it, and its facts."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

import numpy as np

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.fleet import metrics
from tlstax.analysis.fleet.columns import HOUR_NS, Host
from tlstax.analysis.fleet.engines.engine import Engine
from tlstax.analysis.fleet.metrics import METRICS
from tlstax.analysis.statistics.units import Floats

FACTS: Final = (
    *("cluster", "server", "server_version", "tls_library", "tls_linkage", "kernel"),
    *("cpu_model", "cpu_count", "build_id", "level", "tlstax_version"),
)
"""What hosts may be chosen and grouped by."""
_FEW: Final = 500
"""Hosts that a question names to the engine."""


class Span(NamedTuple):
    """From a time, inclusive, to another, exclusive."""

    start_wall_ns: int
    end_wall_ns: int

    @property
    def condition(self) -> str:
        """As an SQL condition."""
        return self.condition_of("start_wall_ns")

    def condition_of(self, column: str) -> str:
        """The same for a column of another name."""
        return f"{column} >= {self.start_wall_ns:d} AND {column} < {self.end_wall_ns:d}"


@dataclass(frozen=True)
class Sums:
    """Sums by name; one row for each host, and a column for each period if there are periods."""

    hosts: list[str]
    starts_ns: list[int]
    by_name: Mapping[str, Floats]

    def of(self, metric: metrics.Metric) -> Floats:
        """The metric of each host (and period)."""
        return metrics.values(metric, self.by_name)

    def whole(self) -> "Sums":
        """All periods together."""
        added = {name: values.sum(axis=1) for name, values in self.by_name.items()}
        return Sums(self.hosts, [], added)

    def only(self, rows: Sequence[int]) -> "Sums":
        """The sums of some of the hosts."""
        names = [self.hosts[row] for row in rows]
        return Sums(names, self.starts_ns, {n: v[list(rows)] for n, v in self.by_name.items()})


def in_hours(span: Span) -> Span:
    """The span from the hour on in which it starts, for tables that are filed by the hour."""
    return Span(span.start_wall_ns - span.start_wall_ns % HOUR_NS, span.end_wall_ns)


Facts = dict[str, Mapping[str, str]]
"""Facts by host, as texts. Hosts with the same facts share them."""


def over(
    engine: Engine,
    span: Span,
    wanted: Sequence[metrics.Metric] = METRICS,
    among: Collection[str] = (),
) -> Sums:
    """Sums of each host over a span, in the order of names; of few hosts only, if `among` is so."""
    names = metrics.needed(tuple(wanted))
    condition = span.condition
    if 0 < len(among) <= _FEW:
        condition += f" AND host IN ({', '.join(literal(host) for host in sorted(among))})"
    found = engine.query(
        f"SELECT host, {metrics.sum_sql(names)} FROM ({metrics.scaled_sql(names, condition)}) "
        "scaled GROUP BY host ORDER BY host"
    )
    return Sums(found["host"].to_pylist(), [], {name: _floats(found[name]) for name in names})


def by_period(engine: Engine, span: Span, period_ns: int, step_ns: int) -> Sums:
    """Sums of each host by period, 0 where nothing was recorded; intervals are of `step_ns`."""
    names = metrics.needed(METRICS)
    origin = span.start_wall_ns
    period = f"(start_wall_ns - {origin:d} - (start_wall_ns - {origin:d}) % {period_ns:d})"
    scaled = f"FROM ({metrics.scaled_sql(names, span.condition)}) scaled"
    # Engines take 3 us to make a group of a single row.
    found = engine.query(
        f"SELECT host, {period} AS period_ns, {', '.join(names)} {scaled}"
        if period_ns == step_ns
        else f"SELECT host, {period} AS period_ns, {metrics.sum_sql(names)} {scaled} "
        f"GROUP BY host, {period}"
    )
    hosts, rows = numbered(found["host"])
    numbers = found["period_ns"].to_numpy() // period_ns
    is_known = np.bincount(numbers) > 0
    starts = np.flatnonzero(is_known) * period_ns
    cells = rows * len(starts) + (np.cumsum(is_known) - 1)[numbers]
    by_name = {}
    for name in names:
        added: Floats = np.bincount(cells, _floats(found[name]), len(hosts) * len(starts))
        by_name[name] = added.reshape(len(hosts), len(starts))
    return Sums(hosts, (starts + origin).tolist(), by_name)


def numbered(names: Any) -> tuple[list[str], Any]:
    """The distinct texts of an Arrow column in order, and the place of each row among them."""
    encoded = names.combine_chunks().dictionary_encode()
    known = encoded.dictionary.to_pylist()
    order = sorted(range(len(known)), key=known.__getitem__)
    places = np.empty(len(known), dtype=np.int64)
    places[order] = np.arange(len(known))
    return [known[at] for at in order], places[encoded.indices.to_numpy()]


def literal(text: str) -> str:
    """A text as an SQL literal. Engines read a backslash differently; no name has one."""
    return "'" + text.replace("\\", "").replace("'", "''") + "'"


def _floats(column: Any) -> Floats:
    values: Floats = column.to_numpy().astype(np.float64, copy=False)
    return values


def facts(engine: Engine, span: Span) -> Facts:
    """The last known facts of each host in a span: those of the recording that began last.

    Facts are hourly, so a recording of the first hour may have ended before the span.
    """
    return facts_of(engine, [span])[0]


def facts_of(engine: Engine, spans: Sequence[Span]) -> list[Facts]:
    """`facts` of several spans."""
    inside = [
        f"({in_hours(span).condition} AND first_wall_ns < {span.end_wall_ns:d})" for span in spans
    ]
    sides = [f"latest_{number}" for number in range(len(spans))]
    latest = ", ".join(
        f"MAX(CASE WHEN {condition} THEN first_wall_ns ELSE -1 END) AS {side}"
        for condition, side in zip(inside, sides, strict=True)
    )
    newest = engine.query(
        f"SELECT host, {latest} FROM host WHERE {' OR '.join(inside)} GROUP BY host"
    )
    times = [newest[side].to_numpy() for side in sides]
    known = np.unique(np.concatenate(times))
    hours = np.unique(known[known >= 0] // HOUR_NS * HOUR_NS).tolist() or [0]
    found = engine.query(
        f"SELECT host, {', '.join(FACTS)}, first_wall_ns FROM host "
        f"WHERE start_wall_ns IN ({', '.join(f'{hour:d}' for hour in hours)})"
    )
    hosts, at_host = numbered(found["host"])
    place = {host: at for at, host in enumerate(hosts)}
    places = np.array([place.get(host, -1) for host in newest["host"].to_pylist()], dtype=np.int64)
    combinations, of_row = _combinations(found)
    made: list[Facts] = []
    for of in times:
        wanted = np.full(len(hosts), -1)
        wanted[places[places >= 0]] = of[places >= 0]
        is_wanted = (found["first_wall_ns"].to_numpy() == wanted[at_host]) & (wanted[at_host] >= 0)
        last = np.full(len(hosts), -1)
        np.maximum.at(last, at_host[is_wanted], of_row[is_wanted])
        seen = np.flatnonzero(last >= 0).tolist()
        made.append({hosts[at]: combinations[last[at]] for at in seen})
    return made


def _combinations(rows: Any) -> tuple[list[Mapping[str, str]], Any]:
    """The distinct facts in order, as texts, and the place of each row's among them."""
    numbers = np.zeros(rows.num_rows, dtype=np.int64)
    for name in FACTS:
        encoded = rows[name].combine_chunks().dictionary_encode()
        numbers = numbers * len(encoded.dictionary) + encoded.indices.to_numpy()
        numbers = np.unique(numbers, return_inverse=True)[1]
    _, first = np.unique(numbers, return_index=True)
    found = rows.take(first).select(FACTS).to_pylist()
    order = sorted(range(len(found)), key=lambda at: tuple(found[at].values()))
    places = np.empty(len(found), dtype=np.int64)
    places[order] = np.arange(len(found))
    texts: list[Mapping[str, str]] = [
        {name: str(value) for name, value in found[at].items()} for at in order
    ]
    return texts, places[numbers]


def chosen(known: Facts, conditions: Sequence[str]) -> set[str]:
    """The hosts that meet every condition FACT=PATTERN, or `host=PATTERN`.

    Raises TlstaxError (USAGE) for another condition, or if no host meets them.
    """
    found = set(known)
    for condition in conditions:
        name, _, pattern = condition.partition("=")
        if name not in ("host", *FACTS) or not pattern:
            raise TlstaxError(
                f"cannot choose hosts by {condition!r}",
                f"a condition is NAME=PATTERN with one of {', '.join(('host', *FACTS))}",
                "Give for example cluster=eu-*",
                ExitCode.USAGE,
            )
        found = {
            host
            for host in found
            if fnmatchcase(host if name == "host" else known[host][name], pattern)
        }
    if not found:
        raise TlstaxError(
            "no host to answer for",
            f"none of {len(known)} hosts meets {' and '.join(conditions) or 'this span of time'}",
            "Choose other conditions or another time",
            ExitCode.USAGE,
        )
    return found


def kept(sums: Sums, hosts: set[str]) -> Sums:
    """The sums of these hosts."""
    rows = [row for row, name in enumerate(sums.hosts) if name in hosts]
    return sums if len(rows) == len(sums.hosts) else sums.only(rows)


assert set(FACTS) < set(Host._fields)
