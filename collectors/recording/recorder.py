# SPDX-License-Identifier: GPL-2.0-only
"""Record one process into one capture: plan, attach, cut windows, stop, detach everything.

Used by `tlstax attach` and by experiments, which record a private server.
"""

from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

from tlstax import TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.writer import CaptureWriter
from tlstax.collectors.host.clock import cpu_used_ns, monotonic_ns
from tlstax.collectors.placement.planning import plan_in_child
from tlstax.collectors.process.symbols import Symbolizer
from tlstax.collectors.process.target import require_host_pids
from tlstax.collectors.process.target_fate import (
    ExitWatch,
    ended_error,
    program_of,
    require_same_program,
)
from tlstax.collectors.recording.engine.metering import Overhead
from tlstax.collectors.recording.engine.native import Engine
from tlstax.collectors.recording.engine.schedule import Schedule
from tlstax.collectors.recording.engine_rows import (
    described,
    engine_facts,
    engine_options,
    fate_rows,
    walk_rows,
)
from tlstax.collectors.recording.peers import PeerSet, peer_request
from tlstax.collectors.recording.request import Request
from tlstax.collectors.recording.run_totals import run_totals, tls_call_count
from tlstax.collectors.recording.safe_request import limits_of, made_safe
from tlstax.collectors.recording.stack_store import StackStore, UnnamedFrames
from tlstax.collectors.recording.target_rows import probe_rows
from tlstax.collectors.recording.thread_roles import ThreadRoles
from tlstax.collectors.recording.windows import WindowCutter, WindowTotals
from tlstax.workloads.results import RunTotals

NS_PER_S: Final = 1_000_000_000
_NAME_EVERY_WINDOWS: Final = 300


class Recorder:
    """A recording in progress. Use as a context manager: leaving it detaches and finishes."""

    def __init__(self, request: Request) -> None:
        self._used_before_ns = cpu_used_ns()
        require_host_pids()
        assert not request.functions, "the static recorder counts them"
        assert request.calibration_s is None, "the static recorder takes stretches"
        self.request = request = made_safe(request)
        self.windows: list[WindowTotals] = []  # of the current run only
        self.ending = ""  # how the target ended, as part of a sentence; "" while it runs
        self._run_id: int | None = None
        self._unnamed = UnnamedFrames()
        self._peers = PeerSet(self._unnamed)
        self._window_ns = int(request.window_s * NS_PER_S)
        self._target, self._plan = plan_in_child(
            request.pid, request.level, request.definitions, limits=limits_of(request)
        )
        self._watch = ExitWatch(self._target.pid)
        self._writer = CaptureWriter.create(request.capture, request.overwrite)
        try:
            self._start()
        except BaseException:
            self._watch.close()
            self._writer.discard()
            raise

    def _start(self) -> None:
        request = self.request
        self._engine = Engine(request.pid, self._plan, engine_options(request, self._target))
        self.schedule = Schedule(self._engine, request.level, self._window_ns, request.sample_hz)
        try:
            self._symbolizer = Symbolizer(self._target)
            self._stacks = StackStore(self._engine.stack_addresses, self._symbolizer)
            try:
                self.schedule.attach()
            finally:
                require_same_program(self._target)  # the reason of any error, if it ended
            roles = ThreadRoles(self.request.pid, self._plan.role_marks)
            start_cpu_ns = cpu_used_ns() - self._used_before_ns
            self._cutter = WindowCutter(self._engine, self._stacks, roles)  # counts from here on
            self._writer.add(engine_facts(request, self._engine, start_cpu_ns))
            self._writer.add(described(request, self._target, self._engine))
            if self.request.sources:
                self._writer.add(self.request.sources.start())
            self.schedule.begin()
            for pid in self.request.clients:
                self.add_client(pid)
            self._writer.take_place()  # last: what fails until here leaves an earlier capture there
        except BaseException:
            self._detach()
            self._stop_sources()
            self._peers.close()
            raise

    # ---- while recording ----

    def poll(self, seconds: float) -> None:
        """Cut the windows that end in the next `seconds`; ends early with the target (`ending`)."""
        end_ns = monotonic_ns() + int(seconds * NS_PER_S)
        while not self.ending:
            now_ns = monotonic_ns()
            if self._engine.maps.executed_ns():
                self.ending = f"it executed {program_of(self.request.pid)} in the same process"
                return
            if now_ns >= self.schedule.next_ns:
                self._cut()
                continue
            if now_ns >= end_ns:
                return
            wait_ms = max(1, (min(self.schedule.next_ns, end_ns) - now_ns) // 1_000_000)
            ended, woken = self._watch.wait(wait_ms)
            if ended:
                self.ending = "it exited or was killed"
            elif woken:
                return
            if self.request.sources:
                self._writer.add(self.request.sources.poll(monotonic_ns()))

    def wake_on(self, fd: int) -> None:
        """Make `poll` return at once when `fd` is readable."""
        self._watch.wake_on(fd)

    def add_client(self, pid: int) -> None:
        """Record a client of the server from now on, until it ends.

        Raises TlstaxError when it cannot be recorded; the recording of the server goes on.
        """
        self.add_peer(pid, "client")

    def add_peer(self, pid: int, role: str, label: str = "") -> None:
        """As `add_client`, also for a tunnel or proxy; `label` is the name that reports show."""
        peer = self._peers.attach(peer_request(self.request, pid, role, label))
        self._cut()
        self._writer.add(self._peers.begin(peer, self.windows[-1].end_ns))
        self._writer.commit()

    def begin_run(self, run_id: int) -> None:
        """End the current window; the following ones belong to `run_id`."""
        self._cut()
        self._run_id = run_id
        self._tls_calls_before = tls_call_count(self._plan, self._engine.site_hits())
        self._peers.client_handshakes_count = 0
        self._has_client = self._peers.has_client
        self.windows.clear()

    def end_run(self) -> RunTotals:
        """End the run's last window and return what was recorded since `begin_run`."""
        self._cut()
        self._run_id = None
        calls = tls_call_count(self._plan, self._engine.site_hits()) - self._tls_calls_before
        of_clients = self._peers.client_handshakes_count if self._has_client else None
        totals = run_totals(self.windows, calls, of_clients)
        self._finish_peers()
        self.windows.clear()
        if self.ending:
            raise self.ended()
        return totals

    def ended(self) -> TlstaxError:
        """The error for a target that ended: how, and that the capture is valid until then."""
        return ended_error(self.request.pid, self.ending, self.request.capture)

    def add(self, rows: Iterable[schema.Run | schema.Status]) -> None:
        """Store an experiment's own rows."""
        self._writer.add(rows)
        self._writer.commit()

    @property
    def pid(self) -> int:
        """The process that is recorded."""
        return self.request.pid

    @property
    def last(self) -> WindowTotals | None:
        """The last window that ended, for live display."""
        return self.windows[-1] if self.windows else None

    def _cut(self) -> None:
        """Store the current window and its overhead."""
        overhead = self.schedule.overhead()
        self.schedule.cut(overhead, lambda: self._store(overhead))
        if self.schedule.windows_count % _NAME_EVERY_WINDOWS == 0:
            self._name_frames()

    def _store(self, overhead: Overhead) -> None:
        rows, totals = self._cutter.cut(self._run_id, None, self.schedule.window_level)
        self._writer.add(rows)
        self._writer.add(self.schedule.effect(self._cutter.windows_count, overhead))
        for rows in self._peers.cut(self._run_id, totals.end_ns):
            self._writer.add(rows)
        self._writer.commit()
        if self._run_id is None:
            self.windows.clear()
            self._finish_peers()
        self.windows.append(totals)

    # ---- the end ----

    def _finish_peers(self, all_of_them: bool = False) -> None:
        """Detach from clients that have ended; outside of runs, because that takes CPU time."""
        for rows in self._peers.finish(all_of_them):
            self._writer.add(rows)
            self._writer.commit()

    def close(self) -> None:
        """Detach, store what the probes counted, close the capture."""
        try:
            self._cut()
            self._writer.add(probe_rows(self._engine))
            self._writer.add(schema.Meta("end_monotonic_ns", str(monotonic_ns())))
            self._writer.add(fate_rows(self._engine, self.ending))
            self._writer.add(walk_rows(self._engine))
            self._writer.add(self.schedule.facts())
            self._detach()
            self._writer.add(self._stop_sources())
            self._finish_peers(all_of_them=True)
            self._name_frames()
        finally:
            self.abandon()

    def _name_frames(self) -> None:
        self._stacks.leave(self._unnamed)
        self._writer.add(self._unnamed.rows())
        self._writer.commit()
        self._peers.close_files()

    def _detach(self) -> None:
        self.schedule.close()
        self._engine.close()

    def _stop_sources(self) -> list[schema.Row]:
        return self.request.sources.stop() if self.request.sources else []

    def abandon(self) -> None:
        """Detach and keep the windows that were committed."""
        self._detach()
        self._stop_sources()
        self._peers.close()
        self._symbolizer.close()
        self._watch.close()
        self._writer.close()

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
