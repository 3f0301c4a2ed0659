# SPDX-License-Identifier: GPL-2.0-only
"""Every planned run of an experiment in its order, whatever fails on the way.

A cell that cannot be run, or a run that does not prove itself, is a row with its reason. A server
that dies is started again. A `strict` experiment ends at its first failure instead.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from rich.console import Console

from tlstax import ExitCode, TlstaxError
from tlstax.workloads.drivers import make_driver
from tlstax.workloads.matrix.cells import SERVERS_MAX, Cell, PlannedRun, ServerKey
from tlstax.workloads.matrix.duration import Clock, duration_text
from tlstax.workloads.matrix.progress import run_bar
from tlstax.workloads.matrix.proven_run import run_cell
from tlstax.workloads.matrix.recipe import Recipe
from tlstax.workloads.matrix.server_session import ServerSession
from tlstax.workloads.matrix.store import Store
from tlstax.workloads.resources import Resources
from tlstax.workloads.stages import Stages
from tlstax.workloads.transports import make_transport

RESTARTS_MAX = 2  # of a server that died
FATAL = (ExitCode.IO,)  # nothing that follows could be written


@dataclass
class Experiment:
    """The runs of one store. Use `run` once."""

    recipe: Recipe
    store: Store
    stages: Stages
    console: Console
    resources: Resources
    folder: Path  # captures are named relative to it
    capture_path: Callable[[int, ServerKey], Path]  # a new file for a turn
    strict: bool = False

    def __post_init__(self) -> None:
        self._cells: dict[int, Cell] = self.store.cells()
        self._sessions: dict[ServerKey, ServerSession] = {}
        self._starts: dict[ServerKey, int] = {}  # which one the session of a server is
        self._opened: set[ServerKey] = set()
        self._unusable: dict[ServerKey, TlstaxError] = {}  # never opened
        self._restarts: dict[ServerKey, int] = {}
        self._broken: dict[str, str] = {}  # transport or driver -> why this host cannot do it

    def run(self) -> None:
        """Do them all."""
        self._leave_out_skipped()
        self._check_host()
        runs = self.store.runs("planned")
        self._clock = Clock(self.recipe, runs, self._cells)
        expected_s = self._clock.remaining_s()
        self.console.print(f"runs     about {duration_text(expected_s)}, servers included")
        started_s = time.monotonic()
        try:
            with run_bar(self.console, self.recipe, self._clock, runs) as bar:
                self._bar = bar
                self._turns(runs)
                bar.end_all()
        finally:
            for session in self._sessions.values():
                session.close()
            self._sessions.clear()
        took = duration_text(time.monotonic() - started_s)
        self.console.print(f"runs     took {took}, expected {duration_text(expected_s)}")

    def _turns(self, runs: Sequence[PlannedRun]) -> None:
        turns = [(turn, list(members)) for turn, members in groupby(runs, lambda run: run.turn)]
        keys = [self._cells[members[0].cell_id].server_key for _, members in turns]
        for position, (turn, members) in enumerate(turns):
            key = keys[position]
            self._turn(turn, key, members)
            if key not in keys[position + 1 :] and key in self._sessions:
                self._sessions.pop(key).close()

    # ---- one turn ----

    def _turn(self, turn: int, key: ServerKey, runs: Sequence[PlannedRun]) -> None:
        """One server's runs in one recording; after its death in another one."""
        pending = list(runs)
        while pending:
            try:
                session = self._session(key, pending[0].server_start)
            except TlstaxError as error:
                self._give_up(pending, error)
                return
            try:
                self._record(session, self.capture_path(turn, key), pending)
            except TlstaxError as error:
                # A recorder that cannot attach, or a server that is gone: the first pending run
                # fails, the others are tried again.
                self._give_up(pending[:1], error)
                pending = pending[1:]
                self._sessions.pop(key).close()
                self._restarts[key] = self._restarts.get(key, 0) + 1
                if self._restarts[key] > RESTARTS_MAX:
                    self._give_up(pending, error)
                    return

    def _record(self, session: ServerSession, capture: Path, pending: list[PlannedRun]) -> None:
        """Run what is pending, taking off the list what is finished."""
        began_s = time.monotonic()
        recording = self.stages.open_recorder(session.server.pid, capture, self.recipe.collect)
        name = str(capture.relative_to(self.folder))
        with recording as recorder:
            self._clock.attached(time.monotonic() - began_s)
            for route in session.routes.values():
                for process in route.processes:
                    recorder.add_peer(process.pid, process.role, process.name)
            while pending:
                run = pending[0]
                cell = self._cells[run.cell_id]
                self._bar.begin(cell, run)
                why = session.why_not(cell)
                if why is not None:
                    self._fail([run], why)
                else:
                    began_s = time.monotonic()
                    try:
                        self.store.finish(run.run_id, name, run_cell(session, cell, run, recorder))
                    except TlstaxError as error:
                        if self._ends_all(error):
                            raise
                        if not session.is_alive:
                            raise session.died(error) from error
                        self._fail([run], reason(error))
                        self.console.print(f"failed   {cell.label}: {reason(error)}")
                    self._clock.ran(run.cell_id, time.monotonic() - began_s)
                pending.pop(0)
                self._bar.end()

    # ---- servers ----

    def _session(self, key: ServerKey, start: int) -> ServerSession:
        """The server, started if this start of it is not running; TlstaxError if it cannot be."""
        if key in self._unusable:
            raise self._unusable[key]
        is_this_start = self._starts.get(key) == start
        if is_this_start and key in self._sessions and self._sessions[key].is_alive:
            self._sessions[key] = self._sessions.pop(key)  # the last one that had its turn
            return self._sessions[key]
        if key in self._sessions:
            self._sessions.pop(key).close()
        if len(self._sessions) >= SERVERS_MAX:  # the first one is that whose turn is longest ago
            self._sessions.pop(next(iter(self._sessions))).close()
        self._bar.starting(key)
        try:
            session = self._open(key)
        except TlstaxError as error:
            if key not in self._opened:
                self._unusable[key] = error
                self._say(key, f"left out: {reason(error)}")
            raise
        self._opened.add(key)
        self._sessions[key], self._starts[key] = session, start
        return session

    def _open(self, key: ServerKey) -> ServerSession:
        began_s = time.monotonic()
        cells = [cell for cell in self._cells.values() if cell.server_key == key]
        session = ServerSession(
            key,
            self.recipe,
            cells,
            self.resources,
            lambda line: self._say(key, line),
            dict(self._broken),
            negotiates=self.recipe.kind != "tax",
        )
        session.open()
        agreed = f", {session.agreed.version} {session.agreed.cipher}" if session.agreed else ""
        server = session.server
        self._say(key, f"{server.program.name} {server.pid}, 127.0.0.1:{server.port}{agreed}")
        self._store_facts(session)
        self._clock.started(time.monotonic() - began_s)
        return session

    def _say(self, key: ServerKey, line: str) -> None:
        name = "server" if self.recipe.kind == "tax" else key.label
        self.console.print(f"{name:8} {line}", soft_wrap=True)

    def _store_facts(self, session: ServerSession) -> None:
        """What was found out about a server and the transports to it."""
        key, facts = session.key, dict(session.facts)
        if self.recipe.kind == "libraries" and session.negotiated is not None:
            facts["temporary_key"] = session.negotiated.driver.temporary_key
            facts["x25519"] = _yes(session.negotiated.has_x25519)
            found = self.stages.crypto_instructions(session.server.pid)
            facts |= {f"instructions {name}": _yes(is_there) for name, is_there in found.items()}
        self.store.add_facts("server", [key.label], facts)
        for name, route in session.routes.items():
            facts = dict(route.facts)
            if route.rtt_ns is not None:
                facts["rtt_ns"] = str(route.rtt_ns)
            for process in route.processes:  # by which the report knows whose CPU time it was
                facts[f"process {process.pid}"] = process.name
            self.store.add_facts("route", [key.server, key.key, key.encryption, name], facts)

    # ---- what cannot be run ----

    def _ends_all(self, error: TlstaxError) -> bool:
        return self.strict or error.exit_code in FATAL

    def _fail(self, runs: Sequence[PlannedRun], why: str, state: str = "failed") -> None:
        self.store.fail([run.run_id for run in runs], why, state)

    def _give_up(self, runs: Sequence[PlannedRun], error: TlstaxError) -> None:
        if self._ends_all(error):
            raise error
        self._fail(runs, reason(error))
        for run in runs:
            cell = self._cells[run.cell_id]
            if cell.server_key not in self._unusable:  # one line was printed for all of its runs
                self.console.print(f"failed   {cell.label}: {reason(error)}")
            self._bar.end()

    def _leave_out_skipped(self) -> None:
        for run in self.store.runs("planned"):
            cell = self._cells[run.cell_id]
            for skip in self.recipe.skips:
                if cell.fits(skip.where):
                    self._fail([run], skip.reason, "skipped")

    def _check_host(self) -> None:
        """What this host cannot do is told before anything starts, and is a row for each run."""
        runs = self.store.runs("planned")
        checks: dict[str, Callable[[], None]] = {}
        for run in runs:
            cell = self._cells[run.cell_id]
            transport, driver = self.recipe.transport_of(cell), self.recipe.driver_of(cell)
            made = make_transport(transport.kind, self.resources, transport.options)
            checks[cell.transport] = made.check
            checks[cell.driver] = make_driver(driver.kind, driver.options).check
        for name, check in checks.items():
            try:
                check()
            except TlstaxError as error:
                if self.strict:
                    raise
                self._broken[name] = f"{reason(error)}. {error.do}"
                self.console.print(f"cannot   {name}: {self._broken[name]}", soft_wrap=True)
        for run in runs:
            cell = self._cells[run.cell_id]
            for name, part in (
                (cell.transport, self.recipe.transport_of(cell)),
                (cell.driver, self.recipe.driver_of(cell)),
            ):
                if name in self._broken:
                    state = "skipped" if part.optional else "failed"
                    self._fail([run], self._broken[name], state)
                    break


def reason(error: TlstaxError) -> str:
    """On one line: the end of a server's log has several."""
    return " | ".join(line.strip() for line in f"{error.what}: {error.why}".splitlines() if line)


def _yes(value: bool) -> str:
    return "yes" if value else "no"
