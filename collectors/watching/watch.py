# SPDX-License-Identifier: GPL-2.0-only
"""Records a server until it is told to stop: finds it, attaches, attaches again after restarts."""

import select
from collections.abc import Callable
from typing import Final, Protocol

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.host.clock import cpu_used_ns, monotonic_ns
from tlstax.collectors.process.find_process import find_in_group, pids_in_group
from tlstax.collectors.process.target_fate import program_of
from tlstax.collectors.recording.by_recorder.asked import Recorded
from tlstax.collectors.recording.by_recorder.session import RecorderSession
from tlstax.collectors.recording.proc_clocks import BothClocks
from tlstax.collectors.recording.stream.replay import Replay
from tlstax.collectors.watching.outlet import STACKS_MOST, Outlet, Watched, how_it_ended, why_failed
from tlstax.collectors.watching.released_memory import release

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

    fd: int

    @property
    def requested(self) -> bool:
        """Whether it is to end."""


class Watch:
    """Follows one server."""

    def __init__(
        self,
        watched: Watched,
        outlet: Outlet,
        stop: Stop,
        tell: Callable[[str], None],
    ) -> None:
        """`outlet`: what its windows are passed to."""
        self._outlet = outlet
        self._watched = watched
        self._stop = stop
        self._tell = tell
        self._spent_ns = 0  # CPU time of this process that is in a window, or never will be
        self._failures = 0
        self._was_attached = False
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
        who, looks = (self._watched.group, self._watched.name), 0
        while not self._stop.requested:
            pids = pids_in_group(*who)
            if len(pids) > 1 and not self._was_attached:
                return find_in_group(*who, may_be_all=True)  # raises: which of them?
            if len(pids) == 1:
                if looks:
                    self._pause(_SETTLE_MS)
                return pids[0]
            if not looks:
                self._tell(
                    f"{len(pids)} processes are {self._watched.who}: waiting until there is one"
                    if pids
                    else f"waiting for a process {self._watched.who}"
                )
            self._outlet.settle()
            self._pause(_LOOK_MS[min(looks, len(_LOOK_MS) - 1)])
            looks += 1
        return 0

    # ---- recording it ----

    def _follow(self, pid: int) -> bool:
        """Record one process to its end; False if no other is to be recorded."""
        begun_ns = monotonic_ns()
        try:
            ending = self._record(self._begun(pid))
        except TlstaxError as error:
            if not self._was_attached and self._is_there(pid):
                raise
            ending = str(error).removesuffix(".")
        release()
        if self._stop.requested:
            return False
        self._tell(f"process {pid} is no longer recorded: {ending}")
        if not self._is_there(pid):
            return not self._watched.pid
        self._failures = 1 if monotonic_ns() - begun_ns > _LASTED_NS else self._failures + 1
        pause_ms = _AGAIN_MS[min(self._failures, len(_AGAIN_MS)) - 1]
        self._tell(f"the process still runs: attaching again in {pause_ms / 1000:.0f} s")
        self._pause(pause_ms)
        self._outlet.settle()
        return True

    @staticmethod
    def _is_there(pid: int) -> bool:
        return program_of(pid) != "another program"

    def _begun(self, pid: int) -> RecorderSession:
        """Attach to a process. Raises TlstaxError, also for a host without room for that."""
        try:
            return self._attached(pid)
        except OSError as error:
            raise why_failed(pid, error) from None

    def _attached(self, pid: int) -> RecorderSession:
        """Attach to a process. What was prepared is not kept: its tables alone take 1.5 MB."""
        prepared = self._watched.prepare(pid)
        session = RecorderSession(
            Recorded(prepared.target, prepared.plan, prepared.safety),
            self._watched.arguments(prepared),
            prepared.tables,
            STACKS_MOST,
            _clocks,
        )
        session.wake_on(self._stop.fd)
        try:
            self._outlet.attached(session, prepared, self._spent_ns)
        except BaseException:
            self._end(session)
            raise
        self._was_attached = True
        return session

    def _end(self, session: RecorderSession) -> int:
        """Detach; the exit status of the recorder."""
        status = self._outlet.end(session.close)
        self._spent_ns = cpu_used_ns()
        return status

    def _record(self, session: RecorderSession) -> str:
        """Record until the server ends or the watch is told to stop; how it ended."""
        try:
            release()  # what preparing it needed
            while not session.ending and not self._stop.requested:
                session.wait(_STEP_MS)
                self._outlet.take(session.windows())
            ending = session.ending
            self._outlet.take(session.finish())
        finally:
            status = self._end(session)
        if ending and status not in (ExitCode.OK, ExitCode.TARGET):
            return how_it_ended(ending, status, session.said)
        return ending


def _clocks(replay: Replay) -> BothClocks:
    """Every program that a watch runs works for it: they name functions and explain hours."""
    return BothClocks(replay, cpu_used_ns)
