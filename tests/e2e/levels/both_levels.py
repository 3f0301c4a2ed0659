# SPDX-License-Identifier: GPL-2.0-only
"""One run of a server recorded at `record` and at `flow` at the same time, for comparison.

Two engines are attached to one process; their accounts are read together, before the work and after
it. What `flow` calls `command` is reading, executing and answering at `record`.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from tlstax.collectors.capture.vocabulary import PHASES, ROLES, STATES
from tlstax.collectors.host.clock import monotonic_ns
from tlstax.collectors.placement.planning import plan_in_child
from tlstax.collectors.recording.programs.ledger_layout import STATE_CELLS
from tlstax.probes.model import Level
from tlstax.tests.loader.native import Engine, Options
from tlstax.tests.safe_programs import safe_programs

SERVING: Final = frozenset({"connection", "pool_worker", "x_plugin"})
ONE_PHASE: Final = {"record_read": "command", "record_write": "command"}
LARGE_SHARE, AGREEMENT, FIXED_NS = 0.01, 0.02, 1_000_000
LAST_EVENTS_S: Final = 0.1
Thread = tuple[int, int]
Cells = Counter[tuple[str, str]]


@dataclass(frozen=True)
class Seen:
    """What one level holds of the threads that served clients while the work was done."""

    cells: Cells
    counts: Counter[str]
    latencies: dict[str, Counter[int]]  # of all threads: instances by bucket
    handshakes: Counter[int]  # by side: 1 as a server, 0 as a client, -1 unknown
    losses: dict[str, int]  # of the ledger and the records: see real_losses
    handed_ns: int  # on-CPU time that belongs to neighbours: switches are seen late

    @property
    def handshakes_count(self) -> int:
        """Of both sides."""
        return self.handshakes.total()

    @property
    def told(self) -> dict[str, int]:
        """Counts of what both levels count."""
        return {phase: n for phase, n in self.counts.items() if phase not in ONE_PHASE}


class Watcher:
    """One of the two engines."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._before: dict[Thread, list[int]] = {}
        self._counts_before: dict[Thread, list[int]] = {}
        self._handed_before: dict[Thread, int] = {}
        self._latencies_before: dict[int, tuple[int, ...]] = {}

    def begin(self, now_ns: int) -> None:
        """What is counted begins now."""
        for slot in self._engine.maps.slots():
            key = slot.tid, slot.thread_start_ns
            self._before[key] = slot.settled(now_ns)
            self._counts_before[key] = list(slot.counts)
            self._handed_before[key] = slot.handed_ns
        self._latencies_before = self._engine.maps.latency_counts()
        self._engine.maps.handshake_records()

    def _latencies(self) -> dict[str, Counter[int]]:
        found = {}
        for phase, counts in self._engine.maps.latency_counts().items():
            before = self._latencies_before.get(phase, [0] * len(counts))
            since = (now - was for now, was in zip(counts, before, strict=True))
            found[PHASES[phase]] = +Counter(dict(enumerate(since)))
        return found

    def serving(self, roles: Collection[str] = SERVING) -> set[Thread]:
        """The threads that serve clients, or of other roles."""
        return {
            (slot.tid, slot.thread_start_ns)
            for slot in self._engine.maps.slots()
            if ROLES[slot.role] in roles
        }

    def end(self, now_ns: int, serving: set[Thread], phases: Mapping[str, str]) -> Seen:
        """The sums since begin() until now, with phases under other names."""
        cells: Cells = Counter()
        counts: Counter[str] = Counter()
        handed_ns = 0
        for slot in self._engine.maps.slots():
            key = slot.tid, slot.thread_start_ns
            if key not in serving:
                continue
            nothing = [0] * len(slot.cells)
            before = self._before.get(key, nothing)
            for cell, (was, ns) in enumerate(zip(before, slot.settled(now_ns), strict=True)):
                phase, state = divmod(cell, STATE_CELLS)
                if ns != was:
                    name = PHASES[phase]
                    cells[phases.get(name, name), STATES[state]] += ns - was
            handed_ns += slot.handed_ns - self._handed_before.get(key, 0)
            was_counted = self._counts_before.get(key, nothing)
            for phase, name in enumerate(PHASES):
                counts[name] += slot.counts[phase] - was_counted[phase]
        losses = {kind: n for kind, n in self._engine.loss_counts().items() if n}
        sides = Counter(record.is_server for record in self._engine.maps.handshake_records())
        return Seen(+cells, +counts, self._latencies(), sides, losses, handed_ns)


@dataclass(frozen=True)
class Both:
    """The same work at both levels."""

    record: Seen
    flow: Seen

    def differences(self) -> dict[tuple[str, str], tuple[float, float]]:
        """Cells of at least 1 % of the time that differ by more than 2 % and 1 ms, in ms.

        The engines see an event one after the other: with thousands of short waits their clocks are
        up to a millisecond apart. Where the one that is first needs longer when a thread leaves its
        CPU than when it comes, as with cold caches, the other sees more time on the CPU: each says
        how much of its own is due to that.
        """
        total_ns = self.record.cells.total()
        late_ns = abs(self.record.handed_ns - self.flow.handed_ns)
        found = {}
        for key in self.record.cells.keys() | self.flow.cells.keys():
            one, other = self.record.cells[key], self.flow.cells[key]
            is_large = max(one, other) >= LARGE_SHARE * total_ns
            if is_large and abs(one - other) > AGREEMENT * max(one, other) + FIXED_NS + late_ns:
                found[key] = one / 1e6, other / 1e6
        return found


@contextmanager
def watched(
    pid: int, roles: Collection[str] = SERVING, one_phase: Mapping[str, str] = ONE_PHASE
) -> Iterator[Callable[[Callable[[], object]], Both]]:
    """Both engines are attached; a function that does some work and says what both saw of it.

    Of threads of these roles; `one_phase`: what phases of `record` are called at `flow`.
    """
    with ExitStack() as stack:
        watchers = {}
        for level in (Level.RECORD, Level.FLOW):
            _, plan = plan_in_child(pid, level)
            options = Options(sample_hz=0, slots_count=8192, programs=safe_programs())
            engine = Engine(pid, plan, options)
            stack.callback(engine.close)
            engine.attach()
            watchers[level] = Watcher(engine)

        def observe(work: Callable[[], object]) -> Both:
            time.sleep(LAST_EVENTS_S)  # a command ends at the next receive
            now_ns = monotonic_ns()
            for watcher in watchers.values():
                watcher.begin(now_ns)
            work()
            time.sleep(LAST_EVENTS_S)
            serving = watchers[Level.RECORD].serving(roles)
            now_ns = monotonic_ns()
            return Both(
                watchers[Level.RECORD].end(now_ns, serving, one_phase),
                watchers[Level.FLOW].end(now_ns, serving, {}),
            )

        yield observe
