# SPDX-License-Identifier: GPL-2.0-only
"""Records a server until it is told to stop: finds it, attaches, attaches again after restarts."""

import select
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from tlstax import TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.host.clock import cpu_used_ns, monotonic_ns
from tlstax.collectors.process.find_process import find_by_name, pids_of_name
from tlstax.collectors.process.target_fate import program_of
from tlstax.collectors.watching.attached import AttachedServer
from tlstax.collectors.watching.level_choice import Cost, LevelChoice
from tlstax.collectors.watching.preparation import Prepared, prepare
from tlstax.collectors.watching.sink import Sink
from tlstax.probes.model import Level

_LOOK_MS: Final = (500, 1000, 2000, 5000)
"""Between two looks for a server that is not there."""
_SETTLE_MS: Final = 1000
"""A server that was just started has mapped its libraries by then."""
_AGAIN_MS: Final = (1000, 5000, 15_000, 60_000)
"""Before another attempt, after so many failures in a row."""
_STEP_MS: Final = 5000
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
    budget: float
    window_s: float
    level: Level = Level.FLOW
    accepted: Sequence[str] = ()


class Watch:
    """Follows one server."""

    def __init__(
        self, watched: Watched, sink: Sink, stop: Stop, tell: Callable[[str], None]
    ) -> None:
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
        """Record a prepared server; how it ended."""
        choice = LevelChoice(prepared.level, self._watched.budget)
        self._is_announced = False
        ending = ""
        while not ending and not self._stop.requested:
            ending = self._at_one_level(prepared, choice)
        return ending

    def _at_one_level(self, prepared: Prepared, choice: LevelChoice) -> str:
        """Record until the level changes (""), it is told to stop (""), or the server ends."""
        attached = AttachedServer(prepared, choice.level, self._watched.window_s, self._spent_ns)
        attached.wake_on(self._stop.fd)
        was_alternating = choice.is_alternating
        try:
            self._sink.begin(attached.facts())
            if not self._is_announced:
                self._announce(prepared)
            has_changed = False
            while not attached.ending and not self._stop.requested and not has_changed:
                for rows in attached.windows(_STEP_MS):
                    self._sink.window(rows)
                    start_ns = attached.recorder_start_ns
                    has_changed = choice.window(_cost(rows), start_ns) or has_changed
                    if choice.is_alternating != was_alternating:
                        was_alternating = choice.is_alternating
                        self._tell_level(choice)
            ending = attached.ending
            for rows in attached.end():
                self._sink.window(rows)
        finally:
            said = attached.close()
            self._sink.detached()
            self._spent_ns = cpu_used_ns()
        return f"{ending}; {said}" if ending and said else ending

    def _tell_level(self, choice: LevelChoice) -> None:
        best, share = choice.best.name.lower(), f"{choice.best_share:.2%}"
        budget = (
            f"the budget is {self._watched.budget:.2%} of the server's CPU time, or of one CPU "
            "where it uses less"
        )
        self._tell(
            f"level handshake with stretches of level {best}, which took {share}: {budget}"
            if choice.is_alternating
            else f"level {best} all the time again: it took {share}, {budget}"
        )

    def _announce(self, prepared: Prepared) -> None:
        self._was_attached = self._is_announced = True
        target, plan = prepared.target, prepared.plan
        tls = plan.library("tls")
        self._tell(
            f"recording process {target.pid} ({target.exe}, "
            f"{tls.name if tls else 'unknown TLS library'}) at level {prepared.level.name.lower()}"
        )
        for note in prepared.safety.notes:
            self._tell(f"preflight ({note.hazard}): {note.text}")


def _cost(rows: Sequence[schema.Row]) -> Cost:
    """What a window took."""
    span_ns = server_ns = 0
    overhead_ns = 0.0
    for row in rows:
        if isinstance(row, schema.Window):
            span_ns = row.end_ns - row.start_ns
        elif isinstance(row, schema.Effect):
            server_ns = row.target_cpu_ns or 0
            costs = (row.probe_ns, row.scheduler_ns, row.sample_ns)
            overhead_ns += sum(cost or 0 for cost in costs)
        elif isinstance(row, schema.System):
            overhead_ns += row.engine_cpu_ns
    return Cost(span_ns, server_ns, overhead_ns)
