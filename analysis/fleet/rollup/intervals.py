# SPDX-License-Identifier: GPL-2.0-only
"""Sums of a capture by interval: the shortest tier from its windows, the others from that.

A window belongs to the interval in which it began, so each row of a capture is counted once, and
the sums of all tiers are equal.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from tlstax.analysis.classify.composition import Counts
from tlstax.analysis.findings.window_metrics import RECORD_CRYPTO, RECORD_PHASES
from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import TIERS, Row
from tlstax.analysis.fleet.histograms import SCALE, bucket, dense
from tlstax.analysis.fleet.rollup import client_networks
from tlstax.analysis.fleet.rollup.recording import Recording
from tlstax.analysis.rows.coverage import DETAILED_LEVELS, HANDSHAKE_LEVELS
from tlstax.analysis.rows.ledger import SERVED_PHASES
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.schema import Window
from tlstax.collectors.capture.vocabulary import (
    CONNECTION_ROLES,
    HANDSHAKE_PHASES,
    LEDGER_LEVELS,
    REPAIRS,
)

RECORD_LEVELS: Final = ("full", "record")
"""Levels of windows in which records are boundaries."""
WALL: Final = columns.WALL
MAIN_PHASES: Final = (WALL, "command")
"""Phases whose latencies the shorter tiers have; the longest has all."""
TLS_CODE: Final = frozenset({*RECORD_CRYPTO, "tls_protocol"})
_RESUMPTIONS: Final = {0: "full", 1: "resumed", None: "unknown"}
_LIMIT: Final = 1 << 62
_PARTS: Final = ("sign_ns", "keygen_ns", "derive_ns", "verify_ns", "certificate_ns")
_WAITS: Final = ("on_cpu_ns", "runnable_ns", "blocked_network_ns", "blocked_other_ns")

Key = tuple[str | int, ...]
"""Start of the interval, then what the row is about."""
Numbers = dict[str, int]


class Sums(NamedTuple):
    """Sums by table, key and column. Buckets of a histogram are columns named by their index."""

    interval: dict[Key, Numbers]
    ledger: dict[Key, Numbers]
    handshake: dict[Key, Numbers]
    phase_latency: dict[Key, Numbers]
    loss: dict[Key, Numbers]
    client_net: dict[Key, Numbers]


def _none() -> dict[Key, Numbers]:
    return defaultdict(lambda: defaultdict(int))


def sum_up(tables: Tables, of: Recording, counts: Mapping[int, Counts]) -> Sums:
    """The sums of the shortest tier; `counts` are the CPU samples by window, phase, category."""
    length_ns = min(TIERS.values()) * columns.SECOND_NS
    starts = {window.window_id: of.start_of(window, length_ns) for window in tables.windows}
    sums = no_sums()
    _add_windows(sums.interval, tables, starts)
    _add_ledger(sums, tables, starts, counts)
    _add_handshakes(sums, tables, starts)
    _add_latencies(sums, tables, starts)
    for row in tables.losses:
        if row.window_id in starts:
            sums.loss[starts[row.window_id], row.kind]["lost_count"] += row.lost_count
            if row.kind not in REPAIRS:
                sums.interval[starts[row.window_id],]["lost_count"] += row.lost_count
    return sums


def merged(sums: Sums, length_ns: int) -> Sums:
    """The same sums over longer intervals."""
    made = no_sums()
    add(made, sums, length_ns)
    return made


def no_sums() -> Sums:
    """Sums of nothing."""
    return Sums(_none(), _none(), _none(), _none(), _none(), _none())


def add(into: Sums, more: Sums, length_ns: int = 1) -> None:
    """Add sums to those of intervals of this length (1: of the same)."""
    for source, target in zip(more, into, strict=True):
        for (start, *rest), numbers in source.items():
            mine = target[int(start) // length_ns * length_ns, *rest]
            for name, value in numbers.items():
                mine[name] += value
    client_networks.bound(into.client_net)


def take_before(sums: Sums, end_ns: int) -> Sums:
    """Take the intervals that begin before this time out of sums."""
    taken = no_sums()
    for source, target in zip(sums, taken, strict=True):
        for key in [key for key in source if int(key[0]) < end_ns]:
            target[key] = source.pop(key)
    return taken


def _add_windows(intervals: dict[Key, Numbers], tables: Tables, starts: Mapping[int, int]) -> None:
    for window in tables.windows:
        mine = intervals[starts[window.window_id],]
        length_ns = window.end_ns - window.start_ns
        mine["recorded_ns"] += length_ns
        mine["ledger_observed_ns"] += length_ns if window.level in LEDGER_LEVELS else 0
        mine["handshake_observed_ns"] += length_ns if window.level in HANDSHAKE_LEVELS else 0
        is_partial = window.level in HANDSHAKE_LEVELS and window.level not in DETAILED_LEVELS
        mine["partial_ns"] += length_ns if is_partial else 0
    read = set()
    for clock in tables.process_clocks:
        if clock.window_count > 1:
            continue  # it is about other intervals, too
        if clock.window_id in starts and clock.process_cpu_ns is not None:
            read.add(clock.window_id)
            intervals[starts[clock.window_id],]["process_cpu_ns"] += clock.process_cpu_ns
    for effect in tables.effects:
        if effect.window_id in starts:
            mine = intervals[starts[effect.window_id],]
            mine["overhead_ns"] += sum(effect.costs_ns)
            if effect.window_id not in read:
                mine["process_cpu_ns"] += effect.target_cpu_ns or 0
    for system in tables.system:
        if system.window_id in starts:
            intervals[starts[system.window_id],]["engine_cpu_ns"] += system.engine_cpu_ns
    for row in tables.phase_counts:
        name = {"connect": "connection_count", "command": "command_count"}.get(row.phase)
        if row.window_id in starts and name:
            intervals[starts[row.window_id],][name] += row.ended_count


def _add_ledger(
    sums: Sums, tables: Tables, starts: Mapping[int, int], counts: Mapping[int, Counts]
) -> None:
    roles = {thread.thread_id: thread.role for thread in tables.threads}
    records: dict[tuple[int, str], int] = defaultdict(int)
    for row in tables.ledger:
        if row.window_id not in starts:
            continue
        start = starts[row.window_id]
        key = (start, roles.get(row.thread_id, "unknown"), row.phase)
        sums.ledger[key][f"{row.state}_ns"] += row.time_ns
        if row.phase not in SERVED_PHASES:
            continue
        mine = sums.interval[start,]
        mine["served_ns"] += row.time_ns
        if row.state == "runnable":
            mine["runnable_ns"] += row.time_ns
        if row.state != "on_cpu":
            continue
        mine["on_cpu_ns"] += row.time_ns
        mine["handshake_cpu_ns"] += row.time_ns if row.phase in HANDSHAKE_PHASES else 0
        mine["sign_cpu_ns"] += row.time_ns if row.phase == "sign" else 0
        if row.phase in RECORD_PHASES:
            records[row.window_id, row.phase] += row.time_ns
    _add_record_crypto(sums.interval, tables.windows, records, starts, counts)
    for sample in tables.samples:
        if sample.window_id in starts:
            sums.interval[starts[sample.window_id],]["sample_count"] += sample.sample_count


def _add_record_crypto(
    intervals: dict[Key, Numbers],
    windows: Iterable[Window],
    records: Mapping[tuple[int, str], int],
    starts: Mapping[int, int],
    counts: Mapping[int, Counts],
) -> None:
    """CPU time of the record phases in TLS code: each window's by the samples of its interval.

    Intervals without a sample in the phase are split like the whole recording; if that has none
    either, nothing is known of its records.
    """
    hits: dict[tuple[int | None, str], list[int]] = defaultdict(lambda: [0, 0])
    for window_id, mine in counts.items():
        for (phase, category), count in mine.items():
            if phase in RECORD_PHASES and window_id in starts and count:
                for place in (starts[window_id], None):
                    hits[place, phase][0] += count if category in TLS_CODE else 0
                    hits[place, phase][1] += count
    if not hits and records:
        return
    for window in windows:
        if window.level in RECORD_LEVELS:
            length_ns = window.end_ns - window.start_ns
            intervals[starts[window.window_id],]["record_observed_ns"] += length_ns
    for (window_id, phase), time_ns in records.items():
        start = starts[window_id]
        found = hits.get((start, phase)) or hits.get((None, phase))
        if found and found[1]:
            intervals[start,]["record_crypto_ns"] += round(time_ns * found[0] / found[1])


def _add_handshakes(sums: Sums, tables: Tables, starts: Mapping[int, int]) -> None:
    for row in tables.handshakes:
        if row.window_id not in starts or row.side == "client":
            continue
        start = starts[row.window_id]
        resumption = _RESUMPTIONS.get(row.resumed, "unknown")
        names = (row.outcome, row.tls_version, row.cipher, row.group_name, resumption)
        mine, whole = sums.handshake[start, *names], sums.interval[start,]
        if row.client_network:
            client_networks.count(sums.client_net[start, row.client_network], row)
        mine["handshake_count"] += 1
        whole["handshake_count"] += 1
        if row.outcome != "success":
            whole["failed_count"] += 1
            continue
        if resumption != "unknown":
            whole[f"{resumption}_count"] += 1
        wall_ns = row.end_ns - row.start_ns
        mine["wall_ns"] += wall_ns
        for name in _PARTS:
            mine[name] += max(0, getattr(row, name))
        mine["partial_count"] += row.verify_ns < 0
        if row.on_cpu_ns >= 0:
            mine["split_count"] += 1
            for name in _WAITS:
                mine[name] += max(0, getattr(row, name))
        latency = sums.phase_latency[start, WALL]
        latency["ended_count"] += 1
        latency[str(bucket(wall_ns))] += 1


def _add_latencies(sums: Sums, tables: Tables, starts: Mapping[int, int]) -> None:
    """The capture's buckets, each put where its middle lies: it is at most 4 % wide."""
    for row in tables.latencies:
        if row.window_id in starts and row.ended_count:
            middle_ns = (row.low_ns + row.high_ns) / 2
            mine = sums.phase_latency[starts[row.window_id], row.phase]
            mine[str(bucket(middle_ns))] += row.ended_count
    for count in tables.phase_counts:
        if count.window_id in starts:
            mine = sums.phase_latency[starts[count.window_id], count.phase]
            mine["ended_count"] += count.ended_count


def coarse_role(role: str) -> str:
    """A role in the shortest tier: all threads that serve nobody are one."""
    return role if role in CONNECTION_ROLES else "background"


def without_roles(sums: Sums) -> Sums:
    """The same with coarse roles in the ledger."""
    ledger = _none()
    for (start, role, phase), numbers in sums.ledger.items():
        into = ledger[start, coarse_role(str(role)), phase]
        for name, value in numbers.items():
            into[name] += value
    return sums._replace(ledger=ledger)


def rows(sums: Sums, of: Recording, *, is_longest: bool) -> dict[type[Row], list[Row]]:
    """The sums as rows, by table; what is not in a sum is 0."""
    made: dict[type[Row], list[Row]] = {}
    for table, found in (
        (columns.Interval, sums.interval),
        (columns.Ledger, sums.ledger),
        (columns.Handshake, sums.handshake),
        (columns.Loss, sums.loss),
        (columns.ClientNet, client_networks.largest(sums.client_net)),
    ):
        made[table] = [_row(table, key, numbers, of) for key, numbers in found.items()]
    made[columns.PhaseLatency] = [
        _histogram(key, numbers, of)
        for key, numbers in sums.phase_latency.items()
        if is_longest or key[1] in MAIN_PHASES
    ]
    return made


def _row(table: type[Row], key: Key, numbers: Mapping[str, int], of: Recording) -> Row:
    start, *names = key
    rest = table._fields[3 + len(names) :]
    sums = (numbers.get(name, 0) for name in rest)
    row: Row = table._make((of.host, start, of.source_id, *names, *sums))
    return row


def _histogram(key: Key, numbers: Mapping[str, int], of: Recording) -> Row:
    start, phase = key
    counts = {int(name): count for name, count in numbers.items() if name != "ended_count"}
    first, dense_counts = dense(counts)
    ended = numbers.get("ended_count", 0) or sum(counts.values())
    return columns.PhaseLatency(
        of.host, int(start), of.source_id, str(phase), ended, SCALE, first, dense_counts
    )


def is_sane(made: Iterable[Row]) -> bool:
    """Whether every duration and count is one that a sum of a recording can be."""
    return all(0 <= value < _LIMIT for row in made for value in _amounts(row))


def _amounts(row: Row) -> Iterator[int]:
    if isinstance(row, columns.PhaseLatency):
        yield from row.counts
    for name, value in zip(row._fields, row, strict=True):
        if name.endswith(("_ns", "_count")) and isinstance(value, int):
            yield value
