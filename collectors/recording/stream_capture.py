# SPDX-License-Identifier: GPL-2.0-only
"""The rows of what a stream holds, window by window."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tlstax.collectors.capture import schema
from tlstax.collectors.process.symbols import Symbolizer
from tlstax.collectors.process.target import Target
from tlstax.collectors.recording.function_windows import FunctionRows
from tlstax.collectors.recording.part_end import PartEnd
from tlstax.collectors.recording.proc_clocks import Clocks
from tlstax.collectors.recording.programs.expected_cost import (
    FLOOR_CPUS,
    budget_summary,
    hit_cost_facts,
    shares_of,
    shares_of_budget,
)
from tlstax.collectors.recording.safety_rows import safety_rows
from tlstax.collectors.recording.stack_store import StackStore, UnnamedFrames, stacks_of
from tlstax.collectors.recording.stream.facts import stream_walk_rows, suspend_rows, text_of
from tlstax.collectors.recording.stream.part_counts import NO_COUNTS, between
from tlstax.collectors.recording.stream.replay import Replay
from tlstax.collectors.recording.target_rows import (
    SERVER_ID,
    calibration_rows,
    gap_rows,
    probe_rows,
    target_row,
)
from tlstax.collectors.recording.thread_roles import ThreadRoles
from tlstax.collectors.recording.windows import WindowCutter, WindowTotals
from tlstax.probes.model import Level

_PARTS: Final = ("record_read", "command", "record_write")  # of stream_window
_UNKNOWN_END: Final = "unknown: the stream was cut"


class StreamRows:
    """The rows of a stream's recording, in order: what stands once, each window, the end."""

    def __init__(
        self,
        replay: Replay,
        target: Target,
        symbolizer: Symbolizer,
        clocks: Clocks,
        target_id: int = SERVER_ID,
        label: str = "",
    ) -> None:
        """The stream has been read up to its first totals; `symbolizer` is of `target`.

        `label` is the name that reports show of a process that is not the server.
        """
        self._target_id, self._label = target_id, label
        self.replay = replay
        self._target = target
        self._symbolizer = symbolizer
        self._plan = plan = replay.plan_file.plan
        is_server = target_id == SERVER_ID
        self._stacks = StackStore(replay.stack_addresses, symbolizer, target_id)
        self._cutter = WindowCutter(
            self.replay,
            self._stacks,
            ThreadRoles(replay, plan.role_marks) if is_server else None,
            target_id,
            start_ns=int(replay.window.end_ns),
            all_clocks=plan.role not in ("server", "client"),
            clocks=clocks,
        )
        functions = replay.plan_file.functions
        self._functions = FunctionRows(functions, replay.functions) if functions else None
        self._cpu_ns = self._target_cpu_ns()
        self._suspended_ns = int(replay.window.suspended_ns)
        self._before = self._earlier = NO_COUNTS
        self._predicted: dict[str, float] = {}

    @property
    def windows_count(self) -> int:
        """Windows so far."""
        return self._cutter.windows_count

    def begin(self) -> Iterator[schema.Row]:
        """What was probed, and what is missing."""
        yield target_row(self._target, self._plan, self._target_id, self._label)
        yield from gap_rows(self._plan, self._target_id)
        if self._target_id == SERVER_ID:
            yield from calibration_rows(self._plan)
        yield from safety_rows(self.replay.plan_file.safety, self._target_id)
        if self._functions:
            yield from self._functions.begin()
        yield from self._probes()

    def _probes(self) -> list[schema.Probe]:
        """All probes with their hits so far in this capture, those of functions at the end."""
        now = self.replay.probe_counts()
        rows = between(probe_rows(self.replay, self._target_id), self._earlier, now)
        if self._functions:
            suffix = "_multi" if self.replay.multi else ""
            rows += self._functions.probes(len(rows) + 1, suffix)
        return rows

    def next_window(
        self, run_id: int | None = None, before_rows: Callable[[int], None] | None = None
    ) -> tuple[list[schema.Row], WindowTotals] | None:
        """The rows of the next window, which belongs to a run; None if no more follow.

        `before_rows` is called when the window has been read, with the time when it ended.
        """
        self._before = self.replay.probe_counts()
        if not self.replay.next_window():
            return None
        end_ns = int(self.replay.window.end_ns)
        if before_rows:
            before_rows(end_ns)
        return self.of_window(run_id, end_ns)

    def end_cpu(self) -> schema.Meta:
        """CPU time of what records since the last window: nothing of it is in a window."""
        return schema.Meta("end_cpu_ns", str(self._cutter.own_cpu_ns()))

    def of_window(self, run_id: int | None, end_ns: int) -> tuple[list[schema.Row], WindowTotals]:
        """The rows of the window that was just read, taken to end then."""
        now = self.replay.window
        level = text_of(now.level)
        if now.restarts:
            self._cutter.resume(end_ns)
        level = "full" if level == Level.RECORD.name.lower() else level
        rows, totals = self._cutter.cut(run_id, end_ns, level)
        if self._target_id != SERVER_ID:
            return rows, totals
        effect = self._effect(self._cutter.windows_count)
        if not self._predicted:
            self._predicted = _shares_of_window(effect, rows, totals)
        rows += suspend_rows(self.windows_count, self._suspended_ns, int(now.suspended_ns))
        self._suspended_ns = int(now.suspended_ns)
        if self._functions:
            rows += self._functions.cut(self._cutter.windows_count)
        if now.is_stretch:
            rows += [
                schema.CommandPart(self._cutter.windows_count, part, spent_ns)
                for part, spent_ns in zip(_PARTS, now.part_ns, strict=True)
            ]
        return [*rows, effect], totals

    def expect_anew(self) -> None:
        """What every window is expected to cost the next one tells: this had further work."""
        self._predicted = {}

    def facts(self) -> Iterator[schema.Meta]:
        """What was expected: of every window what the first cost, or with a budget the choice."""
        budget = self.replay.budget
        shares = self._predicted if budget is None else shares_of_budget(budget)
        for key, value in shares.items():
            yield schema.Meta(key, f"{value:.6f}")
        yield from hit_cost_facts(self.replay.hit_price, self.replay.whole_price)
        if budget is not None and budget.share_ppm:
            yield schema.Meta("budget_share", f"{budget.share_ppm / 1e6:g}")
            yield schema.Meta("budget_choice", budget_summary(budget))

    def end(self, unnamed: UnnamedFrames | None = None) -> list[schema.Row]:
        """What the probes counted, how it ended, and the names of all frames.

        `unnamed`: frames of processes that were recorded with this one.
        """
        unnamed = unnamed or UnnamedFrames()
        self._stacks.leave(unnamed)
        return [*unnamed.rows(), *self._probes(), *self._end_rows()]

    def end_beside(self, unnamed: UnnamedFrames, *, is_over: bool, ending: str) -> list[schema.Row]:
        """What the probes of a process that is not the server counted; its frames are left there.

        `is_over`: it has ended. `ending`: why its recording ended before it, "" if it did not.
        """
        self._stacks.leave(unnamed, is_over=is_over)
        rows: list[schema.Row] = [*self._probes()]
        if ending:
            rows.append(schema.Gap(self._target_id, "the end of its recording", ending))
        return rows

    def bound_stacks(self, sent: int, stored: int) -> None:
        """Keep in memory so many stacks as they are sent, and so many of one capture."""
        self.replay.stacks_most, self._stacks.stacks_most = sent, stored

    def part_end(self, ahead: Sequence[schema.Row] = ()) -> PartEnd:
        """End a capture while the recording goes on.

        `ahead`: the window that was cut last, if it belongs to the next capture.
        """
        unnamed = self._stacks.take_unnamed()
        carried = self._stacks.begin_again(stacks_of(ahead))
        starts = [row.start_ns for row in ahead if isinstance(row, schema.Window)]
        end_ns = min(starts, default=int(self.replay.window.end_ns))
        now = self._before if ahead else self.replay.probe_counts()
        rows = [
            *between(probe_rows(self.replay, self._target_id), self._earlier, now),
            *stream_walk_rows(self.replay, now.walks, self._earlier.walks),
            schema.Meta("end_monotonic_ns", str(end_ns)),
        ]
        self._earlier = now
        return PartEnd(rows, unnamed, carried)

    def _target_cpu_ns(self) -> int | None:
        return self.replay.read().process_cpu_ns

    def _effect(self, window: int) -> schema.Effect:
        """What the recorder counted as the cost of a window."""
        before_ns, now_ns = self._cpu_ns, self._target_cpu_ns()
        self._cpu_ns = now_ns
        spent_ns = None if now_ns is None or before_ns is None else max(0, now_ns - before_ns)
        known, now = self._plan.host_costs.measured, self.replay.window
        return schema.Effect(
            window,
            spent_ns,
            int(now.probes_ns) if known else None,
            int(now.scheduler_ns),
            int(now.samples_ns),
            int(now.neighbours_ns),
        )

    def _end_rows(self) -> Iterator[schema.Row]:
        replay = self.replay
        yield schema.Meta("end_monotonic_ns", str(int(replay.window.end_ns)))
        ending = text_of(replay.end.ending) if replay.end else _UNKNOWN_END
        yield schema.Meta("target_ending", ending)
        if count := replay.forked_count():
            text = f"{count} were started while it was recorded; they are not measured."
            yield schema.Gap(1, "processes that it started", text)
        yield from stream_walk_rows(replay, replay.walk_counts())
        merged = int(replay.end.merged_count if replay.end else replay.window.merged_count)
        if merged:
            text = f"{merged} windows are parts of longer ones: the reader of the stream was slow."
            yield schema.Gap(1, "windows", text)


def _shares_of_window(
    effect: schema.Effect, rows: Sequence[schema.Row], totals: WindowTotals
) -> dict[str, float]:
    """The overhead of a window, as shares of the server's CPU time."""
    (own_ns,) = (row.engine_cpu_ns for row in rows if isinstance(row, schema.System))
    floor_ns = FLOOR_CPUS * (totals.end_ns - totals.start_ns)
    base_ns = max(1.0, effect.target_cpu_ns or 0, floor_ns)
    return shares_of((*effect.costs_ns, own_ns), base_ns)
