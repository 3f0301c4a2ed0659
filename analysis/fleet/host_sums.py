# SPDX-License-Identifier: GPL-2.0-only
"""Sums of each host over a span of time, or over each period of it, and its facts."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

import numpy as np

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.fleet import metrics, terms
from tlstax.analysis.fleet.columns import HOUR_NS, Host
from tlstax.analysis.fleet.engines.engine import Engine
from tlstax.analysis.fleet.metrics import METRICS
from tlstax.analysis.fleet.store.parquet_files import arrow
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


Facts = dict[str, dict[str, str]]
"""Facts by host, as texts. Hosts with the same facts share them: they are for reading."""


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
    of = terms.needed(names)
    found = engine.query(
        f"SELECT host, known, {terms.added(of)} FROM ({terms.of_intervals(of, condition)}) "
        "scaled GROUP BY host, known"
    )
    hosts, at_host = numbered(found["host"])
    return Sums(hosts, [], terms.sums(names, of, found, at_host, (len(hosts),)))


def by_period(engine: Engine, spans: Sequence[Span], period_ns: int, step_ns: int) -> list[Sums]:
    """Sums of each host by period, 0 where nothing was recorded, for spans that do not overlap.

    Periods begin with their span; `step_ns`: the length of an interval.
    """
    names = metrics.needed(METRICS)
    of = terms.needed(names)
    if period_ns == step_ns:  # a group of a single row costs an engine some microseconds
        condition = " OR ".join(f"({span.condition})" for span in spans)
        found, period = engine.query(terms.of_intervals(of, condition)), "start_wall_ns"
    else:  # groups of both spans at once are so many that they do not fit into caches
        parts = []
        for span in spans:
            begun = f"start_wall_ns - (start_wall_ns - {span.start_wall_ns:d}) % {period_ns:d}"
            parts.append(
                engine.query(
                    f"SELECT host, {begun} AS period_wall_ns, known, {terms.added(of)} "
                    f"FROM ({terms.of_intervals(of, span.condition)}) scaled "
                    f"GROUP BY host, {begun}, known"
                )
            )
        found, period = arrow().concat_tables(parts), "period_wall_ns"
    hosts, at_host = numbered(found["host"])
    at_period, starts_ns = _numbers(found[period].to_numpy(), spans, period_ns)
    shape = len(hosts), sum(map(len, starts_ns))
    cells = at_host * shape[1] + at_period
    tables = terms.sums(names, of, found, cells, shape)
    is_known = np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape) > 0
    made, first = [], 0
    for mine_ns in starts_ns:
        mine = slice(first, first := first + len(mine_ns))
        part = Sums(hosts, mine_ns, {name: table[:, mine] for name, table in tables.items()})
        rows = np.flatnonzero(is_known[:, mine].any(axis=1)).tolist()
        made.append(part if len(rows) == len(hosts) else part.only(rows))
    return made


def _numbers(times_ns: Any, spans: Sequence[Span], period_ns: int) -> tuple[Any, list[list[int]]]:
    """The period of each time, of those that have any; and their starts by span."""
    numbers = np.zeros(len(times_ns), dtype=np.int64)
    starts: list[Any] = []
    for span in spans:
        inside = (times_ns >= span.start_wall_ns) & (times_ns < span.end_wall_ns)
        count = -(-(span.end_wall_ns - span.start_wall_ns) // period_ns)
        before = sum(map(len, starts))
        numbers[inside] = (times_ns[inside] - span.start_wall_ns) // period_ns + before
        starts.append(span.start_wall_ns + np.arange(count) * period_ns)
    is_used = np.bincount(numbers, minlength=sum(map(len, starts))) > 0
    ends = np.cumsum([len(of) for of in starts])
    used = [of[part] for of, part in zip(starts, np.split(is_used, ends[:-1]), strict=True)]
    return (np.cumsum(is_used) - 1)[numbers], [of.tolist() for of in used]


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


def facts(engine: Engine, span: Span) -> Facts:
    """The last known facts of each host in a span: those of the recording that began last.

    Facts are hourly, so a recording of the first hour may have ended before the span.
    """
    return facts_of(engine, [span])[0]


def facts_of(engine: Engine, spans: Sequence[Span]) -> list[Facts]:
    """`facts` of several spans. A row is filed by the hour of its `first_wall_ns`."""
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


def _combinations(rows: Any) -> tuple[list[dict[str, str]], Any]:
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
    texts = [{name: str(value) for name, value in found[at].items()} for at in order]
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
