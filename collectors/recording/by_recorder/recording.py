# SPDX-License-Identifier: GPL-2.0-only
"""Record one process through the static recorder: plan, start it, store its windows as they come.

While probes are attached, this process reads a pipe and writes a capture; it does not look at the
measured side. Names are looked up afterwards.
"""

import os
from types import TracebackType
from typing import Final, Self

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.writer import BUSY_SECONDS, CaptureWriter
from tlstax.collectors.host.clock import cpu_used_ns, monotonic_ns
from tlstax.collectors.host.recording_facts import cpu_facts, recording_facts
from tlstax.collectors.placement.model import FunctionPlan, Plan
from tlstax.collectors.placement.planning import plan_functions_in_child, plan_in_child
from tlstax.collectors.preflight.safety import Safety
from tlstax.collectors.process.symbols import Place, Symbolizer
from tlstax.collectors.process.target import require_host_pids
from tlstax.collectors.process.target_fate import ended_error, require_same_program
from tlstax.collectors.process.thread_room import thread_room
from tlstax.collectors.recording.by_recorder.child import RecorderChild
from tlstax.collectors.recording.by_recorder.stretch_times import stretch_plan
from tlstax.collectors.recording.engine.expected_cost import (
    FLOOR_CPUS,
    budget_is_continuous,
    budget_summary,
)
from tlstax.collectors.recording.proc_clocks import BothClocks
from tlstax.collectors.recording.request import Request
from tlstax.collectors.recording.safe_request import limits_of, made_safe
from tlstax.collectors.recording.stream.plan_file import plan_file_text
from tlstax.collectors.recording.stream.replay import Replay
from tlstax.collectors.recording.stream.tables_file import GrowingTables, process_tables
from tlstax.collectors.recording.stream.totals import StreamError
from tlstax.collectors.recording.stream_capture import (
    StreamRows,
    engine_asked,
    text_of,
)
from tlstax.collectors.recording.windows import WindowTotals

_START_MS: Final = 60_000
_STEP_MS: Final = 1000
_PATIENCE_S: Final = 0.05
"""Who reads the capture meanwhile delays its windows, and nothing else."""
NS_PER_MS: Final = 1_000_000


class StaticRecording:
    """A recording in progress. Use as a context manager: leaving it detaches and finishes."""

    def __init__(self, request: Request) -> None:
        """Plan and attach. Raises TlstaxError; then no capture remains."""
        used_before_ns = cpu_used_ns()
        require_host_pids()
        self.request = request = made_safe(request)
        self.ending = ""  # how it ended, as part of a sentence; "" while it goes on
        self.last: WindowTotals | None = None
        self._error: TlstaxError | None = None
        self._commit_ns = 0
        self._target, plan = plan_in_child(
            request.pid, request.level, request.definitions, limits=limits_of(request)
        )
        asked = (request.pid, request.functions, request.definitions)
        functions = plan_functions_in_child(*asked) if request.functions else None
        stretches = stretch_plan(request, plan)
        self._symbolizer = _LiveSymbolizer(self._target)
        self._writer = CaptureWriter.create(request.capture, request.overwrite)
        try:
            self._tables = self._own_tables()
            self._child = self._started(plan, functions, stretches)
            try:
                self._begin(cpu_used_ns() - used_before_ns)
            except BaseException:
                self._child.close()
                self._stop_sources()
                raise
        except BaseException as error:
            self._writer.discard()
            self._symbolizer.close()
            if isinstance(error, TlstaxError):
                require_same_program(self._target)  # the reason of any error, if it ended
            raise

    def _started(
        self, plan: Plan, functions: FunctionPlan | None, stretches: Plan | None
    ) -> RecorderChild:
        safety = self.request.safety or Safety()
        text = plan_file_text(self._target, plan, safety, functions, stretches)
        content = self._tables.content() if self._tables else None
        arguments = self._arguments()
        if stretches:
            arguments += ["--calibrate", f"{(self.request.calibration_s or 0) * 1000:.3f}ms"]
        return RecorderChild(text, content, arguments)

    def _own_tables(self) -> "GrowingTables | None":
        """The unwind tables of the process; None where stacks are not walked by them."""
        request = self.request
        if not request.unwind_tables or not (request.safety or Safety()).user_stacks:
            return None
        made = process_tables(request.pid)
        return GrowingTables(request.pid, made) if made else None

    def _arguments(self) -> list[str]:
        request = self.request
        room = request.threads_most or thread_room(request.pid)
        values = {
            "--pid": str(request.pid),
            "--window": f"{request.window_s * 1000:.3f}ms",
            "--sample-hz": str(request.sample_hz),
            "--slots": str(room),
        }
        if request.budget is not None:
            values |= {"--budget": f"{request.budget:%}", "--reader": str(os.getpid())}
        if request.duration_s is not None:
            values["--for"] = f"{request.duration_s * 1000:.3f}ms"
        words = [word for pair in values.items() for word in pair]
        words += ["--traced"] if "tracer" in request.accepted else []
        return [*words, "--or-everything"] if request.budget_is_default else words

    def _begin(self, planning_cpu_ns: int) -> None:
        """Wait until it is attached, and store what stands once."""
        stream = self._child.stream
        deadline_ns = monotonic_ns() + _START_MS * NS_PER_MS
        while not stream.is_readable_to_a_window and monotonic_ns() < deadline_ns:
            self._child.wait(_STEP_MS)
        try:
            if not stream.is_readable_to_a_window:
                raise StreamError("it was not attached within a minute")
            self._replay = replay = Replay(stream)
            stream.window_taken()
        except StreamError as error:
            raise self._refused(str(error)) from None
        if int(replay.start.start_ticks) != self._target.start_ticks:
            require_same_program(self._target)  # it does not: another one has its pid now
        self._symbolizer.replay = replay
        clocks = BothClocks(replay)
        self._rows = StreamRows(replay, self._target, self._symbolizer, clocks)
        self._await_choice(deadline_ns)
        request = self.request
        start_cpu_ns = planning_cpu_ns + int(replay.start.start_cpu_ns)
        asked = engine_asked(replay, start_cpu_ns)
        self._writer.add(
            recording_facts("native", request.level.name.lower(), **cpu_facts(), **asked)
        )
        self._writer.add(schema.Meta("effect_floor_cpus", f"{FLOOR_CPUS:g}"))
        self._writer.add(self._rows.begin())
        if request.sources:
            self._writer.add(request.sources.start())
        self._writer.take_place()
        self._writer.set_patience(_PATIENCE_S)
        if request.budget is not None:
            self._store()  # the trial
            if self._replay.budget is None:
                self._replay.read_budget()

    def _await_choice(self, deadline_ns: int) -> None:
        """With a budget: wait until the recorder has chosen what fits. Raises TlstaxError."""
        stream = self._child.stream
        if self.request.budget is None:
            return
        while not (stream.has_budget or stream.is_over) and monotonic_ns() < deadline_ns:
            self._child.wait(_STEP_MS)
        if not stream.has_budget:
            raise self._refused("the trial of the budget did not end")

    def _refused(self, why: str) -> TlstaxError:
        """The error of a recorder that ended before its first window."""
        self._child.end()
        status = self._child.close()
        codes = {int(code): code for code in ExitCode}
        do = "see `tlstax doctor PID`"
        if status == ExitCode.BUDGET:
            do = "Or record without a limit: --budget none"
        return TlstaxError(
            f"process {self.request.pid} cannot be recorded",
            self._child.said if status > 0 else why,
            do,
            codes.get(status, ExitCode.FAILED) or ExitCode.FAILED,
        )

    # ---- while recording ----

    @property
    def pid(self) -> int:
        """The process that is recorded."""
        return self.request.pid

    @property
    def budget_summary(self) -> str:
        """How the budget is used; "" without one."""
        return budget_summary(self._replay.budget) if self._replay.budget else ""

    @property
    def is_continuous(self) -> bool:
        """Whether everything is on all the time, as far as is known at the start."""
        return not self._replay.budget or budget_is_continuous(self._replay.budget)

    def wake_on(self, descriptor: int) -> None:
        """Make `poll` return at once when `descriptor` is readable."""
        self._child.wake_on(descriptor)

    def poll(self, seconds: float) -> None:
        """Store the windows that arrive in the next `seconds`; ends early with the recording."""
        end_ns = monotonic_ns() + int(seconds * 1e9)
        while not self.ending and (left_ns := end_ns - monotonic_ns()) > 0:
            is_quiet = self._child.wait(max(1, left_ns // NS_PER_MS))
            self._store()
            if self.request.sources:
                self._writer.add(self.request.sources.poll(monotonic_ns()))
            if not is_quiet:
                return

    def _store(self) -> None:
        """Store the windows that are whole."""
        stream = self._child.stream
        while stream.is_readable_to_a_window and not self.ending:
            try:
                found = self._rows.next_window()
            except StreamError as error:
                found, self._error = None, self._broken(str(error))
            stream.window_taken()
            if found is None:
                self.ending = self._how_it_ended()
                return
            rows, self.last = found
            if self._tables and self._tables.grow(self._replay.mappings):
                self._child.replace_tables(self._tables.content())
            self._writer.add(rows)
            self._commit()

    def _commit(self) -> None:
        """Commit, unless somebody reads the capture just now, or did a moment ago."""
        now_ns = monotonic_ns()
        if now_ns >= self._commit_ns and not self._writer.commit_if_free():
            self._commit_ns = now_ns + _STEP_MS * NS_PER_MS

    def _broken(self, why: str) -> TlstaxError:
        return TlstaxError(
            "the recorder's stream cannot be read",
            why,
            f"{self.request.capture} has the windows until then; report this",
        )

    def _how_it_ended(self) -> str:
        end = self._replay.end
        return text_of(end.ending) if end is not None else "the recorder ended"

    def ended(self) -> TlstaxError:
        """The error for a recording that ended before it was to."""
        if self._error is not None:
            return self._error
        return ended_error(self.request.pid, self.ending, self.request.capture)

    # ---- the end ----

    def close(self) -> None:
        """Detach, store the rest, name the frames."""
        try:
            self._child.end()
            while not self.ending:
                self._child.wait(_STEP_MS)
                self._store()
            status = self._child.close()
            self._writer.set_patience(BUSY_SECONDS)
            self._writer.add(self._stop_sources())
            self._writer.add(self._rows.end())
            self._writer.add(self._rows.facts())
            self._writer.commit()
            self._judge(status)
        finally:
            self.abandon()

    def _judge(self, status: int) -> None:
        """What the exit status says of the recording."""
        if status in (ExitCode.OK, ExitCode.TARGET) and self._replay.end is not None:
            if status == ExitCode.OK:
                self.ending = ""
            return
        codes = {int(code): code for code in ExitCode if code}
        self._error = self._error or TlstaxError(
            f"the recording of process {self.request.pid} ended early",
            self._child.said if status > 0 else f"the recorder ended with status {status}",
            f"{self.request.capture} is complete until then",
            codes.get(status, ExitCode.FAILED),
        )
        self.ending = self._error.why

    def abandon(self) -> None:
        """Detach and keep the windows that were committed."""
        self._child.end()
        self._child.close()
        self._stop_sources()
        self._symbolizer.close()
        self._writer.close()

    def _stop_sources(self) -> list[schema.Row]:
        return self.request.sources.stop() if self.request.sources else []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None or kind is KeyboardInterrupt:
            self.close()
        else:
            self.abandon()


class _LiveSymbolizer(Symbolizer):
    """Places and names of a process's addresses; the kernel's names come with the stream."""

    replay: Replay | None = None

    def kernel(self, address: int) -> Place:
        """By what the recorder found after it had detached."""
        found = self.replay.kernel_names.get(address) if self.replay else None
        if found is None:
            return super().kernel(address)
        return Place("kernel", "", 0, found[0], found[1], "kallsyms", "")
