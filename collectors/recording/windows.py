# SPDX-License-Identifier: GPL-2.0-only
"""Turn the recorder's running totals into the rows of one window after another.

The totals never decrease. A window is the difference from what earlier windows contain, plus the
open interval of each thread (from its last charge to the end of the window), which is added to its
current phase and state: windows join without a gap. Time charged after the window's end is left to
the next one, so that a window's rows add up to its length.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tlstax.collectors.capture import schema
from tlstax.collectors.capture.vocabulary import (
    DETAIL_PHASES,
    HANDSHAKE_PHASES,
    LEDGER_LEVELS,
    PHASES,
    ROLES,
    STATES,
)
from tlstax.collectors.recording.accounts import ThreadAccount, spent_since
from tlstax.collectors.recording.handshake_rows import Bits, handshake_row
from tlstax.collectors.recording.kernel_clocks import KernelClocks
from tlstax.collectors.recording.proc_clocks import Clocks
from tlstax.collectors.recording.programs.ledger_layout import (
    LATENCY_BUCKETS,
    STATE_CELLS,
    HandshakeRecord,
    bucket_bounds,
)
from tlstax.collectors.recording.programs.views import SlotView
from tlstax.collectors.recording.stack_store import StackStore
from tlstax.collectors.recording.stream.replay import Replay
from tlstax.collectors.recording.target_rows import SERVER_ID, ids_before
from tlstax.collectors.recording.thread_roles import ThreadRoles

_RESTING_THREADS: Final = 256
"""Threads that used no CPU until the kernel's counts are read and have a clock row even so."""
_SEEN: Final[Mapping[str, frozenset[str]]] = {
    "connection": frozenset(HANDSHAKE_PHASES),
    "handshake": frozenset(HANDSHAKE_PHASES),
    "signature": frozenset(HANDSHAKE_PHASES).difference(DETAIL_PHASES),
    "sample": frozenset(),
    "none": frozenset(),
}
"""Phases whose boundaries are probed at levels without a ledger; the others see them all."""
_OF_THREADS: Final = {"thread_slots_full", "storage_failed"}
"""Losses while attaching that last: the first window has them, too."""


@dataclass(frozen=True)
class WindowTotals:
    """Totals of one window, for live progress and for the proofs of an experiment's arms."""

    start_ns: int
    end_ns: int
    handshakes: tuple[schema.Handshake, ...]
    phase_counts: dict[str, int]
    losses: dict[str, int]
    on_cpu_ns: int


class WindowCutter:
    """Cuts windows out of an attached engine."""

    def __init__(
        self,
        engine: Replay,
        stacks: StackStore,
        roles: ThreadRoles | None = None,
        target_id: int = SERVER_ID,
        start_ns: int | None = None,
        all_clocks: bool = False,
        *,
        clocks: Clocks,
    ) -> None:
        """Everything up to `start_ns`, or to now, is excluded from the first window.

        Clocks are kept of threads that serve connections, or of all of them (`all_clocks`).
        `clocks`: of the recorder.
        """
        self._roles = roles
        self._engine = engine
        self._stacks = stacks
        self._accounts: dict[tuple[int, int, int], ThreadAccount] = {}
        self._target_id = target_id
        self._threads_count = self._handshakes_count = self.windows_count = ids_before(target_id)
        self._latency: dict[int, tuple[int, ...]] = {}
        self._counted: dict[int, tuple[int, ...]] | None = None  # when the ledger restarted
        self._losses: dict[str, int] = {}
        self._all_clocks = all_clocks
        self._recorder = clocks
        self._host = self._recorder.host_times()
        self._own_cpu_ns = self._recorder.own_cpu_ns()
        self._target_counters = self._recorder.target_counters(engine.pid)
        self._start_ns = start_ns or self._recorder.now_ns()
        self._clocks = KernelClocks(engine, self._recorder.now_ns, self._start_ns)
        self._detailed_ns = 0  # since when all operations of handshakes are seen
        self._discard()

    def _discard(self) -> None:
        """Drop what was recorded while attaching."""
        self._forget_past(self._start_ns)
        counts = self._engine.loss_counts()
        self._losses = {kind: counts[kind] for kind in counts.keys() - _OF_THREADS}
        self._latency = self._engine.latency_counts()

    def _forget_past(self, start_ns: int) -> None:
        """What the accounts hold at this time is in no window."""
        for slot in self._engine.slots():
            account = self._account(slot)
            account.cells = slot.settled(start_ns)
            account.uncertain_ns, account.healed_count = slot.uncertain_ns, slot.healed_count
            account.steal_ns = slot.steal_ns
            account.handed_ns = slot.handed_ns
            if slot.kernel_counts.time_ns:
                account.counts = slot.kernel_counts
        self._clocks.accounts_read(start_ns)

    def resume(self, start_ns: int) -> None:
        """Restart the ledger: what its cells hold now is excluded from the next window."""
        self._counted = self._engine.latency_counts()
        self._clocks.begin(start_ns)
        self._forget_past(start_ns)

    def cut(
        self, run_id: int | None, end_ns: int | None = None, level: str = "full"
    ) -> tuple[list[schema.Row], WindowTotals]:
        """End the window recorded at `level` now, or a moment ago, and begin the next one."""
        self.windows_count += 1
        window = self.windows_count
        # After an exec, everything belongs to another program.
        start_ns = self._start_ns
        end_ns = self._engine.executed_ns() or end_ns or self._recorder.now_ns()
        self._start_ns = end_ns
        rows: list[schema.Row] = [
            schema.Window(window, run_id, start_ns, end_ns, self._target_id, level)
        ]
        on_cpu_ns = 0
        if level in LEDGER_LEVELS:
            on_cpu_ns = self._cut_threads(rows, window, end_ns)
        else:
            self._forget_threads(rows)
        counted = self._counted or self._engine.latency_counts()
        self._counted = None
        seen = _SEEN.get(level, frozenset(PHASES))
        if not seen.issuperset(DETAIL_PHASES):
            self._detailed_ns = end_ns
        records = self._engine.handshake_records()
        bits = self._engine.network_bits
        handshakes = tuple(self._number(window, r, bits) for r in records if "handshake" in seen)
        rows.extend(handshakes)
        phase_counts = self._cut_latency(rows, window, seen, counted)
        self._cut_samples(rows, window, seen)
        self._cut_waits(rows, window, level)
        losses = self._cut_losses(rows, window)
        if self._target_id == SERVER_ID:
            rows.append(self._system(window))
        return rows, WindowTotals(start_ns, end_ns, handshakes, phase_counts, losses, on_cpu_ns)

    # ---- threads ----

    def _account(self, slot: SlotView) -> ThreadAccount:
        key = (slot.index, slot.tid, slot.thread_start_ns)
        account = self._accounts.get(key)
        if account is None:
            self._threads_count += 1
            account = ThreadAccount(self._threads_count, slot.tid, slot.thread_start_ns)
            account.counts = slot.first_counts
            self._accounts[key] = account
        return account

    def _cut_threads(self, rows: list[schema.Row], window: int, end_ns: int) -> int:
        on_cpu_ns = 0
        resting_left = _RESTING_THREADS
        has_counts = self._clocks.add_window()
        for slot in self._engine.slots():
            account = self._account(slot)
            role = self._role(slot)
            finish_ns = slot.last_ns if slot.exited else None
            name = slot.comm.decode("utf-8", "replace")
            row = schema.Thread(
                account.thread_id,
                slot.tid,
                name,
                role,
                slot.thread_start_ns,
                finish_ns,
                self._target_id,
            )
            if row != account.row:
                account.row = row
                rows.append(row)
            for cell, spent_ns in enumerate(spent_since(account.cells, slot.settled(end_ns))):
                if spent_ns > 0:
                    phase, state = divmod(cell, STATE_CELLS)
                    rows.append(
                        schema.Ledger(
                            window, account.thread_id, PHASES[phase], STATES[state], spent_ns
                        )
                    )
                    account.cells[cell] += spent_ns
                    on_cpu_ns += spent_ns if state == 0 else 0
            if has_counts or slot.exited:
                clock = self._clocks.thread(window, slot, account, end_ns)
                is_resting = not clock.sched_cpu_ns
                if not is_resting or ((slot.role or self._all_clocks) and resting_left):
                    resting_left -= is_resting
                    rows.append(clock)
            if slot.exited:
                del self._accounts[slot.index, slot.tid, slot.thread_start_ns]
                if self._roles is not None:
                    self._roles.forget(slot)
                self._engine.recycle(slot.index)
        if has_counts:
            self._clocks.accounts_read(end_ns)
            rows.extend(self._clocks.rows(window, end_ns))
        return on_cpu_ns

    def _role(self, slot: SlotView) -> str:
        """Role by what the thread did, else by its name or the functions that it never leaves."""
        if slot.role or self._roles is None:
            return ROLES[slot.role]
        return self._roles.role_of(slot)

    def _forget_threads(self, rows: list[schema.Row]) -> None:
        """Without a ledger: only make room where threads have ended."""
        for slot in self._engine.slots():
            if not slot.exited:
                continue
            account = self._accounts.pop((slot.index, slot.tid, slot.thread_start_ns), None)
            if account is not None and account.row is not None:
                rows.append(account.row._replace(end_ns=slot.last_ns))
            if self._roles is not None:
                self._roles.forget(slot)
            self._engine.recycle(slot.index)

    # ---- the rest ----

    def _number(self, window: int, record: HandshakeRecord, bits: Bits) -> schema.Handshake:
        self._handshakes_count += 1
        is_detailed = record.start_ns >= self._detailed_ns
        return handshake_row(self._handshakes_count, window, record, bits, is_detailed=is_detailed)

    def _cut_latency(
        self,
        rows: list[schema.Row],
        window: int,
        seen: frozenset[str],
        now: dict[int, tuple[int, ...]],
    ) -> dict[str, int]:
        ended: dict[str, int] = {}
        for phase, counts in now.items():
            before = self._latency.get(phase)
            if before == counts or PHASES[phase] not in seen:
                continue
            total = 0
            for bucket in range(LATENCY_BUCKETS):
                count = counts[bucket] - (before[bucket] if before else 0)
                if count:
                    low, high = bucket_bounds(bucket)
                    rows.append(schema.Latency(window, PHASES[phase], low, high, count))
                    total += count
            ended[PHASES[phase]] = total
            rows.append(schema.PhaseCount(window, PHASES[phase], total))
        self._latency = now
        return ended

    def _cut_samples(self, rows: list[schema.Row], window: int, seen: frozenset[str]) -> None:
        for key, count in self._engine.samples():
            user = self._stacks.user(key.user_stack, rows, key.user_ip, count)
            kernel = self._stacks.kernel(key.kernel_stack, rows, key.kernel_ip, count)
            phase = PHASES[key.phase] if PHASES[key.phase] in seen else "unknown"
            rows.append(schema.SampleStack(window, phase, key.syscall, user, kernel, count))

    def _cut_waits(self, rows: list[schema.Row], window: int, level: str) -> None:
        if level not in LEDGER_LEVELS:
            return
        for wait, value in self._engine.waits():
            rows.append(
                schema.OffcpuStack(
                    window,
                    PHASES[wait.phase],
                    STATES[wait.state],
                    wait.syscall,
                    self._stacks.user(wait.user_stack, rows, 0, value.wait_count),
                    self._stacks.wait(wait.kernel_stack, rows, value.wait_count),
                    value.wait_count,
                    value.time_ns,
                )
            )

    def _cut_losses(self, rows: list[schema.Row], window: int) -> dict[str, int]:
        now = self._engine.loss_counts() | {"stack_forgotten": self._stacks.forgotten_count}
        lost = {kind: now[kind] - self._losses.get(kind, 0) for kind in now}
        self._losses = now
        rows.extend(schema.Loss(window, kind, count) for kind, count in lost.items() if count)
        return {kind: count for kind, count in lost.items() if count}

    def own_cpu_ns(self) -> int:
        """CPU time of what records since the last window."""
        return self._recorder.own_cpu_ns() - self._own_cpu_ns

    def _system(self, window: int) -> schema.System:
        host, own = self._recorder.host_times(), self._recorder.own_cpu_ns()
        user, system, interrupt, steal, idle = (
            now - before for now, before in zip(host, self._host, strict=True)
        )
        resident = self._recorder.resident_bytes()
        own_spent = own - self._own_cpu_ns
        counters = self._target_counters.growth() if self._target_counters else ()
        row = schema.System(
            window, user, system, interrupt, steal, idle, own_spent, resident, *counters
        )
        self._host, self._own_cpu_ns = host, own
        return row
