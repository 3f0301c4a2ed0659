# SPDX-License-Identifier: GPL-2.0-only
"""Records a server until it is told to stop: finds it, attaches, attaches again after restarts."""

import os
import select
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.host.clock import cpu_used_ns, monotonic_ns
from tlstax.collectors.host.recording_facts import cpu_facts, recording_facts
from tlstax.collectors.process.find_process import find_by_name, pids_of_name
from tlstax.collectors.process.target_fate import program_of
from tlstax.collectors.recording.by_recorder.asked import Recorded
from tlstax.collectors.recording.by_recorder.session import RecorderSession
from tlstax.collectors.recording.proc_clocks import BothClocks
from tlstax.collectors.recording.programs.expected_cost import budget_summary
from tlstax.collectors.recording.stream.replay import Replay
from tlstax.collectors.recording.windows import WindowTotals
from tlstax.collectors.watching.preparation import Prepared, prepare
from tlstax.collectors.watching.raw_captures import RawCaptures
from tlstax.collectors.watching.sink import Sink
from tlstax.probes.model import Level

_LOOK_MS: Final = (500, 1000, 2000, 5000)
"""Between two looks for a server that is not there."""
_SETTLE_MS: Final = 1000
"""A server that was just started has mapped its libraries by then."""
_AGAIN_MS: Final = (1000, 5000, 15_000, 60_000)
"""Before another attempt, after so many failures in a row."""
_STEP_MS: Final = 5000
SAMPLE_HZ: Final = 3
"""CPU samples a second and CPU: 10,000 an hour of each CPU that the server uses."""
WALKS_MOST: Final = 20
"""Stacks of waits that are walked in a second."""
STACKS_MOST: Final = (8192, 20_000)
"""Stacks that are kept in memory as they are sent, and of an hour."""
LEAST_CPUS: Final = 1.0
"""A server that uses less CPU is counted as using this much by the budget."""
_LASTED_NS: Final = 120 * 1_000_000_000
"""A recording that lasted so long was no failed attempt."""


class Stop(Protocol):
    """A request to stop."""

    requested: bool
    fd: int


@dataclass(frozen=True)
class Watched:
    """Which server is recorded, and how."""

    name: str  # "": only the process `pid`
    pid: int
    budget: float | None  # share of the server's CPU time; None: no limit
    window_s: float
    level: Level = Level.FLOW
    accepted: Sequence[str] = ()


class Watch:
    """Follows one server."""

    def __init__(
        self,
        watched: Watched,
        sink: Sink,
        stop: Stop,
        tell: Callable[[str], None],
        raw: RawCaptures | None = None,
    ) -> None:
        """`raw`: where the windows of the last hours are kept, if they are."""
        self._raw = raw
        self._watched = watched
        self._sink = sink
        self._stop = stop
        self._tell = tell
        self._spent_ns = 0  # CPU time of this process that is in a window, or never will be
        self._failures = 0
        self._was_attached = self._is_announced = False
        self._wake = select.poll()
        self._wake.register(stop.fd, select.POLLIN)

    def run(self) -> None:
        """Record until it is told to stop, or until the one process that was named has ended.

        Raises TlstaxError if the server cannot be recorded at the first attempt.
        """
        while not self._stop.requested:
            pid = self._watched.pid or self._found()
            if not pid or not self._follow(pid):
                return

    def _pause(self, time_ms: float) -> None:
        if not self._stop.requested:
            self._wake.poll(time_ms)

    # ---- finding it ----

    def _found(self) -> int:
        """The pid of the server, which may still have to be started; 0: stopped meanwhile."""
        name, looks = self._watched.name, 0
        while not self._stop.requested:
            pids = pids_of_name(name)
            if len(pids) > 1 and not self._was_attached:
                return find_by_name(name)  # raises: which of them?
            if len(pids) == 1:
                if looks:
                    self._pause(_SETTLE_MS)
                return pids[0]
            if not looks:
                self._tell(
                    f"{len(pids)} processes are called {name}: waiting until there is one"
                    if pids
                    else f"waiting for a process called {name}"
                )
            self._pause(_LOOK_MS[min(looks, len(_LOOK_MS) - 1)])
            looks += 1
        return 0

    # ---- recording it ----

    def _follow(self, pid: int) -> bool:
        """Record one process to its end; False if no other is to be recorded."""
        begun_ns = monotonic_ns()
        try:
            prepared = prepare(pid, self._watched.level, self._watched.accepted)
            ending = self._record(prepared)
        except TlstaxError as error:
            if not self._was_attached and self._is_there(pid):
                raise
            ending = str(error).removesuffix(".")
        if self._stop.requested:
            return False
        self._tell(f"process {pid} is no longer recorded: {ending}")
        if not self._is_there(pid):
            return not self._watched.pid
        self._failures = 1 if monotonic_ns() - begun_ns > _LASTED_NS else self._failures + 1
        pause_ms = _AGAIN_MS[min(self._failures, len(_AGAIN_MS)) - 1]
        self._tell(f"the process still runs: attaching again in {pause_ms / 1000:.0f} s")
        self._pause(pause_ms)
        return True

    @staticmethod
    def _is_there(pid: int) -> bool:
        return program_of(pid) != "another program"

    def _record(self, prepared: Prepared) -> str:
        """Record a prepared server until it ends or the watch is told to stop; how it ended."""
        self._is_announced = False
        session = RecorderSession(
            Recorded(prepared.target, prepared.plan, prepared.safety),
            self._arguments(prepared),
            prepared.tables,
            STACKS_MOST,
            _clocks,
        )
        session.wake_on(self._stop.fd)
        try:
            self._attached(session, prepared)
            while not session.ending and not self._stop.requested:
                session.wait(_STEP_MS)
                self._take(session.windows())
            ending = session.ending
            self._take(session.finish())
        finally:
            try:
                if self._raw:
                    self._raw.detached()
            finally:
                status = session.close()
                self._sink.detached()
                self._spent_ns = cpu_used_ns()
        if ending and status not in (ExitCode.OK, ExitCode.TARGET):
            said = session.said
            ended = f"signal {-status} ended the recorder, which said: {said}"
            return f"{ending}; {said if status > 0 else ended}"
        return ending

    def _arguments(self, prepared: Prepared) -> list[str]:
        watched = self._watched
        sample_hz = SAMPLE_HZ if prepared.safety.samples else 0
        values = {
            "--pid": str(prepared.target.pid),
            "--window": f"{watched.window_s * 1000:.3f}ms",
            "--sample-hz": str(sample_hz),
            "--wait-walks": str(WALKS_MOST),
            "--slots": str(prepared.thread_room),
        }
        if watched.budget is not None:
            values |= {
                "--budget": f"{watched.budget:%}",
                "--floor-cpus": f"{LEAST_CPUS:g}",
                "--reader": str(os.getpid()),
            }
        words = [word for pair in values.items() for word in pair]
        return [*words, "--traced"] if prepared.may_be_traced else words

    def _attached(self, session: RecorderSession, prepared: Prepared) -> None:
        asked = session.facts(self._spent_ns)
        level = prepared.level.name.lower()
        facts = recording_facts("native", level, **cpu_facts(), **asked)
        if session.budget is not None:
            facts += session.rows.facts()
        facts.append(schema.Meta("effect_floor_cpus", f"{LEAST_CPUS:g}"))
        begun = session.rows.begin()
        self._sink.begin([*facts, *(row for row in begun if isinstance(row, schema.Target))])
        if self._raw:
            self._raw.attached(session.rows, prepared.target.pid, facts)
        if not self._is_announced:
            self._announce(prepared, session)

    def _take(self, windows: Iterable[tuple[list[schema.Row], WindowTotals]]) -> None:
        for rows, _ in windows:
            is_worth_keeping = self._sink.window(rows)
            if self._raw:
                self._raw.window(rows, self._sink.source)
                if is_worth_keeping:
                    self._raw.keep()

    def _announce(self, prepared: Prepared, session: RecorderSession) -> None:
        self._was_attached = self._is_announced = True
        target, plan = prepared.target, prepared.plan
        tls = plan.library("tls")
        self._tell(
            f"recording process {target.pid} ({target.exe}, "
            f"{tls.name if tls else 'unknown TLS library'}) at level {prepared.level.name.lower()}"
        )
        if session.budget is not None:
            self._tell(budget_summary(session.budget))
        for note in prepared.safety.notes:
            self._tell(f"preflight ({note.hazard}): {note.text}")


def _clocks(replay: Replay) -> BothClocks:
    """Every program that a watch runs works for it: they name functions and explain hours."""
    return BothClocks(replay, cpu_used_ns)
