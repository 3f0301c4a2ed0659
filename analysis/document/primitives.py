# SPDX-License-Identifier: GPL-2.0-only
"""How often, how long and over how many bytes the TLS library's own functions ran.

Counts and bytes are exact. A time is given only where it exceeds the cost of measuring it:

- what the probes add between the two clocks (`inside_ns`, calibrated on an empty function in the
  same run) is taken off each call, and off a caller what the probes of the functions inside it
  cost;
- what remains, of the median call, must be more than TRAPS times what one of the function's own
  probes costs, and more than what was taken off for those inside. Where a function is called for
  short and for long work alike (OpenSSL asks for the length of a signature before it signs), it is
  enough that the mean is that long, and a quarter of the calls.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tlstax.analysis.model.primitives import (
    PrimitiveLine,
    PrimitiveSize,
    PrimitiveTable,
    PrimitiveTiming,
)
from tlstax.analysis.quantities import share_text, time_text
from tlstax.analysis.rows import latency, operations
from tlstax.analysis.rows.ledger import Totals
from tlstax.analysis.rows.tables import Group, Tables
from tlstax.collectors.capture.schema import Primitive, PrimitiveCalls
from tlstax.collectors.capture.vocabulary import (
    FUNCTION_CATEGORIES,
    HANDSHAKE_PHASES,
    PHASES,
)

TRAPS: Final = 5
"""A body must take more than this many times the cost of one of its own probes."""
LONG_SHARE: Final = 0.25
"""Calls that must be that long where the median is not."""
COMMAND_PHASES: Final = ("command", "record_read", "record_write", "idle")
MEASURED: Final = "measured"
NOT_MEASURABLE: Final = "not measurable"
COUNTED: Final = "counted only"


@dataclass
class Sum:
    """Calls of one function, as measured."""

    call_count: int = 0
    size_bytes: int = 0
    timed_count: int = 0
    timed_bytes: int = 0
    time_ns: int = 0
    nested_ns: int = 0
    traps_ns: int = 0
    direct_traps_ns: int = 0
    phases: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    buckets: latency.Buckets = field(default_factory=lambda: defaultdict(int))

    def add(self, row: PrimitiveCalls) -> None:
        """Add the calls of a row."""
        self.call_count += row.call_count
        self.size_bytes += row.size_bytes
        self.timed_count += row.timed_count
        self.timed_bytes += row.timed_bytes
        self.time_ns += row.time_ns
        self.nested_ns += row.nested_ns
        self.traps_ns += row.traps_ns
        self.direct_traps_ns += row.direct_traps_ns
        self.phases[row.phase] += row.call_count

    @property
    def mean_bytes(self) -> float | None:
        """Mean bytes of a call; None where they are not known."""
        return self.size_bytes / self.call_count if self.size_bytes and self.call_count else None

    @property
    def median_ns(self) -> float | None:
        """The median call, as measured."""
        if sum(self.buckets.values()) <= 0:
            return None
        return latency.quantile(dict(sorted(self.buckets.items())), 0.5).value_ns

    def share_above(self, bound_ns: float) -> float:
        """Share of the calls that took longer, as measured."""
        total = sum(self.buckets.values())
        longer = sum(count for (low_ns, _), count in self.buckets.items() if low_ns >= bound_ns)
        return longer / total if total > 0 else 0.0


def tabulate(
    parts: Sequence[Group], tables: Tables, totals: dict[str, Totals]
) -> list[PrimitiveTable]:
    """One table for each group in which functions were counted."""
    if not tables.primitives:
        return []
    made = (_table(part, tables, totals[part.name]) for part in parts)
    return [table for table in made if table.lines]


def _table(part: Group, tables: Tables, totals: Totals) -> PrimitiveTable:
    by_size = _sums(tables, part.window_ids)
    counts = operations.phase_counts(tables.phase_counts, part.window_ids)
    commands = counts.get("command", 0)
    handshakes = sum(row.window_id in part.window_ids for row in tables.handshakes)
    lines = [
        _line(primitive, by_size[primitive.primitive_id], commands, handshakes)
        for primitive in tables.primitives
        if primitive.primitive_id in by_size
    ]
    lines.sort(key=lambda line: (_rank(line.category, FUNCTION_CATEGORIES), -line.call_count))
    probe_ns = sum(line.probe_ns for line in lines)
    cpu_ns = sum(time_ns for (_, state), time_ns in totals.items() if state == "on_cpu")
    share = probe_ns / cpu_ns if cpu_ns > 0 else None
    return PrimitiveTable(
        name=part.name,
        label=part.label,
        sentence=_sentence(sum(line.call_count for line in lines), probe_ns, share),
        command_count=commands,
        handshake_count=handshakes,
        probe_ns=probe_ns,
        server_cpu_ns=cpu_ns,
        probe_share=share,
        lines=lines,
    )


def _sums(tables: Tables, window_ids: Collection[int]) -> dict[int, dict[tuple[int, int], Sum]]:
    """By primitive and size class."""
    sums: dict[int, dict[tuple[int, int], Sum]] = defaultdict(lambda: defaultdict(Sum))
    for row in tables.primitive_calls:
        if row.window_id in window_ids:
            sums[row.primitive_id][row.low_bytes, row.high_bytes].add(row)
    for time in tables.primitive_times:
        if time.window_id in window_ids and time.call_count > 0:
            place = sums[time.primitive_id][time.low_bytes, time.high_bytes]
            place.buckets[time.low_ns, time.high_ns] += time.call_count
    return sums


def _line(
    primitive: Primitive, by_size: dict[tuple[int, int], Sum], commands: int, handshakes: int
) -> PrimitiveLine:
    whole = _together(by_size.values())
    return PrimitiveLine(
        name=primitive.name,
        category=primitive.category,
        unit=primitive.unit,
        function=primitive.function,
        object=primitive.object,
        size_source=primitive.size_source,
        call_count=whole.call_count,
        per_command=_per(whole, COMMAND_PHASES, commands),
        per_handshake=_per(whole, HANDSHAKE_PHASES, handshakes),
        size_bytes=whole.size_bytes,
        mean_bytes=whole.mean_bytes,
        timing=timing(primitive, whole),
        probe_ns=whole.call_count * primitive.pair_ns,
        phases=dict(sorted(whole.phases.items(), key=lambda item: _rank(item[0], PHASES))),
        sizes=[
            PrimitiveSize(low, high, calls.call_count, calls.mean_bytes, timing(primitive, calls))
            for (low, high), calls in sorted(by_size.items())
        ],
    )


def _together(sums: Iterable[Sum]) -> Sum:
    whole = Sum()
    for part in sums:
        for name, value in vars(part).items():
            if isinstance(value, int):
                setattr(whole, name, getattr(whole, name) + value)
        for phase, count in part.phases.items():
            whole.phases[phase] += count
        for bounds, count in part.buckets.items():
            whole.buckets[bounds] += count
    return whole


def timing(primitive: Primitive, calls: Sum) -> PrimitiveTiming:
    """Duration of a call, or why it is not measurable."""
    if primitive.why_not_timed:
        return _untimed(COUNTED, primitive.why_not_timed)
    median_ns = calls.median_ns
    if median_ns is None or calls.timed_count <= 0:
        return _untimed(COUNTED, "no call returned during the recording")
    traps_ns = calls.traps_ns / calls.timed_count
    added_ns = primitive.inside_ns + traps_ns
    mean_ns = calls.time_ns / calls.timed_count - added_ns
    trap_ns = primitive.pair_ns / 2
    body_ns = median_ns - added_ns
    if calls.share_above(added_ns + TRAPS * trap_ns) >= LONG_SHARE:
        body_ns = max(body_ns, mean_ns)
    if body_ns <= traps_ns:
        return _untimed(
            NOT_MEASURABLE,
            "most of a call is the cost of the probes in the functions that it calls; it may be "
            "measurable without them (--functions with this name only)",
        )
    if body_ns <= TRAPS * trap_ns:
        return _untimed(
            NOT_MEASURABLE,
            f"a call takes less than {TRAPS} times the cost of one of its probes "
            f"({time_text(trap_ns)})",
        )
    own_ns = (
        calls.time_ns - calls.nested_ns - calls.direct_traps_ns
    ) / calls.timed_count - primitive.inside_ns
    # The corrections are means of an empty loop and may exceed the time that they correct.
    own_ns = max(0.0, min(own_ns, mean_ns))
    mean_bytes = calls.timed_bytes / calls.timed_count
    # The time of an asymmetric operation depends on its key, not on its number of bytes.
    has_rate = mean_bytes > 0 and primitive.category != "asymmetric"
    return PrimitiveTiming(
        MEASURED, "", mean_ns, own_ns, mean_ns / mean_bytes if has_rate else None
    )


def _untimed(verdict: str, reason: str) -> PrimitiveTiming:
    return PrimitiveTiming(verdict, reason, None, None, None)


def _per(calls: Sum, phases: Collection[str], count: int) -> float | None:
    """Calls in these phases for each of `count`; None where there were none of either."""
    within = sum(calls.phases.get(phase, 0) for phase in phases)
    return within / count if count > 0 and within else None


def _sentence(call_count: int, probe_ns: float, share: float | None) -> str:
    of_cpu = "" if share is None else f", {share_text(share)} of the server's CPU time"
    return (
        f"Counting these {call_count:,} calls cost about {time_text(probe_ns)}{of_cpu}. The ledger "
        "of this capture includes that cost. The times below exclude the calibrated cost of their "
        "probes."
    )


def _rank(name: str, order: Sequence[str]) -> int:
    return order.index(name) if name in order else len(order)
