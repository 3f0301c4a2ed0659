# SPDX-License-Identifier: GPL-2.0-only
"""A recorder that is attached to a process: its windows as rows, and how it ended.

It holds nothing that grows with the time that it runs but what its caller asks it to keep.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.host.clock import cpu_used_ns, monotonic_ns
from tlstax.collectors.process.symbols import Place, Symbolizer
from tlstax.collectors.process.target import still_runs
from tlstax.collectors.process.target_fate import require_same_program
from tlstax.collectors.recording.by_recorder.asked import Asked, Recorded
from tlstax.collectors.recording.by_recorder.child import ChildPart, ChildTarget, RecorderChild
from tlstax.collectors.recording.proc_clocks import BothClocks, Clocks
from tlstax.collectors.recording.stack_store import UnnamedFrames
from tlstax.collectors.recording.stream.facts import engine_asked, text_of
from tlstax.collectors.recording.stream.replay import Replay
from tlstax.collectors.recording.stream.tables_file import GrowingTables
from tlstax.collectors.recording.stream.totals import StreamError
from tlstax.collectors.recording.stream_capture import StreamRows
from tlstax.collectors.recording.windows import WindowTotals

START_NS: Final = 60_000_000_000
STEP_MS: Final = 500


class RecorderSession:
    """A running recorder, or its part for one of several processes. Whoever makes one closes it."""

    def __init__(
        self,
        recorded: Recorded,
        arguments: Sequence[str],
        tables: "GrowingTables | bytes | None" = None,
        stacks_most: tuple[int, int] | None = None,
        clocks: Callable[[Replay], Clocks] = BothClocks,
        others: Sequence[Asked] = (),
        child: ChildPart | None = None,
        told: ChildTarget | None = None,
    ) -> None:
        """Start it and wait until it is attached, with --budget until it has made its choice.

        `tables`: the unwind tables, which grow with the process if they can. `stacks_most`: stacks
        in memory, see `StreamRows.bound_stacks`. `clocks`: of all that records. Without --budget
        windows also end on command. `others`: further processes, whose sessions get the `parts` of
        this one as their `child`. `told`: what the recorder is told, if that is known. Raises
        TlstaxError if a process cannot be recorded.
        """
        self.target = target = recorded.target
        self.run_id: int | None = None
        """Which the windows that arrive belong to."""
        self.before_rows: Callable[[int], None] | None = None
        """Called with the end of each window before its rows are made."""
        self._recorded, self._clocks = recorded, clocks
        arguments = [*arguments, *([] if "--budget" in arguments else ["--control"])]
        self.ending = ""
        """How it ended, as part of a sentence; "" while it goes on."""
        self.why_broken = ""
        """Why its stream cannot be read; "": it can."""
        self._early: list[tuple[list[schema.Row], WindowTotals]] = []
        self._growing = tables if isinstance(tables, GrowingTables) else None
        self._symbolizer = _LiveSymbolizer(target)
        self.parts: tuple[ChildPart, ...] = ()
        """For the sessions of the others."""
        self._child: RecorderChild | ChildPart
        try:
            if child is None:
                rest = [other.of_child for other in others]
                told = told or Asked(recorded, arguments, tables).of_child
                told = told._replace(arguments=arguments)
                started = RecorderChild(*told, recorded.recorder, rest)
                self._child, self.parts = started, started.parts
            else:
                self._child = child
        except BaseException:
            self._symbolizer.close()
            raise
        try:
            self.replay = self._begun()
            self._symbolizer.replay = self.replay
            self._begun_cpu_ns = cpu_used_ns()  # from here on the windows have it
            self.rows = self._new_rows()
            if stacks_most:
                self.rows.bound_stacks(*stacks_most)
            if "--budget" in arguments:
                self._await_choice()
        except BaseException:
            self.close()
            raise

    # ---- the start ----

    def _new_rows(self) -> StreamRows:
        of, clocks = self._recorded, self._clocks(self.replay)
        return StreamRows(
            self.replay, self.target, self._symbolizer, clocks, of.target_id, of.label
        )

    def begin_at(self, start_ns: int) -> None:
        """Leave out what was recorded up to this time: the first window begins there."""
        self.cut(start_ns)
        while (is_there := self._take_window()) and int(self.replay.window.end_ns) < start_ns:
            pass  # a cut of the server had ended that one before
        if is_there:
            self.replay.window.end_ns = start_ns
            self.rows = self._new_rows()

    def _begun(self) -> Replay:
        stream = self._child.stream
        self._await(lambda: stream.is_readable_to_a_window)
        try:
            if not stream.is_readable_to_a_window:
                raise StreamError("it was not attached within a minute")
            replay = Replay(stream, target=self._child.number)
            stream.window_taken()
        except StreamError as error:
            raise self._refused(str(error)) from None
        if int(replay.start.start_ticks) != self.target.start_ticks:
            require_same_program(self.target)  # it does not: another one has its pid now
        return replay

    def _await_choice(self) -> None:
        stream = self._child.stream
        self._await(lambda: stream.has_budget or stream.is_over)
        if not stream.has_budget:
            raise self._refused("the trial of the budget did not end")
        self._early = list(self._arrived())  # the window of the trial
        if self.replay.budget is None:
            self.replay.read_budget()

    def _await(self, is_so: Any) -> None:
        end_ns = monotonic_ns() + START_NS
        while not is_so() and monotonic_ns() < end_ns:
            self._child.wait(STEP_MS)

    def _refused(self, why: str) -> TlstaxError:
        """The error of a recorder that ended before its first window."""
        self._child.end()
        status = self._child.close()
        do = "see `tlstax doctor PID`"
        clients = " or one of its clients" if self.parts else ""
        if status == ExitCode.BUDGET:
            do = "Or record without a limit: --budget none"
        if status < 0:
            why = f"the recorder was killed by signal {-status}, and before that {self._child.said}"
            do = "try again; if nobody killed it, the kernel's log tells whether memory ran out"
        return TlstaxError(
            f"process {self.target.pid}{clients} cannot be recorded",
            self._child.said if status > 0 else why,
            do,
            code_of(status),
        )

    # ---- while it records ----

    @property
    def budget(self) -> Any:
        """How the budget is used; None without one."""
        return self.replay.budget

    def facts(self, before_ns: int) -> dict[str, object]:
        """How the programs record. `before_ns`: cpu_used_ns() where the recording began."""
        own_cpu_ns = self._begun_cpu_ns - before_ns
        return engine_asked(self.replay, own_cpu_ns + int(self.replay.start.start_cpu_ns))

    def wake_on(self, descriptor: int) -> None:
        """Make `wait` return at once when `descriptor` is readable."""
        self._child.wake_on(descriptor)

    def wait(self, time_ms: float) -> bool:
        """Take what arrives in this time; whether that, and not another event, ended the wait."""
        return self._child.wait(time_ms)

    def listen(self) -> None:
        """Take what has arrived, so that the recorder need not keep it."""
        self._child.take()

    def cut(self, end_ns: int) -> None:
        """Let the present window end at this time, which was just now."""
        self._child.cut(end_ns)

    def windows(self) -> Iterator[tuple[list[schema.Row], WindowTotals]]:
        """The windows that have arrived whole."""
        early, self._early = self._early, []
        yield from early
        yield from self._arrived()

    def _arrived(self) -> Iterator[tuple[list[schema.Row], WindowTotals]]:
        stream = self._child.stream
        while stream.is_readable_to_a_window and not self.ending:
            try:
                found = self.rows.next_window(self.run_id, self.before_rows)
            except StreamError as error:
                found, self.why_broken = None, str(error)
            stream.window_taken()
            if found is None:
                self.ending = self._how_it_ended()
                return
            if self._growing and self._growing.grow(self.replay.mappings):
                self._child.replace_tables(self._growing.content())
            yield found

    def window_ending(
        self, run_id: int | None, end_ns: int
    ) -> tuple[list[schema.Row], WindowTotals] | None:
        """The next window, taken to end then: `cut` asked for it, or the process ended before.

        None after the end, and where a cut of the server ended it already: it is in that one.
        """
        if int(self.replay.window.end_ns) >= end_ns:
            return None
        if not self._take_window():
            return None
        if self._growing and self._growing.grow(self.replay.mappings):
            self._child.replace_tables(self._growing.content())
        return self.rows.of_window(run_id, end_ns)

    def _take_window(self) -> bool:
        """Wait for the next window and read it; False: no more follow."""
        stream = self._child.stream
        while not stream.is_readable_to_a_window:
            self._child.wait(STEP_MS)
        try:
            is_there = not self.ending and self.replay.next_window()
        except StreamError as error:
            is_there, self.why_broken = False, str(error)
        stream.window_taken()
        if not is_there and not self.ending:
            self.ending = self._how_it_ended()
        return is_there

    @property
    def has_ended(self) -> bool:
        """Whether the recorder has ended; there may be windows to read."""
        if not self._child.stream.is_over:
            self._child.wait(0)
        return self._child.stream.is_over

    @property
    def is_read(self) -> bool:
        """Whether the recorder has ended and no window is left to read."""
        return self.has_ended and self._child.stream.windows_count == 0

    @property
    def own_costs(self) -> tuple[int, int]:
        """CPU time in ns that the recorder used by the last window, and bytes of its memory."""
        return int(self.replay.window.own_cpu_ns), int(self.replay.window.resident_bytes)

    def _how_it_ended(self) -> str:
        if self.why_broken:
            return f"the recorder's stream cannot be read: {self.why_broken}"
        end = self.replay.end
        return text_of(end.ending) if end is not None else "the recorder ended"

    # ---- the end ----

    def finish(self) -> Iterator[tuple[list[schema.Row], WindowTotals]]:
        """Detach; the windows that were still to come."""
        self._child.end()
        while not self.ending:
            self._child.wait(STEP_MS)
            yield from self.windows()

    def finish_unnamed(self, unnamed: UnnamedFrames) -> list[schema.Row]:
        """Detach; the last rows of a process that is recorded with another one.

        What was recorded since its last window is left out, the frames without names are left to
        `unnamed`.
        """
        is_over = self.has_ended and not still_runs(self.target)
        self._child.end()
        while self._take_window():
            pass
        return self.rows.end_beside(unnamed, is_over=is_over, ending=self._trouble())

    def _trouble(self) -> str:
        """Why its recording ended early although the process did not end; "" if it did not."""
        error, end = self.replay.error, self.replay.end
        if self.why_broken or end is None:
            return self.ending
        is_end = int(end.exit_code) in (ExitCode.OK, ExitCode.TARGET)
        return "" if is_end or error is None else text_of(error.text)

    def end_child(self) -> Symbolizer:
        """Wait for the recorder's end; the process's files, which the caller closes."""
        self._child.end()
        self._child.close()
        return self._symbolizer

    def close(self) -> int:
        """Detach at once if it still is attached; the exit status of the recorder."""
        self._child.end()
        status = self._child.close()
        self._symbolizer.close()
        return status

    @property
    def said(self) -> str:
        """The last line that the recorder said."""
        return self._child.said


def code_of(status: int) -> ExitCode:
    """The exit status of a recorder that failed, as this process's own."""
    codes = {int(code): code for code in ExitCode if code}
    return codes.get(status, ExitCode.FAILED)


class _LiveSymbolizer(Symbolizer):
    """Places and names of a process's addresses; the kernel's names come with the stream."""

    replay: Replay | None = None

    def kernel(self, address: int) -> Place:
        """By what the recorder found after it had detached."""
        found = self.replay.kernel_names.get(address) if self.replay else None
        if found is None:
            return super().kernel(address)
        return Place("kernel", "", 0, found[0], found[1], "kallsyms", "")
