# SPDX-License-Identifier: GPL-2.0-only
"""Says when something happened for which the raw windows of the hour are worth keeping.

The last minutes are compared with the hour before them, which the watch has seen itself: nothing
fires before that is known. What fired is silent for an hour.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from tlstax.analysis.fleet.columns import SECOND_NS
from tlstax.analysis.fleet.histograms import quantile
from tlstax.analysis.fleet.rollup.intervals import WALL, Sums

MINUTE_NS: Final = 60 * SECOND_NS
RECENT: Final = 5
"""Minutes that are judged."""
BEFORE: Final = 60
"""Minutes before them."""
BEFORE_LEAST: Final = 15
"""Of these, so many must be known."""
TIMES: Final = 2.0
"""What is larger by this factor than before fires."""
HANDSHAKES_LEAST: Final = 100
P99_LEAST_NS: Final = 5_000_000
"""A 99th percentile that grew by less than this does not fire."""
FAILURES_LEAST: Final = 3
CLOSURE_LEAST: Final = 0.95
"""Share of the server's CPU time that the ledger must have."""
CPU_LEAST_NS: Final = 3 * SECOND_NS
"""CPU time of the server in the judged minutes below which no share is judged."""
TLS_SHARE_LEAST: Final = 0.05
_SUCCESS: Final = "success"
_Kind = TypeVar("_Kind")

P99: Final = "trigger-handshake-p99"
OUTCOME: Final = "trigger-new-outcome"
CLOSURE: Final = "trigger-closure"
TLS_CPU: Final = "trigger-tls-cpu"
TRIGGERS: Final = (P99, OUTCOME, CLOSURE, TLS_CPU)


class Fired(NamedTuple):
    """A trigger that fired."""

    trigger: str
    share: float
    """How much of what it is about: for p99 0, for outcomes of the handshakes, else of CPU time."""
    size_ns: float
    sentence: str


@dataclass
class _Minute:
    """Sums of a minute."""

    start_ns: int
    wall: dict[str, int] = field(default_factory=dict)
    outcomes: dict[tuple[str, ...], int] = field(default_factory=dict)
    handshake_cpu_ns: int = 0
    ledger_cpu_ns: int = 0
    """CPU time of all threads in the windows that had a ledger."""
    process_cpu_ns: int = 0
    """The same by the clock of the process."""


class Triggers:
    """Of one server."""

    def __init__(self) -> None:
        self._minutes: deque[_Minute] = deque(maxlen=BEFORE + RECENT)
        self._fired_ns: dict[str, int] = {}

    def add(self, sums: Sums) -> list[Fired]:
        """Add the sums of a window; what fired, once a minute has ended."""
        ((key, whole),) = sums.interval.items()
        start_ns = int(key[0]) // MINUTE_NS * MINUTE_NS
        fired: list[Fired] = []
        if not self._minutes or self._minutes[-1].start_ns != start_ns:
            fired = self._judged(start_ns) if self._minutes else []
            self._minutes.append(_Minute(start_ns))
        now = self._minutes[-1]
        for name, count in sums.phase_latency.get((key[0], WALL), {}).items():
            now.wall[name] = now.wall.get(name, 0) + count
        for (_, outcome, version, *_), numbers in sums.handshake.items():
            kind = (str(outcome), str(version))
            now.outcomes[kind] = now.outcomes.get(kind, 0) + numbers["handshake_count"]
        if whole.get("ledger_observed_ns"):
            now.handshake_cpu_ns += whole.get("handshake_cpu_ns", 0)
            now.ledger_cpu_ns += sum(row.get("on_cpu_ns", 0) for row in sums.ledger.values())
            now.process_cpu_ns += whole.get("process_cpu_ns", 0)
        return fired

    def _judged(self, now_ns: int) -> list[Fired]:
        minutes = list(self._minutes)
        recent, before = minutes[-RECENT:], minutes[:-RECENT]
        if len(before) < BEFORE_LEAST:
            return []
        found = (_p99(recent, before), _outcome(recent, before), _closure(recent),
                 _tls_cpu(recent, before))  # fmt: skip
        fired = []
        for one in found:
            since_ns = now_ns - self._fired_ns.get(one.trigger, now_ns + 1) if one else 0
            # Less than 0: never, or the clock was set back.
            if one and not 0 <= since_ns < BEFORE * MINUTE_NS:
                self._fired_ns[one.trigger] = now_ns
                fired.append(one)
        return fired


def _p99(recent: list[_Minute], before: list[_Minute]) -> Fired | None:
    now, then = (_merged([one.wall for one in part]) for part in (recent, before))
    if min(now.get("ended_count", 0), then.get("ended_count", 0)) < HANDSHAKES_LEAST:
        return None
    now_ns, then_ns = (_quantile(one) for one in (now, then))
    if now_ns <= TIMES * then_ns or now_ns - then_ns < P99_LEAST_NS:
        return None
    text = (
        f"One in 100 TLS handshakes took longer than {now_ns / 1e6:.1f} ms, in the "
        f"{len(before)} minutes before {then_ns / 1e6:.1f} ms."
    )
    return Fired(P99, 0.0, now_ns, text)


def _outcome(recent: list[_Minute], before: list[_Minute]) -> Fired | None:
    known = {kind for one in before for kind in one.outcomes}
    counts = _merged([one.outcomes for one in recent])
    new = {
        kind: count
        for kind, count in counts.items()
        if kind not in known and kind[0] != _SUCCESS and count >= FAILURES_LEAST
    }
    if not new:
        return None
    (outcome, version), count = max(new.items(), key=lambda item: item[1])
    text = (
        f"{count} TLS handshakes ({version}) ended as {outcome}, of which the {len(before)} "
        "minutes before had none."
    )
    return Fired(OUTCOME, count / sum(counts.values()), 0.0, text)


def _closure(recent: list[_Minute]) -> Fired | None:
    process_ns = sum(one.process_cpu_ns for one in recent)
    if process_ns < CPU_LEAST_NS:
        return None
    share = sum(one.ledger_cpu_ns for one in recent) / process_ns
    if share >= CLOSURE_LEAST:
        return None
    text = f"The ledger has {share:.1%} of the CPU time that the server used."
    return Fired(CLOSURE, 1 - share, 0.0, text)


def _tls_cpu(recent: list[_Minute], before: list[_Minute]) -> Fired | None:
    now_cpu, then_cpu = (sum(one.process_cpu_ns for one in part) for part in (recent, before))
    if min(now_cpu, then_cpu) < CPU_LEAST_NS:
        return None
    now, then = (
        sum(one.handshake_cpu_ns for one in part) / cpu
        for part, cpu in ((recent, now_cpu), (before, then_cpu))
    )
    if now < TLS_SHARE_LEAST or now <= TIMES * then:
        return None
    text = (
        f"TLS handshakes took {now:.1%} of the server's CPU time, in the {len(before)} minutes "
        f"before {then:.1%}."
    )
    return Fired(TLS_CPU, now, 0.0, text)


def _merged(parts: list[dict[_Kind, int]]) -> dict[_Kind, int]:
    whole: dict[_Kind, int] = {}
    for part in parts:
        for key, count in part.items():
            whole[key] = whole.get(key, 0) + count
    return whole


def _quantile(numbers: Mapping[str, int]) -> float:
    counts = {int(name): count for name, count in numbers.items() if name != "ended_count"}
    return quantile(counts, 0.99) or 0.0
