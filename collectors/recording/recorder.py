# SPDX-License-Identifier: GPL-2.0-only
"""Record one process into one capture: plan, attach, cut windows, stop, leave nothing behind.

Serves `tlstax attach` and, as the recorder that watches a private server, the experiments.
"""

import os
import select
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.writer import CaptureWriter
from tlstax.collectors.host.clock import cpu_used_ns, monotonic_ns
from tlstax.collectors.host.recording_facts import cpu_facts, recording_facts
from tlstax.collectors.placement.planning import plan_functions_in_child, plan_in_child
from tlstax.collectors.process.find_process import open_pidfd
from tlstax.collectors.process.symbols import Symbolizer
from tlstax.collectors.process.target import Target, require_host_pids, still_runs
from tlstax.collectors.recording.engine.metering import SpanOverhead
from tlstax.collectors.recording.engine.native import Engine, Options
from tlstax.collectors.recording.engine.pacing import Step
from tlstax.collectors.recording.engine.schedule import Schedule, light_of
from tlstax.collectors.recording.peers import PeerRequest, PeerSet
from tlstax.collectors.recording.run_totals import run_totals, tls_call_count
from tlstax.collectors.recording.source_set import SourceSet
from tlstax.collectors.recording.stack_store import StackStore
from tlstax.collectors.recording.target_rows import (
    calibration_rows,
    gap_rows,
    probe_rows,
    target_row,
)
from tlstax.collectors.recording.thread_roles import ThreadRoles
from tlstax.collectors.recording.windows import WindowCutter, WindowTotals
from tlstax.probes.model import Level
from tlstax.workloads.results import RunTotals

if TYPE_CHECKING:
    from tlstax.collectors.recording.function_windows import FunctionRecording

NS_PER_S: Final = 1_000_000_000
_NAME_EVERY_WINDOWS: Final = 300


@dataclass(frozen=True)
class Request:
    """What to record."""

    pid: int
    capture: Path
    window_s: float = 1.0
    sample_hz: int = 99
    level: Level = Level.RECORD
    definitions: Path | None = None
    overwrite: bool = False
    functions: tuple[str, ...] = ()  # primitives to count, by category or id
    clients: tuple[int, ...] = ()
    client_level: Level = Level.HANDSHAKE
    sources: SourceSet | None = None  # what is recorded beside the engine
    budget: float | None = None  # share of the server's CPU time that measuring may cost


class Recorder:
    """A recording in progress. Use as a context manager: leaving it detaches and finishes."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.windows: list[WindowTotals] = []  # of the current run only
        self.ending = ""  # how the target ended, as part of a sentence; "" while it runs
        self._run_id: int | None = None
        self._peers = PeerSet()
        self._window_ns = int(request.window_s * NS_PER_S)
        self._used_before_ns = cpu_used_ns()
        require_host_pids()
        self._target, self._plan = plan_in_child(request.pid, request.level, request.definitions)
        self._function_plan = (
            plan_functions_in_child(request.pid, request.functions, request.definitions)
            if request.functions
            else None
        )
        self._functions: FunctionRecording | None = None
        self._pidfd = open_pidfd(self._target.pid)
        self._exited = select.poll()
        self._exited.register(self._pidfd, select.POLLIN)
        self._writer = CaptureWriter.create(request.capture, request.overwrite)
        try:
            self._start()
        except BaseException:
            os.close(self._pidfd)
            self._writer.close()
            request.capture.unlink(missing_ok=True)
            raise

    def _start(self) -> None:
        self._engine = Engine(
            self.request.pid, self._plan, Options(sample_hz=self.request.sample_hz)
        )
        self._schedule = Schedule(
            self._engine,
            self.request.level,
            self._window_ns,
            self.request.sample_hz,
            self.request.budget,
        )
        try:
            self._symbolizer = Symbolizer(self._target)
            self._stacks = StackStore(self._engine.maps.stack_addresses, self._symbolizer)
            self._attach_functions()
            self._schedule.attach()
            _require_same_program(self._target)
            roles = ThreadRoles(self.request.pid, self._plan.role_marks)
            start_cpu_ns = cpu_used_ns() - self._used_before_ns
            self._cutter = WindowCutter(self._engine, self._stacks, roles)  # counts from here on
            self._writer.add(self._meta(start_cpu_ns))
            self._writer.add(target_row(self._target, self._plan))
            if self._functions:
                self._writer.add(self._functions.begin())
            self._writer.add(self._probes())
            self._writer.add(calibration_rows(self._plan))
            self._writer.add(gap_rows(self._plan))
            if self.request.sources:
                self._writer.add(self.request.sources.start())
            self._writer.commit()
            self._schedule.begin()
            if self.request.budget is not None:
                self._try_out()
        except BaseException:
            self._detach()
            self._stop_sources()
            raise
        try:
            for pid in self.request.clients:
                self.add_client(pid)
        except BaseException:
            self._detach()
            self._stop_sources()
            self._peers.close()
            raise

    def _try_out(self) -> None:
        """A short window at the full level, and the choice that follows from it."""
        schedule = self._schedule
        self._exited.poll(max(1, (schedule.next_ns - monotonic_ns()) // 1_000_000))
        bill = schedule.bill()
        self._cut(bill)
        self._turn(light_of(self.request.level))
        schedule.judge(bill)
        self._writer.add(schedule.facts())
        self._follow(schedule.first_step(), is_cut=True)

    def _attach_functions(self) -> None:
        if self._function_plan:
            from tlstax.collectors.recording.function_windows import FunctionRecording

            self._functions = FunctionRecording(
                self._function_plan, self._engine.multi, self._engine.shared_maps()
            )

    # ---- while recording ----

    def poll(self, seconds: float) -> None:
        """Cut the windows that end within the next `seconds`, and return after them.

        Returns at once when the target has ended (`ending` then says how).
        """
        end_ns = monotonic_ns() + int(seconds * NS_PER_S)
        while not self.ending:
            now_ns = monotonic_ns()
            if self._engine.maps.executed_ns():
                self.ending = f"it executed {_program_of(self.request.pid)} in the same process"
                return
            if now_ns >= self._schedule.next_ns:
                self._end_window()
                continue
            if now_ns >= end_ns:
                return
            wait_ms = max(1, (min(self._schedule.wake_ns, end_ns) - now_ns) // 1_000_000)
            ready = [fd for fd, _ in self._exited.poll(wait_ms)]
            if self._pidfd in ready:
                self.ending = "it exited or was killed"
            elif ready:
                return
            self._schedule.look()
            if self.request.sources:
                self._writer.add(self.request.sources.poll(monotonic_ns()))

    def wake_on(self, fd: int) -> None:
        """Have `poll` return at once when there is something to read from `fd`."""
        self._exited.register(fd, select.POLLIN)

    def add_client(self, pid: int) -> None:
        """Record a client of the server from now on, until it ends.

        Raises TlstaxError when it cannot be recorded; the recording of the server goes on.
        """
        self.add_peer(pid, "client")

    def add_peer(self, pid: int, role: str, label: str = "") -> None:
        """Record a client, or a tunnel or proxy on its way; as `add_client`.

        `label` is what people call it.
        """
        request = self.request
        peer = self._peers.attach(
            PeerRequest(
                pid, request.client_level, request.sample_hz, request.definitions, role, label
            )
        )
        self._cut()
        self._writer.add(self._peers.begin(peer, self.windows[-1].end_ns))
        self._writer.commit()

    def begin_run(self, run_id: int) -> None:
        """End the window that runs; the following ones belong to `run_id`."""
        self._cut()
        self._run_id = run_id
        self._tls_calls_before = tls_call_count(self._plan, self._engine.site_hits())
        self._peers.client_handshakes_count = 0
        self._has_client = self._peers.has_client
        self.windows.clear()

    def end_run(self) -> RunTotals:
        """End the run's last window and say what was seen since `begin_run`."""
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
        """The error that says how the target ended, and that the capture is good until then."""
        return TlstaxError(
            f"process {self.request.pid} ended while it was recorded",
            self.ending,
            f"{self.request.capture} is complete until then; "
            "look at the server's error log, and attach to the process that runs now",
            ExitCode.TARGET,
        )

    def add(self, rows: Iterable[schema.Run | schema.Status]) -> None:
        """Store an experiment's own rows."""
        self._writer.add(rows)
        self._writer.commit()

    @property
    def pid(self) -> int:
        """The process that is recorded."""
        return self.request.pid

    @property
    def budget_words(self) -> str:
        """How the budget is spent; '' without one."""
        return self._schedule.pace.summary() if self._schedule.pace else ""

    @property
    def is_continuous(self) -> bool:
        """Whether everything is on all the time, as far as is known now."""
        choice = self._schedule.pace.choice if self._schedule.pace else None
        return choice is None or choice.is_continuous

    @property
    def last(self) -> WindowTotals | None:
        """The last window that ended, for live display."""
        return self.windows[-1] if self.windows else None

    def _end_window(self) -> None:
        """End the window, and begin the next one at whatever level comes."""
        bill = self._schedule.bill()
        if self._schedule.pace is None:
            self._cut(bill)
            return
        step = self._schedule.next_step(bill)
        if not self._schedule.rises_to(step.level):
            self._cut(bill)
            self._follow(step, is_cut=True)
            return
        self._follow(step, is_cut=False, bill=bill)

    def _follow(self, step: Step, *, is_cut: bool, bill: SpanOverhead | None = None) -> None:
        """Go to the level of a step. The ledger's programs come before the window that has it."""
        rises = self._schedule.rises_to(step.level)
        level = self._schedule.window_level
        self._turn(step.level)
        if rises:
            self._cut(bill, level, self._cutter.resume())
        elif not is_cut:
            self._cut(bill, level)
        self._schedule.follow(step)

    def _turn(self, level: Level | None) -> None:
        if level != self._schedule.level:
            repairs = self._cutter.repairs()
            self._schedule.turn(level)
            self._cutter.turned(repairs)

    def _cut(
        self, bill: SpanOverhead | None = None, level: str | None = None, end_ns: int | None = None
    ) -> None:
        """Store the window that runs, and what it cost."""
        bill = bill or self._schedule.bill()
        level = level or self._schedule.window_level
        self._schedule.measure_cut(lambda: self._store(bill, level, end_ns))
        if self._schedule.pace is None:
            self._schedule.expect()
            self._schedule.go_on()
        if self._schedule.windows_count % _NAME_EVERY_WINDOWS == 0:
            self._name_frames()

    def _store(self, bill: SpanOverhead, level: str, end_ns: int | None) -> None:
        rows, totals = self._cutter.cut(self._run_id, end_ns, level)
        self._writer.add(rows)
        if self._functions:
            self._writer.add(self._functions.cut(self._cutter.windows_count))
        self._writer.add(self._schedule.effect(self._cutter.windows_count, bill))
        for rows in self._peers.cut(self._run_id, totals.end_ns):
            self._writer.add(rows)
        self._writer.commit()
        if self._run_id is None:
            self.windows.clear()
            self._finish_peers()
        self.windows.append(totals)

    # ---- the end ----

    def _finish_peers(self, all_of_them: bool = False) -> None:
        """Detach from clients that have ended; outside of runs, because naming takes CPU time."""
        for rows in self._peers.finish(all_of_them):
            self._writer.add(rows)
            self._writer.commit()

    def close(self) -> None:
        """Detach, store what the probes counted, close the capture."""
        try:
            self._cut()
            self._writer.add(self._probes())
            self._writer.add(schema.Meta("end_monotonic_ns", str(monotonic_ns())))
            self._writer.add(self._fate())
            self._writer.add(self._schedule.facts())
            self._detach()
            self._writer.add(self._stop_sources())
            self._finish_peers(all_of_them=True)
            self._name_frames()
        finally:
            self.abandon()

    def _fate(self) -> Iterable[schema.Row]:
        """What became of the target, and of its children."""
        yield schema.Meta("target_ending", self.ending or "it was running")
        if count := self._engine.maps.forked_count():
            text = f"{count} were started while it was recorded; they are not measured."
            yield schema.Gap(1, "processes that it started", text)

    def _name_frames(self) -> None:
        rows: list[schema.Row] = []
        self._stacks.name_frames(rows)
        self._writer.add(rows)
        self._writer.commit()

    def _detach(self) -> None:
        self._schedule.close()
        if self._functions:
            self._functions.close()
        self._engine.close()

    def _stop_sources(self) -> list[schema.Row]:
        return self.request.sources.stop() if self.request.sources else []

    def abandon(self) -> None:
        """Detach and keep the windows that were committed."""
        self._detach()
        self._stop_sources()
        self._peers.close()
        self._symbolizer.close()
        os.close(self._pidfd)
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

    # ---- rows ----

    def _meta(self, start_cpu_ns: int) -> Iterable[schema.Meta]:
        asked: dict[str, object] = {
            "sample_hz": self.request.sample_hz,
            "probe_kind": "uprobe_multi" if self._engine.multi else "perf_event",
            "start_cpu_ns": start_cpu_ns,
        }
        if self._function_plan:
            asked["functions"] = ", ".join(self.request.functions)
            asked["missing_functions"] = ", ".join(self._function_plan.absent) or "none"
        level = self.request.level.name.lower()
        return recording_facts("native", level, **cpu_facts(), **asked)

    def _probes(self) -> list[schema.Probe]:
        rows = probe_rows(self._engine)
        if self._functions:
            suffix = "_multi" if self._engine.multi else ""
            rows += self._functions.probes(len(rows) + 1, suffix)
        return rows


def _require_same_program(target: Target) -> None:
    """Raise TlstaxError when the process executed or ended between the plan and the probes."""
    if not still_runs(target):
        raise TlstaxError(
            f"process {target.pid} changed while the probes were attached",
            f"it ended, or it executed {_program_of(target.pid)}",
            "look up the server's pid, and attach again",
            ExitCode.TARGET,
        )


def _program_of(pid: int) -> str:
    """What the process runs now, as part of a sentence; control characters are escaped."""
    try:
        path = os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return "another program"
    return path if path.isprintable() else ascii(path)
