# SPDX-License-Identifier: GPL-2.0-only
"""Several servers at once: one recorder, one capture for each of them.

Each is recorded as if it were alone: its own plan, level, budget, windows and ending. One that
cannot be recorded, or ends, leaves the others. CPU time of this process is divided as the recorder
divides its own: by whose turn it is, and what is for none of them is that of the first one.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Final, Self

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.host.child import own_cpu_ns
from tlstax.collectors.host.clock import cpu_used_ns, monotonic_ns
from tlstax.collectors.host.recording_facts import new_recording_id
from tlstax.collectors.recording.by_recorder.child import RecorderChild, ServerPart
from tlstax.collectors.recording.by_recorder.ready_server import ReadyServer, Share
from tlstax.collectors.recording.by_recorder.recorder import NS_PER_MS, Recorder
from tlstax.collectors.recording.stream.definition import definition

SERVERS_MOST: Final = definition().number("TARGETS_MOST")
"""Servers that one recorder records."""
_STEP_MS: Final = 500


class CpuTurns:
    """CPU time of this process for each server. The turn is that of the first one at first."""

    def __init__(self, first: Hashable = 0, clock: Callable[[], int] = own_cpu_ns) -> None:
        """`clock`: all of it, in ns."""
        self._clock = clock
        self._spent_ns: defaultdict[Hashable, int] = defaultdict(int)
        self._turn, self._since_ns = first, clock()

    def turn(self, server: Hashable) -> None:
        """What is done from now on is for this server."""
        now_ns = self._clock()
        self._spent_ns[self._turn] += now_ns - self._since_ns
        self._turn, self._since_ns = server, now_ns

    def used_ns(self, server: Hashable) -> int:
        """CPU time for a server so far."""
        self.turn(self._turn)
        return self._spent_ns[server]

    def forget(self, server: Hashable) -> None:
        """What was for a server is of no interest any more."""
        self.turn(self._turn)
        self._spent_ns.pop(server, None)

    def leave_out(self, act: Callable[[], object]) -> None:
        """Count nothing of what this does: it is known from elsewhere."""
        self.turn(self._turn)
        act()
        self._since_ns = self._clock()


class SeveralServers:
    """Recordings in progress. Use as a context manager: leaving it detaches and finishes all."""

    def __init__(
        self,
        servers: Sequence[ReadyServer],
        failed: Callable[[int, TlstaxError], None],
        for_s: float | None = None,
    ) -> None:
        """Attach to all that can be recorded, which are `recordings` then.

        `servers`: one to SERVERS_MOST, without `duration_s` and clients; their captures are used or
        discarded. `failed` is told of each that is not recorded, or not to its end, and why.
        `for_s`: all end after this time. Raises TlstaxError if no recorder can be started.
        """
        self._failed = failed
        self._turns = CpuTurns()
        self.recordings: list[Recorder] = []
        """Of the servers that could be attached to, also when they have ended."""
        self._numbers: list[int] = []  # of these
        self.is_unwritable = False
        """Whether a capture cannot be written: its server is recorded for nobody, so all end."""
        self._given_up: set[int] = set()  # numbers of servers with such captures
        self._recording_id = new_recording_id()
        waiting = list(servers)
        before_ns = cpu_used_ns()
        try:
            self._child = _started(servers, for_s)
        except BaseException:
            _discard(waiting)
            raise
        shared_ns = cpu_used_ns() - before_ns
        pids = [server.request.pid for server in servers]
        self._parts = [ServerPart(self._child, number) for number in range(len(servers))]
        try:
            for number in range(len(servers)):
                server = waiting.pop(0)
                self._attach(number, server._replace(spent_ns=server.spent_ns + shared_ns), pids)
                shared_ns = 0  # the first one has it
        except BaseException:
            _discard(waiting)
            self.abandon()
            raise

    def _attach(self, number: int, server: ReadyServer, pids: Sequence[int]) -> None:
        self._turns.turn(number)
        part, pid = self._parts[number], pids[number]

        def others() -> tuple[int, ...]:
            are_recorded = zip(pids, self._parts, strict=True)
            return tuple(one for one, of in are_recorded if one != pid and not of.stream.failure)

        used_ns = partial(self._turns.used_ns, number)
        share = Share(server, part, used_ns, others, self._recording_id)
        try:
            self.recordings.append(Recorder(server.request, share))
            self._numbers.append(number)
        except TlstaxError as error:
            self._failed(pid, error)
            if error.exit_code == ExitCode.IO:
                self.is_unwritable = True

    # ---- while recording ----

    @property
    def current(self) -> list[Recorder]:
        """Those that have not ended."""
        return [one for _, one in self._current()]

    def wake_on(self, descriptor: int) -> None:
        """Make `poll` return at once when `descriptor` is readable."""
        self._child.wake_on(descriptor)

    def poll(self, seconds: float) -> None:
        """Store the windows that arrive in the next `seconds`.

        Ends early with the last recording, and when a capture cannot be written.
        """
        end_ns = monotonic_ns() + int(seconds * 1e9)
        while self.current and not self.is_unwritable and (left_ns := end_ns - monotonic_ns()) > 0:
            is_quiet = self._child.wait(max(1, left_ns // NS_PER_MS))
            self._store()
            if not is_quiet:
                return

    def _store(self) -> None:
        current = self._current()
        for number, one in current:
            self._turns.turn(number)
            try:
                one.store()
            except TlstaxError as error:
                self._failed(one.pid, error)
                self._given_up.add(number)
                self.is_unwritable = True
        self._turns.turn(current[0][0] if current else 0)

    def _current(self) -> list[tuple[int, Recorder]]:
        return [
            (number, one)
            for number, one in zip(self._numbers, self.recordings, strict=True)
            if not one.ending and number not in self._given_up
        ]

    # ---- the end ----

    def close(self) -> None:
        """Detach from all, store the rest, name the frames; tell of those that ended early."""
        self._child.end()
        while not self._child.is_read:
            self._child.wait(_STEP_MS)
            self._store()
        self._child.close()
        for number, one in zip(self._numbers, self.recordings, strict=True):
            self._turns.turn(number)
            if number in self._given_up:
                with suppress(TlstaxError):  # it was told
                    one.abandon()
                continue
            try:
                one.close()
                if one.ending:
                    raise one.ended()
            except TlstaxError as error:
                self._failed(one.pid, error)

    def abandon(self) -> None:
        """Detach and keep the windows that were committed."""
        self._child.end()
        self._child.close()
        for one in self.recordings:
            with suppress(TlstaxError):
                one.abandon()

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


def _started(servers: Sequence[ReadyServer], for_s: float | None) -> RecorderChild:
    first, *others = (server.told for server in servers)
    of_all = ["--keep-going"]
    if for_s is not None:
        of_all += ["--for", f"{for_s * 1000:.3f}ms"]
    first = first._replace(arguments=[*of_all, *first.arguments])
    return RecorderChild(*first, servers[0].asked.recorded.recorder, others)


def _discard(servers: Iterable[ReadyServer]) -> None:
    for server in servers:
        server.writer.discard()
