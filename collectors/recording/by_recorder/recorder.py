# SPDX-License-Identifier: GPL-2.0-only
"""Record into one capture: plan, start the static recorder, store its windows as they come.

Used by `tlstax attach` and by experiments, which record a private server.

While probes are attached, this process reads a pipe and writes a capture; it does not look at the
measured side. Names are looked up afterwards.
"""

from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.writer import BUSY_SECONDS
from tlstax.collectors.host.child import own_cpu_ns
from tlstax.collectors.host.clock import cpu_used_ns, monotonic_ns
from tlstax.collectors.host.cpu_facts import cpu_facts
from tlstax.collectors.host.recording_facts import recording_facts
from tlstax.collectors.process.target_fate import ended_error, require_same_program
from tlstax.collectors.recording.by_recorder.peers import AllClocks, Peer, PeerRequest, PeerSet
from tlstax.collectors.recording.by_recorder.ready_server import Share, make_ready
from tlstax.collectors.recording.by_recorder.session import RecorderSession, code_of
from tlstax.collectors.recording.programs.expected_cost import (
    FLOOR_CPUS,
    budget_is_continuous,
    budget_summary,
)
from tlstax.collectors.recording.request import Request
from tlstax.collectors.recording.run_totals import run_totals, tls_call_count
from tlstax.collectors.recording.stream.facts import text_of
from tlstax.collectors.recording.windows import WindowTotals
from tlstax.workloads.results import RunTotals

_STEP_MS: Final = 1000
_PATIENCE_S: Final = 0.05
"""Who reads the capture meanwhile delays its windows, and nothing else."""
NS_PER_MS: Final = 1_000_000


class Recorder:
    """A recording in progress. Use as a context manager: leaving it detaches and finishes."""

    def __init__(self, request: Request, share: Share | None = None) -> None:
        """Plan and attach. Raises TlstaxError; then no capture remains.

        `share`: this server is planned, and the recorder of several servers is attached to it.
        """
        server = share.server if share else make_ready(request)
        used_before_ns = cpu_used_ns() - server.spent_ns
        self.request = request = server.request
        self.last: WindowTotals | None = None
        """The last window that ended, for live display."""
        self.windows: list[WindowTotals] = []  # of the current run only
        self._peers = PeerSet()
        self._peer_rows: list[list[schema.Row]] = []  # of the server's window that was read
        self._error: TlstaxError | None = None
        self._is_whole = False  # it ended because it was asked to
        self._commit_ns = 0
        self._others = share.others if share else tuple
        self._recording_id = share.recording_id if share else ""
        used_ns = share.used_ns if share else own_cpu_ns
        self._writer = server.writer
        try:
            self._session = RecorderSession(
                *server.asked,
                clocks=lambda replay: AllClocks(replay, self._peers, used_ns),
                others=self._peers.ask(request),
                child=share.child if share else None,
                told=server.told,
            )
            self._session.before_rows = self._end_peers
            try:
                self._begin(used_before_ns)
            except BaseException:
                self._session.close()
                self._stop_sources()
                self._peers.close()
                raise
        except BaseException as error:
            self._writer.discard()
            if isinstance(error, TlstaxError):
                require_same_program(server.asked.recorded.target)  # the reason
            raise

    def _begin(self, used_before_ns: int) -> None:
        """Store what stands once."""
        request, session = self.request, self._session
        asked = session.facts(used_before_ns)
        level = text_of(session.replay.start.level)
        self._writer.add(recording_facts("native", level, **cpu_facts(), **asked))
        self._writer.add(schema.Meta("effect_floor_cpus", f"{FLOOR_CPUS:g}"))
        if self._recording_id:
            self._writer.add(schema.Meta("recording_id", self._recording_id))
        if others := self._others():
            self._writer.add(schema.Meta("recorded_with", ", ".join(map(str, others))))
        self._writer.add(session.rows.begin())
        if request.sources:
            self._writer.add(request.sources.start())
        self.store()  # with a budget: the trial
        if request.clients:
            self._begin_peers(self._peers.attach_clients(session.parts, request))
        self._writer.take_place()  # last: what fails until here leaves an earlier capture there
        self._writer.set_patience(_PATIENCE_S)  # of the connection to where it is now

    # ---- while recording ----

    @property
    def pid(self) -> int:
        """The process that is recorded."""
        return self.request.pid

    @property
    def ending(self) -> str:
        """How it ended, as part of a sentence; "" while it goes on, or if it ended as asked."""
        if self._error is not None:
            return self._error.why
        return "" if self._is_whole else self._session.ending

    @property
    def has_ended_early(self) -> bool:
        """Whether its recording ended, but not as asked."""
        end = self._session.replay.end
        return bool(self._session.ending) and (end is None or int(end.exit_code) != ExitCode.OK)

    @property
    def budget_summary(self) -> str:
        """How the budget is used; "" without one."""
        budget = self._session.budget
        return budget_summary(budget) if budget else ""

    @property
    def is_continuous(self) -> bool:
        """Whether everything is on all the time, as far as is known at the start."""
        budget = self._session.budget
        return not budget or budget_is_continuous(budget)

    def wake_on(self, descriptor: int) -> None:
        """Make `poll` return at once when `descriptor` is readable."""
        self._session.wake_on(descriptor)

    def poll(self, seconds: float, until_window: bool = False) -> None:
        """Store the windows that arrive in the next `seconds`.

        Ends early with the recording, and if asked to after a window, so that it can be shown.
        """
        end_ns, last = monotonic_ns() + int(seconds * 1e9), self.last
        while not self.ending and (left_ns := end_ns - monotonic_ns()) > 0:
            left_ms = max(1, left_ns // NS_PER_MS)
            is_waited_for = not self._peers.is_empty or self._commit_ns > 0
            is_quiet = self._session.wait(min(left_ms, _STEP_MS) if is_waited_for else left_ms)
            self._peers.listen()
            self.store()
            if self._commit_ns:
                self._commit()
            if self.request.sources:
                self._writer.add(self.request.sources.poll(monotonic_ns()))
            if not is_quiet or (until_window and self.last is not last):
                return

    def store(self) -> None:
        """Store the windows that have arrived whole, without waiting."""
        self._keep(self._session.windows())

    def _keep(self, windows: Iterable[tuple[list[schema.Row], WindowTotals]]) -> None:
        run_id = self._session.run_id
        for rows, self.last in windows:
            self._writer.add(rows)
            for rows in self._peer_rows:
                self._writer.add(rows)
            self._peer_rows.clear()
            if run_id is None:
                self.windows.clear()
                self._finish_peers()
            self.windows.append(self.last)
            self._commit()

    def _end_peers(self, end_ns: int) -> None:
        """End the peers' windows with the server's: its row has the CPU time of all recorders."""
        self._peer_rows += self._peers.cut(self._session.run_id, end_ns)

    def _cut(self) -> None:
        """End the current window now, and store it."""
        end_ns = monotonic_ns()
        self._session.cut(end_ns)
        while not self.ending and (self.last is None or self.last.end_ns < end_ns):
            self._session.wait(_STEP_MS)
            self.store()

    # ---- clients, and the runs of an experiment ----

    def add_client(self, pid: int) -> None:
        """Record a client of the server from now on, until it ends.

        Raises TlstaxError when it cannot be recorded; the recording of the server goes on.
        """
        self.add_peer(pid, "client")

    def add_peer(self, pid: int, role: str, label: str = "") -> None:
        """As `add_client`, also for a tunnel or proxy; `label` is the name that reports show."""
        self._begin_peers([self._peers.attach(PeerRequest(pid, role, label, self.request))])

    def _begin_peers(self, peers: Iterable[Peer]) -> None:
        """Their first windows begin now, and one of the server."""
        try:
            self._cut()
            self._session.rows.expect_anew()
            if self.last is not None and not self.ending:
                for peer in peers:
                    self._writer.add(self._peers.begin(peer, self.last.end_ns))
                self._commit()
        finally:
            self._peers.drop_waiting()

    def begin_run(self, run_id: int) -> None:
        """End the current window; the following ones belong to `run_id`."""
        self._cut()
        self._session.run_id = run_id
        self._tls_calls_before = self._tls_call_count()
        self._peers.client_handshakes_count = 0
        self._has_client = self._peers.has_client
        self.windows.clear()

    def end_run(self) -> RunTotals:
        """End the run's last window and return what was recorded since `begin_run`."""
        self._cut()
        self._session.run_id = None
        if self.ending:
            raise self.ended()
        calls = self._tls_call_count() - self._tls_calls_before
        of_clients = self._peers.client_handshakes_count if self._has_client else None
        totals = run_totals(self.windows, calls, of_clients)
        self._finish_peers()
        self.windows.clear()
        return totals

    def _tls_call_count(self) -> int:
        replay = self._session.replay
        return tls_call_count(replay.plan, replay.site_hits())

    def add(self, rows: Iterable[schema.Run | schema.Status]) -> None:
        """Store an experiment's own rows."""
        self._writer.add(rows)
        self._commit()

    def _finish_peers(self, all_of_them: bool = False) -> None:
        """Detach from clients that have ended; outside of runs, because that takes CPU time."""
        for rows in self._peers.finish(all_of_them):
            self._writer.add(rows)

    def _commit(self) -> None:
        """Commit, unless somebody reads the capture just now, or did a moment ago."""
        now_ns = monotonic_ns()
        if now_ns < self._commit_ns:
            return
        is_free = self._writer.commit_if_free()
        self._commit_ns = 0 if is_free else now_ns + _STEP_MS * NS_PER_MS

    def ended(self) -> TlstaxError:
        """The error for a recording that ended before it was to."""
        if self._session.why_broken:
            return TlstaxError(
                "the recorder's stream cannot be read",
                self._session.why_broken,
                f"{self.request.capture} has the windows until then; report this",
            )
        if self._error is not None:
            return self._error
        return ended_error(self.request.pid, self.ending, self.request.capture)

    # ---- the end ----

    def close(self) -> None:
        """Detach, store the rest, name the frames."""
        try:
            self._keep(self._session.finish())
            self._writer.set_patience(BUSY_SECONDS)
            self._finish_peers(all_of_them=True)
            self._writer.add(self._stop_sources())
            self._writer.add(self._session.rows.end(self._peers.unnamed))
            self._writer.add(self._session.rows.facts())
            self._writer.add(self._session.rows.end_cpu())
            self._writer.commit()
            self._judge(self._session.close())
        finally:
            self.abandon()

    def _judge(self, status: int) -> None:
        """What the exit status says of the recording."""
        end = self._session.replay.end
        if self._session.parts and end is not None:
            status = int(end.exit_code)  # the server's own: the recorder's speaks of all processes
        if status in (ExitCode.OK, ExitCode.TARGET) and end is not None:
            self._is_whole = status == ExitCode.OK
            return
        self._error = TlstaxError(
            f"the recording of process {self.request.pid} ended early",
            self._session.said if status > 0 else f"the recorder ended with status {status}",
            f"{self.request.capture} is complete until then",
            code_of(status),
        )

    def abandon(self) -> None:
        """Detach and keep the windows that were committed."""
        self._session.close()
        self._peers.close()
        self._stop_sources()
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
