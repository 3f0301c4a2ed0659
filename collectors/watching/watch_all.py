# SPDX-License-Identifier: GPL-2.0-only
"""Records all servers of a name until it is told to stop, each with rollups of its own.

Those that are found at the same time share one recorder. It has given up the privileges to attach
to a server that starts later: such a server gets another recorder, and the others go on.
"""

import select
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.host.clock import cpu_used_ns, monotonic_ns
from tlstax.collectors.process.find_process import pids_in_group
from tlstax.collectors.process.target_fate import program_of
from tlstax.collectors.recording.by_recorder.asked import Asked, Recorded
from tlstax.collectors.recording.by_recorder.child import RecorderChild, ServerPart
from tlstax.collectors.recording.by_recorder.session import RecorderSession
from tlstax.collectors.recording.by_recorder.several import SERVERS_MOST, CpuTurns
from tlstax.collectors.recording.proc_clocks import BothClocks
from tlstax.collectors.watching.labels import Labels, NotYetError
from tlstax.collectors.watching.outlet import STACKS_MOST, Outlet, Watched, how_it_ended, why_failed
from tlstax.collectors.watching.outlets import Outlets
from tlstax.collectors.watching.preparation import Prepared
from tlstax.collectors.watching.released_memory import release

_S: Final = 1_000_000_000
_LOOK_NS: Final = (_S // 2, _S, 2 * _S, *[5 * _S] * 12)
"""Between two looks for a server that is awaited; then as for further ones."""
_LOOK_ALWAYS_NS: Final = 30 * _S
_SETTLE_NS: Final = 1 * _S
"""A server that was just started has mapped its libraries by then."""
_AGAIN_NS: Final = (1 * _S, 5 * _S, 15 * _S, 60 * _S)
"""Before another attempt at the same process, after so many failures in a row."""
_LASTED_NS: Final = 120 * _S
"""A recording of this length was none that failed."""
_TOGETHER_NS: Final = _S // 4
"""Those that are due so soon share the recorder of the first one."""
_STEP_MS: Final = 5000


class Stop(Protocol):
    """A request to stop."""

    fd: int

    @property
    def requested(self) -> bool:
        """Whether it is to end."""


class _Candidate:
    """A process that is not recorded yet, or not any more."""

    def __init__(self, due_ns: int) -> None:
        self.due_ns = due_ns
        self.failures = 0

    def failed(self) -> None:
        self.due_ns = monotonic_ns() + _AGAIN_NS[min(self.failures, len(_AGAIN_NS) - 1)]
        self.failures += 1


class _Server(NamedTuple):
    """A server that is being recorded."""

    label: str
    pid: int
    session: RecorderSession
    outlet: Outlet
    failures: int  # in a row, before
    begun_ns: int


class _Group(NamedTuple):
    """A recorder and the servers that it still records."""

    child: RecorderChild
    servers: list[_Server]


class WatchAll:
    """Follows the servers of a name."""

    def __init__(
        self,
        watched: Watched,
        outlets: Outlets,
        stop: Stop,
        tell: Callable[[str], None],
    ) -> None:
        """`outlets` are closed by whoever made them."""
        self._watched, self._outlets = watched, outlets
        self._stop, self._tell = stop, tell
        self._labels = Labels()
        self._groups: list[_Group] = []
        self._candidates: dict[int, _Candidate] = {}
        self._turns = CpuTurns("", cpu_used_ns)
        self._counted_ns: dict[str, int] = {}  # CPU time of a server that its windows have
        self._has_looked = self._was_attached = False
        self._has_changed = False  # which servers are recorded
        self._looks, self._look_ns = 0, 0

    def run(self) -> None:
        """Record until it is told to stop.

        Raises TlstaxError if servers are there at the start and none of them can be recorded.
        """
        try:
            while not self._stop.requested:
                if monotonic_ns() >= self._look_ns:
                    self._look()
                self._wait()
                self._store_all()
                self._release()
            self._end_all()
        finally:
            for group in self._groups:
                group.child.close()

    # ---- finding them ----

    def _look(self) -> None:
        """Attach to those that are there and not recorded."""
        now_ns = monotonic_ns()
        recorded = {server.pid for group in self._groups for server in group.servers}
        found = pids_in_group(self._watched.group, self._watched.name)
        pids = [pid for pid in found if pid not in recorded and not self._labels.is_refused(pid)]
        settled_ns = now_ns + _SETTLE_NS if self._has_looked else now_ns
        self._candidates = {
            pid: self._candidates.get(pid) or _Candidate(settled_ns) for pid in pids
        }
        for label in self._outlets.close_old():
            self._labels.forget(label)
            self._counted_ns.pop(label, None)
            self._turns.forget(label)
        if not (found or self._has_looked):
            self._tell(f"waiting for processes {self._watched.who}")
        self._has_looked = True
        due = [pid for pid, one in self._candidates.items() if one.due_ns <= now_ns + _TOGETHER_NS]
        if due:
            self._attach(due[:SERVERS_MOST])
        self._plan_look()

    def _plan_look(self) -> None:
        """Soon for servers that are awaited, else rarely: it reads all of /proc."""
        waits = [_LOOK_ALWAYS_NS]
        if (not self._groups or self._outlets.awaited) and self._looks < len(_LOOK_NS):
            waits.append(_LOOK_NS[self._looks])
            self._looks += 1
        now_ns = monotonic_ns()
        waits += [max(_S // 10, one.due_ns - now_ns) for one in self._candidates.values()]
        self._look_ns = now_ns + min(waits)

    def _wait(self) -> None:
        """Until something is to be done."""
        self._turns.turn(self._groups[0].servers[0].label if self._groups else "")
        ready = select.poll()
        ready.register(self._stop.fd, select.POLLIN)
        for group in self._groups:
            ready.register(group.child, select.POLLIN)
        left_ms = (self._look_ns - monotonic_ns()) // 1_000_000
        ready.poll(max(0, min(_STEP_MS, left_ms)))

    # ---- recording them ----

    def _attach(self, pids: Sequence[int]) -> None:
        """Record these with one recorder; one that fails is told and tried again later."""
        found: list[tuple[str, Prepared]] = []
        failed: list[tuple[int, TlstaxError]] = []
        recorded = {server.label for group in self._groups for server in group.servers}
        self._labels.seen_together(list(self._candidates))
        for pid in pids:
            try:
                label = self._labels.of(pid, recorded)
                self._turns.turn(label)
                prepared = self._watched.prepare(pid)
                self._outlets.of(label)
                found.append((label, prepared))
            except NotYetError:
                self._candidates[pid].failed()
            except (TlstaxError, OSError) as error:
                failed.append((pid, why_failed(pid, error)))
        if found:
            failed += self._start(found)
        there = [(pid, why) for pid, why in failed if self._is_there(pid)]
        fatal = there[:1] if not self._was_attached else []
        for pid, why in failed:
            self._candidates[pid].failed()
            if (pid, why) not in fatal:
                self._tell(str(why) if str(pid) in str(why) else f"process {pid}: {why}")
        for _, why in fatal:
            raise why

    @staticmethod
    def _is_there(pid: int) -> bool:
        return program_of(pid) != "another program"

    def _start(self, found: Sequence[tuple[str, Prepared]]) -> list[tuple[int, TlstaxError]]:
        """Start a recorder; those that it cannot record, and why."""
        asked = [
            Asked(
                Recorded(prepared.target, prepared.plan, prepared.safety),
                self._watched.arguments(prepared),
                prepared.tables,
            )
            for _, prepared in found
        ]
        first, *others = (one.of_child for one in asked)
        first = first._replace(arguments=["--keep-going", *first.arguments])
        try:
            group = _Group(RecorderChild(*first, None, others), [])
        except (TlstaxError, OSError) as error:
            return [(one.target.pid, why_failed(one.target.pid, error)) for _, one in found]
        self._groups.append(group)
        failed: list[tuple[int, TlstaxError]] = []
        for_nobody: list[int] = []
        for number, (label, prepared) in enumerate(found):
            try:
                self._join(group, number, asked[number], label, prepared)
            except (TlstaxError, OSError) as error:
                pid = prepared.target.pid
                failed.append((pid, why_failed(pid, error)))
                if not group.child.stream_of(number).is_over:
                    for_nobody.append(prepared.target.pid)
        if for_nobody and group.servers:
            self._end_beside(group, for_nobody[0])
        self._end_if_empty(group)
        return failed

    def _join(
        self, group: _Group, number: int, asked: Asked, label: str, prepared: Prepared
    ) -> None:
        self._turns.turn(label)
        spent_ns = self._turns.used_ns(label) - self._counted_ns.get(label, 0)
        before_ns = cpu_used_ns() - spent_ns
        session = RecorderSession(
            *asked,
            STACKS_MOST,
            lambda replay: BothClocks(replay, partial(self._turns.used_ns, label)),
            child=ServerPart(group.child, number),
        )
        pid = prepared.target.pid
        failures = self._candidates[pid].failures
        outlet = self._outlets.of(label)
        server = _Server(label, pid, session, outlet, failures, monotonic_ns())
        group.servers.append(server)
        self._outlets.recorded(label)
        server.outlet.attached(session, prepared, before_ns)
        self._was_attached = self._has_changed = True
        self._candidates.pop(server.pid, None)

    def _store_all(self) -> None:
        """Pass on what has arrived of all servers."""
        for group in list(self._groups):
            group.child.wait(0)
            self._store(group)

    def _release(self) -> None:
        """Give back what recordings have left that began or ended."""
        if self._has_changed:
            self._has_changed = False
            release()

    def _store(self, group: _Group) -> None:
        """Pass on what has arrived of the servers of a recorder."""
        if group.child.is_read:
            self._turns.leave_out(group.child.close)  # its exit status says why, if it failed
        broken: list[_Server] = []
        for server in list(group.servers):
            self._turns.turn(server.label)
            server.outlet.take(server.session.windows())
            if ending := server.session.ending:
                status, said = self._end(group, server), server.session.said
                if status not in (ExitCode.OK, ExitCode.TARGET):
                    ending = how_it_ended(ending, status, said)
                self._tell(f"process {server.pid} is no longer recorded: {ending}")
                broken += [server] if server.session.why_broken else []
                self._look_again(server)
        if broken and group.servers:
            self._end_beside(group, broken[0].pid)
        self._end_if_empty(group)

    def _end_beside(self, group: _Group, pid: int) -> None:
        """End a recorder that still records process `pid` for nobody: it cannot leave one alone.

        The others are attached to again at once, by another recorder: no server has two.
        """
        others = list(group.servers)
        pids = ", ".join(str(server.pid) for server in others)
        self._tell(
            f"the recorder of process {pid} is ended; attaching again to what else it recorded: "
            f"{pids}"
        )
        group.child.end()
        for server in others:
            self._end(group, server)
            if self._is_there(server.pid):
                self._candidates[server.pid] = again = _Candidate(monotonic_ns())
                again.failures = server.failures
        self._plan_look()

    def _look_again(self, server: _Server) -> None:
        """For the server's next process, or for the same one, if only its recording ended."""
        self._looks = 0
        if self._is_there(server.pid):
            self._candidates[server.pid] = again = _Candidate(0)
            lasted_ns = monotonic_ns() - server.begun_ns
            again.failures = 0 if lasted_ns > _LASTED_NS else server.failures
            again.failed()
        self._plan_look()

    # ---- the end ----

    def _end(self, group: _Group, server: _Server) -> int:
        """End the recording of a server; the exit status of its recorder."""
        self._turns.turn(server.label)
        self._has_changed = True
        group.servers.remove(server)
        try:
            server.outlet.take(server.session.finish())
        finally:
            status = server.outlet.end(server.session.close)
            self._outlets.gone(server.label)
            self._counted_ns[server.label] = self._turns.used_ns(server.label)
        return status

    def _end_if_empty(self, group: _Group) -> None:
        """End a recorder that records nobody. Its CPU time is in its windows."""
        if not group.servers:
            self._groups.remove(group)
            group.child.end()
            self._turns.leave_out(group.child.close)

    def _end_all(self) -> None:
        """Detach from all, and tell what each cost."""
        for group in self._groups:
            group.child.end()
        for group in list(self._groups):
            for server in list(group.servers):
                self._end(group, server)
            self._end_if_empty(group)
        if costs := self._outlets.costs():
            self._tell(costs)
