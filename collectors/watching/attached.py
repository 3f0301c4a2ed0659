# SPDX-License-Identifier: GPL-2.0-only
"""A server with a recorder attached, for any length of time: its windows, and how it ended.

Stacks are neither asked for nor kept, so memory does not depend on how long it runs.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.host.clock import cpu_used_ns, monotonic_ns
from tlstax.collectors.host.recording_facts import cpu_facts, recording_facts
from tlstax.collectors.process.symbols import Symbolizer
from tlstax.collectors.process.target_fate import require_same_program
from tlstax.collectors.recording.by_recorder.child import RecorderChild
from tlstax.collectors.recording.proc_clocks import BothClocks
from tlstax.collectors.recording.stream.plan_file import plan_file_text
from tlstax.collectors.recording.stream.replay import Replay
from tlstax.collectors.recording.stream.totals import StreamError
from tlstax.collectors.recording.stream_capture import StreamRows, engine_asked, text_of
from tlstax.collectors.watching.preparation import Prepared
from tlstax.probes.model import Level

_START_S: Final = 60
_STEP_MS: Final = 500
_LAST_S: Final = 30
"""How long a recorder that ends has to write what it has read."""


class AttachedServer:
    """A recorder that is attached to a server."""

    def __init__(
        self, prepared: Prepared, level: Level, window_s: float, spent_before_ns: int
    ) -> None:
        """Attach. `spent_before_ns`: CPU time of this process that no window has.

        Raises TlstaxError if the server cannot be recorded.
        """
        self.target = prepared.target
        self.level = level
        self.ending = ""  # how it ended, as part of a sentence; "" while it goes on
        arguments = {
            "--pid": str(self.target.pid),
            "--window": f"{window_s * 1000:.3f}ms",
            "--sample-hz": "0",
            "--slots": str(prepared.thread_room),
        }
        if level < prepared.level:
            arguments["--level"] = level.name.lower()
        safety = replace(prepared.safety, user_stacks=False)
        text = plan_file_text(self.target, prepared.plan, safety)
        words = [word for pair in arguments.items() for word in pair]
        words += ["--traced"] if prepared.may_be_traced else []
        self._child = RecorderChild(text, None, words)
        self._symbolizer = Symbolizer(self.target)
        try:
            self._replay = self._begun()
        except BaseException:
            self._child.close()
            self._symbolizer.close()
            raise
        # What was spent until now is in no window.
        self.recorder_start_ns = int(self._replay.start.start_cpu_ns)
        self.start_cpu_ns = cpu_used_ns() - spent_before_ns + self.recorder_start_ns
        clocks = BothClocks(self._replay)
        self._rows = StreamRows(self._replay, self.target, self._symbolizer, clocks)

    def _begun(self) -> "_WithoutStacks":
        """Wait until it is attached."""
        stream = self._child.stream
        deadline_ns = monotonic_ns() + _START_S * 1_000_000_000
        while not stream.is_readable_to_a_window and monotonic_ns() < deadline_ns:
            self._child.wait(_STEP_MS)
        try:
            if not stream.is_readable_to_a_window:
                raise StreamError("it was not attached within a minute")
            replay = _WithoutStacks(stream)
        except StreamError as error:
            raise self._refused(str(error)) from None
        stream.window_taken()
        if int(replay.start.start_ticks) != self.target.start_ticks:
            require_same_program(self.target)  # it does not: another one has its pid now
        return replay

    def _refused(self, why: str) -> TlstaxError:
        self._child.end()
        status = self._child.close()
        codes = {int(code): code for code in ExitCode if code}
        return TlstaxError(
            f"process {self.target.pid} cannot be recorded",
            self._child.said if status > 0 else why,
            "see `tlstax doctor PID`",
            codes.get(status, ExitCode.FAILED),
        )

    def facts(self) -> list[schema.Row]:
        """What stands once: times, host, recorder, server."""
        asked = engine_asked(self._replay, self.start_cpu_ns)
        meta = recording_facts("native", self.level.name.lower(), **cpu_facts(), **asked)
        return [*meta, *(row for row in self._rows.begin() if isinstance(row, schema.Target))]

    def wake_on(self, descriptor: int) -> None:
        """Make `windows` return at once when `descriptor` is readable."""
        self._child.wake_on(descriptor)

    def windows(self, wait_ms: float) -> Iterator[list[schema.Row]]:
        """The rows of each window that arrives in this time."""
        self._child.wait(wait_ms)
        yield from self._arrived()

    def _arrived(self) -> Iterator[list[schema.Row]]:
        stream = self._child.stream
        while stream.is_readable_to_a_window and not self.ending:
            try:
                found = self._rows.next_window()
            except StreamError as error:
                self.ending = f"the recorder's stream cannot be read: {error}"
                return
            stream.window_taken()
            if found is None:
                end = self._replay.end
                self.ending = text_of(end.ending) if end is not None else "the recorder ended"
                return
            yield found[0]

    def end(self) -> Iterator[list[schema.Row]]:
        """Detach; the rows of the windows that were still to come."""
        self._child.end()
        deadline_ns = monotonic_ns() + _LAST_S * 1_000_000_000
        while not self.ending and monotonic_ns() < deadline_ns:
            yield from self.windows(_STEP_MS)

    def close(self) -> str:
        """Detach at once if it still is attached; what the recorder said if it failed."""
        self._child.end()
        status = self._child.close()
        self._symbolizer.close()
        if status in (ExitCode.OK, ExitCode.TARGET):
            return ""
        said = self._child.said
        return said if status > 0 else f"signal {-status} ended the recorder, which said: {said}"


class _WithoutStacks(Replay):
    """A stream whose stacks, samples and walked waits are dropped as they come."""

    def _take_stacks(self, content: bytes) -> None:
        del content

    def samples(self) -> list[Any]:
        """None."""
        return []

    def waits(self) -> list[Any]:
        """None."""
        return []
