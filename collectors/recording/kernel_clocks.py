# SPDX-License-Identifier: GPL-2.0-only
"""What the kernel counted in some windows, as rows: the references of closure.

No figure here comes from the ledger's cells. The counts are read where some windows end, beside the
accounts, and where a thread ends. The rows are the differences since they were read before: they
are about all windows in between, the span.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tlstax.collectors.capture import schema
from tlstax.collectors.recording.accounts import ThreadAccount
from tlstax.collectors.recording.programs.views import SlotView
from tlstax.collectors.recording.stream.replay import Replay


@dataclass
class _Sums:
    """Of the threads that have an account, over the span."""

    cpu_ns: int = 0
    wait_ns: int = 0
    seen_count: int = 0
    steal_ns: int = 0
    handed_ns: int = 0


class KernelClocks:
    """The counts of one target from reading to reading."""

    def __init__(self, engine: Replay, now_ns: Callable[[], int], start_ns: int) -> None:
        self._engine = engine
        self._now_ns = now_ns
        self._edges_ns = [0, 0]
        self.begin(start_ns)

    def begin(self, start_ns: int) -> None:
        """A window begins at this time: the accounts hold the counts of this moment."""
        self._last = self._engine.read()
        self._is_whole = self._engine.has_counts
        """Whether the counts were read where the span begins: else there is no difference."""
        self._begin_span(start_ns)

    def _begin_span(self, start_ns: int) -> None:
        self._sums = _Sums()
        self._start_ns = start_ns
        self._window_count = 0

    def add_window(self) -> bool:
        """A further window of the span; whether it is the last, and all threads get a row."""
        self._window_count += 1
        return self._engine.has_counts

    def accounts_read(self, edge_ns: int) -> None:
        """The accounts of the edge at this time have been read, beside the kernel's counts."""
        self._edges_ns = [self._edges_ns[1], self._now_ns() - edge_ns]

    def thread(
        self, window: int, slot: SlotView, account: ThreadAccount, end_ns: int
    ) -> schema.ThreadClock:
        """The row of a thread; its counts are in the sums of the process from now on."""
        born = max(account.start_ns, self._start_ns)
        died = slot.last_ns if slot.exited else end_ns
        before, now = account.counts, slot.kernel_counts
        if now.time_ns > 0:
            account.counts = now
        known = now.time_ns > 0 and self._is_whole
        if known:
            self._sums.cpu_ns += now.cpu_ns - before.cpu_ns
            self._sums.wait_ns += max(0, now.wait_ns - before.wait_ns)
            self._sums.seen_count += now.seen_count - before.seen_count
        self._sums.steal_ns += slot.steal_ns - account.steal_ns
        self._sums.handed_ns += slot.handed_ns - account.handed_ns
        has_wait = known and self._last.has_wait
        clock = schema.ThreadClock(
            window,
            account.thread_id,
            max(0, died - born),
            now.cpu_ns - before.cpu_ns if known else None,
            max(0, now.wait_ns - before.wait_ns) if has_wait else None,
            slot.uncertain_ns - account.uncertain_ns,
            slot.healed_count - account.healed_count,
            slot.steal_ns - account.steal_ns,
            slot.handed_ns - account.handed_ns,
            self._window_count,
        )
        account.uncertain_ns, account.healed_count = slot.uncertain_ns, slot.healed_count
        account.steal_ns, account.handed_ns = slot.steal_ns, slot.handed_ns
        return clock

    def rows(self, window: int, end_ns: int) -> list[schema.Row]:
        """The rows of the process and of the CPUs, after those of its threads: the span ends."""
        before, now, sums = self._last, self._engine.read(), self._sums
        window_count, was_whole = self._window_count, self._is_whole
        self._last, self._is_whole = now, True
        self._begin_span(end_ns)
        whole = before.process_cpu_ns is not None and now.process_cpu_ns is not None
        if self._engine.executed_ns() or now.thread_count == 0 or not was_whole:
            return []  # it ended, its clocks are those of another program, or nothing is known
        process = schema.ProcessClock(
            window,
            (now.process_cpu_ns or 0) - (before.process_cpu_ns or 0) if whole else None,
            sums.cpu_ns,
            sums.wait_ns if now.has_wait else None,
            now.switch_count - before.switch_count,
            sums.seen_count,
            sums.steal_ns,
            now.thread_count,
            now.account_count,
            self._engine.untracked_count,
            sum(self._edges_ns),
            sums.handed_ns,
            window_count,
        )
        cpus = [
            schema.CpuClock(
                window,
                number,
                cpu.target_cpu_ns - old.target_cpu_ns,
                cpu.sample_count - old.sample_count,
            )
            for number, (cpu, old) in enumerate(zip(now.cpus, before.cpus, strict=True))
        ]
        return [process, *(row for row in cpus if row.target_cpu_ns or row.sample_count)]
