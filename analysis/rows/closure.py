# SPDX-License-Identifier: GPL-2.0-only
"""The ledger's sums against clocks and counts that it has no part in: the figures of closure.

Every reference is the kernel's or the server's own: see `collectors/recording/kernel_clocks.py`.
Some of them are not read in each window: a row is about a span of windows. A figure is computed for
the whole recording, and for each stretch of spans with at least one second of observed time; its
worst value is decisive. Bounds come from recordings of healthy servers, see
docs/measurements/closure.md.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tlstax.analysis.rows import closure_counts
from tlstax.analysis.rows.closure_counts import Pair, Span
from tlstax.analysis.rows.tables import Tables

OBSERVED_NS: Final = 1_000_000_000
"""Less observed time is not judged."""
_MS: Final = 1_000_000


class Bound(NamedTuple):
    """How much a figure may differ from its reference; a larger difference is a fault."""

    share: float
    """Of the reference."""
    fixed: float
    """In the unit of the figure: what the edges of a window can make."""
    event: float
    """For each of Pair.events: switches; for samples the square root of their number; for the
    server's counters what they grew by between two readings."""
    least: float
    """A smaller reference is too little to judge."""


class Figure(NamedTuple):
    """One figure of closure."""

    key: str
    name: str
    unit: str
    bound: Bound
    forbids: str
    """What the report may not be used for when the figure is beyond its bound."""
    absent: str
    """Why it was not checked, where there is no reference."""


FIGURES: Final = (
    Figure(
        "on_cpu", "CPU time against the CPU clock of the process", "ns",
        Bound(0.015, 10 * _MS, 500, 50 * _MS),
        "CPU times, their shares, and what is derived from them",
        "the CPU clock of the process was not read",
    ),
    Figure(
        "thread_on_cpu", "CPU time of the worst thread against the scheduler's", "ns",
        Bound(0.05, 20 * _MS, 500, 100 * _MS),
        "CPU times of single threads and roles",
        "no thread used enough CPU time",
    ),
    Figure(
        "runnable", "time waiting for a CPU against the scheduler's run delay", "ns",
        Bound(0.03, 20 * _MS, 500, 50 * _MS),
        "time waiting for a CPU, and the waits that it is separated from",
        "this kernel does not count the time that threads wait for a CPU",
    ),
    Figure(
        "threads", "threads in the ledger against threads of the process", "count",
        Bound(0.001, 0, 0, 1),
        "sums over threads, roles, and any total of the server",
        "the threads of the process were not counted",
    ),
    Figure(
        "thread_cpu", "CPU time of the threads in the ledger against that of the process", "ns",
        Bound(0.005, 5 * _MS, 0, 50 * _MS),
        "sums over threads, roles, and any total of the server",
        "the CPU clock of the process was not read",
    ),
    Figure(
        "steal", "time taken from the server's threads against the host's steal", "ns",
        Bound(0.02, 20 * _MS, 500, 0),
        "CPU times: part of them is not the server's",
        "the host's steal was not read",
    ),
    Figure(
        "switches", "switches seen against switches that the kernel counted", "count",
        Bound(0.001, 20, 0, 1000),
        "any time of the ledger: threads were in states that it did not see",
        "the switches of the process were not counted",
    ),
    Figure(
        "samples", "CPU samples against CPU time, on the worst CPU", "count",
        Bound(0.10, 5, 4, 50),
        "shares of functions and categories",
        "no CPU samples were taken",
    ),
    Figure(
        "exits", "phases whose end was seen against phases begun, of the worst boundary", "count",
        Bound(0.005, 20, 0, 100),
        "times of the phase that the boundary begins and ends",
        "no boundary began a phase that a probe ends",
    ),
    Figure(
        "commands", "commands against the server's own count", "count",
        Bound(0.02, 20, 1, 100),
        "times per command",
        "the server's counters were not read (--collect status)",
    ),
    Figure(
        "handshakes", "handshakes against the server's own count", "count",
        Bound(0.02, 2, 1, 10),
        "times per handshake and connection",
        "the server's counters were not read (--collect status)",
    ),
)  # fmt: skip


class Check(NamedTuple):
    """A figure over some windows, or without a reference."""

    figure: Figure
    value: float | None
    reference: float | None
    error: float
    """The part of the difference that counts against the figure."""
    allowed: float
    what: str
    """What it is about: a thread, a CPU, a boundary, or ''."""
    windows: tuple[int, int] | None
    """First and last; None: the whole recording."""
    verdict: str
    """ok, failed, too little, or not checked."""

    @property
    def used(self) -> float:
        """The error as a share of what is allowed; 1 is the bound."""
        return self.error / self.allowed if self.allowed else float(self.error > 0)


@dataclass
class Sums:
    """The ledger and its references over some windows."""

    windows: tuple[int, int] | None
    on_cpu_ns: int = 0
    runnable_ns: int = 0
    process_cpu_ns: int = 0
    has_cpu: bool = True
    account_cpu_ns: int = 0
    wait_ns: int = 0
    has_wait: bool = True
    switch_count: int = 0
    seen_count: int = 0
    steal_ns: int = 0
    handed_ns: int = 0
    host_steal_ns: int = 0
    thread_count: int = 0
    account_count: int = 0
    edges_ns: int = 0
    """How long it took to read the edges; where spans join, only the slowest counts."""
    observed_ns: int = 0
    last: tuple[int, int] = (0, 0)
    """End of the last span, and the slowest reading of those that join up to it."""

    def add(
        self, span: Span, states: Mapping[int, Mapping[str, int]], steal: Mapping[int, int]
    ) -> None:
        """Another span, in order of time; by window: the ledger's times and the host's steal."""
        row = span.row
        self.observed_ns += span.observed_ns
        slowest = self.last[1] if self.last[0] == span.windows[0].start_ns else 0
        self.edges_ns += max(0, row.edges_ns - slowest)
        self.last = span.windows[-1].end_ns, max(slowest, row.edges_ns)
        for window in span.windows:
            self.on_cpu_ns += states[window.window_id].get("on_cpu", 0)
            self.runnable_ns += states[window.window_id].get("runnable", 0)
            self.host_steal_ns += steal.get(window.window_id, 0)
        self.has_cpu = self.has_cpu and row.process_cpu_ns is not None
        self.process_cpu_ns += row.process_cpu_ns or 0
        self.account_cpu_ns += row.account_cpu_ns
        self.has_wait = self.has_wait and row.account_wait_ns is not None
        self.wait_ns += row.account_wait_ns or 0
        self.switch_count += row.switch_count
        self.seen_count += row.seen_switch_count
        self.steal_ns += row.steal_ns
        self.handed_ns += row.handed_ns
        self.thread_count += row.thread_count
        self.account_count += row.account_count


def check(tables: Tables) -> list[Check]:
    """Each figure at its worst, in the order of FIGURES."""
    stretches = observed(tables)
    enough = bool(stretches) and stretches[0].observed_ns >= OBSERVED_NS
    counts = closure_counts.pairs(tables) if stretches else {}
    return [_worst(figure, stretches, counts.get(figure.key, ()), enough) for figure in FIGURES]


def worst(checks: Iterable[Check]) -> Check | None:
    """The one that is nearest to its bound, or furthest beyond it; None where none was judged."""
    judged = [check for check in checks if check.verdict in ("ok", "failed")]
    return max(judged, key=lambda check: check.used, default=None)


def cpu_times(tables: Tables) -> dict[int, tuple[int, int]]:
    """CPU time by the ledger and by the CPU clock of the process, of each span that has both.

    By the last window of the span: one that asks for the end of a window has it read there. The
    ledger's without what the scheduler charges to other threads, see
    docs/how-it-measures.md.
    """
    on_cpu_ns: dict[int, int] = defaultdict(int)
    for row in tables.ledger:
        if row.state == "on_cpu":
            on_cpu_ns[row.window_id] += row.time_ns
    times = {}
    for windows, clock in closure_counts.spans(tables):
        if clock.process_cpu_ns is not None:
            spent_ns = sum(on_cpu_ns[window.window_id] for window in windows) - clock.handed_ns
            times[clock.window_id] = spent_ns, clock.process_cpu_ns
    return times


def agreement(times: Mapping[int, tuple[int, int]], window_ids: Iterable[int]) -> float | None:
    """1 - (difference of these windows' CPU times / CPU clock); `times`: see cpu_times().

    None where the clock was not read.
    """
    known = [times[window_id] for window_id in set(window_ids) if window_id in times]
    clock_ns = sum(clock for _, clock in known)
    return 1 - abs(sum(spent for spent, _ in known) - clock_ns) / clock_ns if clock_ns else None


def observed(tables: Tables) -> list[Sums]:
    """The whole recording, then each stretch of at least a second of observed time."""
    found = closure_counts.spans(tables)
    if not found:
        return []
    states: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in tables.ledger:
        states[row.window_id][row.state] += row.time_ns
    steal = {row.window_id: row.cpu_steal_ns for row in tables.system}
    whole = Sums(None)
    stretches: list[Sums] = []
    for group in _stretches(found):
        stretch = Sums((group[0].windows[0].window_id, group[-1].row.window_id))
        for span in group:
            whole.add(span, states, steal)
            stretch.add(span, states, steal)
        stretches.append(stretch)
    return [whole, *(stretches if len(stretches) > 1 else ())]


def _stretches(found: Sequence[Span]) -> list[list[Span]]:
    """Spans in order, in groups of at least OBSERVED_NS; the last takes what is left over."""
    groups: list[list[Span]] = []
    length_ns = OBSERVED_NS
    for span in found:
        if length_ns >= OBSERVED_NS:
            groups.append([])
            length_ns = 0
        groups[-1].append(span)
        length_ns += span.observed_ns
    if len(groups) > 1 and length_ns < OBSERVED_NS:
        rest = groups.pop()
        groups[-1] += rest
    return groups


def _worst(figure: Figure, stretches: Sequence[Sums], pairs: Sequence[Pair], enough: bool) -> Check:
    """The figure's worst value of all that was judged, or why it was not."""
    found = [
        *(one for sums in stretches if (one := _of_sums(figure, sums)) is not None),
        *(_judge(figure, pair, None) for pair in pairs),
    ]
    if not found:
        return Check(figure, None, None, 0, 0, "", None, "not checked")
    judged = [one for one in found if one.verdict != "too little"]
    if not enough or not judged:
        return found[0]._replace(verdict="too little")
    return max(judged, key=lambda one: one.used)


def _of_sums(figure: Figure, sums: Sums) -> Check | None:
    """A figure of times or counts of windows; None where it has no reference or is another."""
    pair: Pair | None = None
    surplus = 0.0
    if figure.key == "on_cpu" and sums.has_cpu:
        running = max(1.0, sums.process_cpu_ns / max(1, sums.observed_ns))
        value = sums.on_cpu_ns - sums.handed_ns
        pair = Pair(value, sums.process_cpu_ns, slack=running * sums.edges_ns)
        surplus = sums.host_steal_ns  # on the CPU for the ledger, and not for the clock
    elif figure.key == "runnable" and sums.has_wait:
        waiting = max(1.0, 2 * sums.wait_ns / max(1, sums.observed_ns))
        value = sums.runnable_ns + sums.handed_ns
        pair = Pair(value, sums.wait_ns, slack=waiting * sums.edges_ns)
    elif figure.key == "threads":
        pair = Pair(sums.account_count, sums.thread_count)
    elif figure.key == "thread_cpu" and sums.has_cpu:
        # Threads that end use some microseconds after the process has counted them: no surplus.
        pair = Pair(min(sums.account_cpu_ns, sums.process_cpu_ns), sums.process_cpu_ns)
    elif figure.key == "steal" and sums.has_cpu:
        pair = Pair(max(0, sums.steal_ns), sums.host_steal_ns, sums.process_cpu_ns)
    elif figure.key == "switches":
        pair = Pair(sums.seen_count, sums.switch_count)
    if pair is None:
        return None
    return _judge(figure, pair._replace(events=sums.switch_count), sums.windows, surplus)


def _judge(
    figure: Figure, pair: Pair, windows: tuple[int, int] | None, surplus: float = 0.0
) -> Check:
    bound = figure.bound
    base = pair.reference if pair.base is None else pair.base
    difference = pair.value - pair.reference
    if surplus and difference > 0:
        difference = max(0.0, difference - surplus)
    error = 0.0 if figure.key == "steal" and difference < 0 else abs(difference)
    allowed = bound.share * base + bound.fixed + bound.event * pair.events + pair.slack
    verdict = "ok" if error <= allowed else "failed"
    if base < bound.least:
        verdict = "too little"
    return Check(figure, pair.value, pair.reference, error, allowed, pair.what, windows, verdict)


def failed(checks: Iterable[Check]) -> Iterator[Check]:
    """Those beyond their bounds, the furthest first."""
    bad = [check for check in checks if check.verdict == "failed"]
    yield from sorted(bad, key=lambda check: -check.used)
