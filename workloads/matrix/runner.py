# SPDX-License-Identifier: GPL-2.0-only
"""A matrix from recipe to results: every run in its order, whatever fails on the way.

A cell that cannot be run, or a run that does not prove itself, is a row with its reason. A server
that dies is started again. Whatever ends tlstax itself, finished runs are kept, and `resume` does
those that are still planned.
"""

import datetime
import fcntl
import json
import platform
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from tlstax import ExitCode, TlstaxError, __version__
from tlstax.certs.generate import write_private
from tlstax.workloads.drivers import DRIVERS, make_driver
from tlstax.workloads.matrix.cells import (
    SERVERS_MAX,
    Cell,
    PlannedRun,
    ServerKey,
    baseline_of,
    plan,
)
from tlstax.workloads.matrix.duration import Clock, duration_text
from tlstax.workloads.matrix.recipe import MatrixRecipe, driver_of, transport_of
from tlstax.workloads.matrix.server_session import ServerSession
from tlstax.workloads.matrix.store import NAME, CellRow, Store, where_text
from tlstax.workloads.output import stamp, writing_to
from tlstax.workloads.recipe import load_any
from tlstax.workloads.resources import Resources
from tlstax.workloads.stages import Stages
from tlstax.workloads.transports import make_transport

RECIPE = "recipe.toml"
CAPTURES = "captures"
RESTARTS_MAX = 2  # of a server that died
FATAL = (ExitCode.IO,)  # nothing that follows could be written


def prepare(
    path: Path,
    scale: str | None,
    output: Path,
    seed: int | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Path:
    """A new directory below `output` with everything planned; TlstaxError (IO) if there is none.

    Without a scale it is the least that the recipe has. `changes` are arguments of
    MatrixRecipe.with_changes.
    """
    recipe = _load(path, scale, changes or {})
    seed = random.SystemRandom().randrange(1 << 31) if seed is None else seed
    folder = output / f"{recipe.name}-{recipe.scale.name}-{stamp()}"
    with writing_to(output):
        folder.mkdir(parents=True)
        (folder / CAPTURES).mkdir(mode=0o700)
        write_private(folder / RECIPE, recipe.text.encode())
    with Store.create(folder) as store:
        _write_plan(recipe, store, seed, changes or {})
    return folder


def _load(path: Path, scale: str | None, changes: Mapping[str, Any]) -> MatrixRecipe:
    recipe = load_any(path, scale)
    assert isinstance(recipe, MatrixRecipe)
    return recipe.with_changes(**changes)


def _write_plan(recipe: MatrixRecipe, store: Store, seed: int, changes: Mapping[str, Any]) -> None:
    rows = []
    for cell in recipe.cells:
        kind = DRIVERS[driver_of(recipe, cell).kind].scenario(cell.scenario)
        assert kind is not None  # the recipe was checked
        baseline = baseline_of(cell, recipe.cells, recipe.baseline)
        rows.append(CellRow(cell, kind.operation, kind.connects, baseline))
    scale = recipe.scale
    runs = plan(recipe.cells, scale.rounds_count, scale.rounds_in_turn, seed)
    meta = {
        "recipe": recipe.name,
        "title": recipe.title,
        "scale": scale.name,
        "seed": str(seed),
        "rounds": str(scale.rounds_count),
        "seconds": str(scale.length.seconds),
        "operations": str(scale.length.operation_count or ""),
        "baseline": json.dumps(dict(recipe.baseline)),
        "changes": json.dumps({key: value for key, value in changes.items() if value}),
        "tlstax_version": __version__,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "host": platform.node(),
        "kernel": platform.release(),
    }
    store.write_plan(meta, rows, runs)
    store.write_published(
        [
            (entry.source, entry.setup, entry.quantity, where_text(entry.where), *figure)
            for entry in recipe.published
            for figure in [(entry.value, entry.sd)]
        ]
    )


def resume(
    folder: Path, stages: Stages, *, retry: bool = False, proxysql: str | None = None
) -> Path:
    """Do what is still planned (with `retry`, what failed or was left out, too); the page.

    `proxysql` is the program of that transport, from now on.

    TlstaxError: FAILED at the end if any run failed; IO at once when the disk is full.
    """
    with Store.open(folder) as store, _only_runner(folder), ExitStack() as stack:
        meta = store.meta()
        changes = json.loads(meta["changes"])
        if proxysql:
            changes["proxysql"] = proxysql
            store.set_meta("changes", json.dumps(changes))
        recipe = _load(folder / RECIPE, meta["scale"], changes)
        if retry:
            store.plan_again()
        matrix = _Matrix(folder, recipe, store, stages, Console())
        matrix.resources = stack.enter_context(Resources.create())
        try:
            matrix.run()
        except KeyboardInterrupt:
            matrix.console.print(f"interrupted; go on with: tlstax lab resume {folder}")
            raise
        reasons, counts = store.reasons(), store.counts()
    page = stages.render_folder(folder)
    failed = counts.get("failed", 0)
    if failed:
        raise TlstaxError(
            f"{failed} of {sum(counts.values())} runs failed",
            f"{reasons[0][0]}: {reasons[0][1]}",
            f"`tlstax lab resume --retry {folder}` tries them again; the others are in {page}",
            ExitCode.FAILED,
        )
    return page


@contextmanager
def _only_runner(folder: Path) -> Iterator[None]:
    """Nobody else runs this matrix meanwhile; TlstaxError (USAGE) if somebody does."""
    with (folder / RECIPE).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise TlstaxError(
                f"cannot go on with {folder}",
                "another tlstax is running it",
                "Wait until it has ended, or end it",
                ExitCode.USAGE,
            ) from error
        yield


@dataclass
class _Matrix:
    folder: Path
    recipe: MatrixRecipe
    store: Store
    stages: Stages
    console: Console
    resources: Resources = field(init=False)

    def run(self) -> None:
        """Every planned run."""
        self._cells = self.store.cells()
        self._sessions: dict[ServerKey, ServerSession] = {}
        self._restarts: dict[ServerKey, int] = {}
        self._broken: dict[str, str] = {}  # transport or driver -> why this host cannot do it
        self._leave_out_skipped()
        self._check_host()
        runs = self.store.runs("planned")
        self._clock = Clock(self.recipe, runs, self._cells)
        self._announce(runs)
        started_s = time.monotonic()
        columns = (
            TextColumn("{task.description:44}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f}/{task.total:.0f} runs"),
            TextColumn("{task.fields[remaining]}"),
        )
        try:
            with Progress(*columns, console=self.console, auto_refresh=False) as bar:
                task = bar.add_task("", total=max(1, len(runs)), remaining="")
                self._turns(runs, bar, task)
        finally:
            for session in self._sessions.values():
                session.close()
            self._sessions.clear()
        self.console.print(f"runs     took {duration_text(time.monotonic() - started_s)}")

    def _turns(self, runs: Sequence[PlannedRun], bar: Progress, task: TaskID) -> None:
        turns = [(turn, list(members)) for turn, members in groupby(runs, lambda run: run.turn)]
        keys = [self._key_of(members[0]) for _, members in turns]
        for position, (turn, members) in enumerate(turns):
            key = keys[position]
            tell = _Teller(bar, task, self._clock)
            self._turn(turn, key, members, tell)
            if key not in keys[position + 1 :] and key in self._sessions:
                self._sessions.pop(key).close()
        bar.update(task, description="done", remaining="", refresh=True)

    def _key_of(self, run: PlannedRun) -> ServerKey:
        return self._cells[run.cell_id].server_key

    # ---- one turn ----

    def _turn(self, turn: int, key: ServerKey, runs: Sequence[PlannedRun], tell: "_Teller") -> None:
        """One server's runs in one recording; after its death in another one."""
        pending = list(runs)
        attempt = 0
        while pending:
            try:
                session = self._session(key, tell)
            except TlstaxError as error:
                self._give_up(pending, error, tell)
                return
            capture = self._capture_path(turn, key)
            try:
                self._record(session, capture, pending, tell)
            except TlstaxError as error:
                if error.exit_code in FATAL:
                    raise
                # A recorder that cannot attach, or a server that is gone: the first pending run
                # pays for it, the others are tried again.
                self._give_up(pending[:1], error, tell)
                pending = pending[1:]
                attempt += 1
                self._sessions.pop(key).close()
                self._restarts[key] = self._restarts.get(key, 0) + 1
                if self._restarts[key] > RESTARTS_MAX:
                    self._give_up(pending, error, tell)
                    return

    def _record(
        self, session: ServerSession, capture: Path, pending: list[PlannedRun], tell: "_Teller"
    ) -> None:
        """Run what is pending, taking off the list what is finished."""
        began_s = time.monotonic()
        recording = self.stages.open_recorder(session.server.pid, capture, self.recipe.collect)
        with recording as recorder:
            self._clock.attached(time.monotonic() - began_s)
            for route in session.routes.values():
                for process in route.processes:
                    recorder.add_peer(process.pid, process.role, process.name)
            while pending:
                run = pending[0]
                cell = self._cells[run.cell_id]
                tell.before(cell, run)
                why = session.why_not(cell)
                if why is not None:
                    self.store.fail([run.run_id], why)
                else:
                    began_s = time.monotonic()
                    try:
                        name = f"{CAPTURES}/{capture.name}"
                        outcome = session.run(cell, run.run_id, run.round, recorder, name)
                        self.store.finish(run.run_id, outcome)
                    except TlstaxError as error:
                        if error.exit_code in FATAL:
                            raise
                        if not session.is_alive:
                            raise session.died(error) from error
                        self.store.fail([run.run_id], _reason(error))
                        self.console.print(f"failed   {cell.label}: {_reason(error)}")
                    self._clock.ran(run.cell_id, time.monotonic() - began_s)
                pending.pop(0)
                tell.after()

    def _session(self, key: ServerKey, tell: "_Teller") -> ServerSession:
        """The server, started if it is not running."""
        if key in self._sessions and self._sessions[key].is_alive:
            self._sessions[key] = self._sessions.pop(key)  # the last one that had its turn
            return self._sessions[key]
        if key in self._sessions:
            self._sessions.pop(key).close()
        if len(self._sessions) >= SERVERS_MAX:  # the first one is that whose turn is longest ago
            self._sessions.pop(next(iter(self._sessions))).close()
        tell.starting(key)
        began_s = time.monotonic()
        cells = [cell for cell in self._cells.values() if cell.server_key == key]

        def say(line: str) -> None:
            self.console.print(f"{key.label:20} {line}", soft_wrap=True)

        session = ServerSession(key, self.recipe, cells, self.resources, say, dict(self._broken))
        session.open()
        self._sessions[key] = session
        self.store.add_facts("server", [key.label], session.facts)
        for name, route in session.routes.items():
            facts = dict(route.facts)
            if route.rtt_ns is not None:
                facts["rtt_ns"] = str(route.rtt_ns)
            for process in route.processes:  # by which the report knows whose CPU time it was
                facts[f"process {process.pid}"] = process.name
            self.store.add_facts("route", [key.server, key.key, key.encryption, name], facts)
        self._clock.started(time.monotonic() - began_s)
        return session

    def _capture_path(self, turn: int, key: ServerKey) -> Path:
        """A new file of this turn: a resumed or restarted one records into another."""
        attempt = 0
        while True:
            suffix = f"-{attempt}" if attempt else ""
            path = self.folder / CAPTURES / f"{turn:03}-{key.label}{suffix}.tlstax"
            if not path.exists():
                return path
            attempt += 1

    # ---- what cannot be run ----

    def _give_up(self, runs: Sequence[PlannedRun], error: TlstaxError, tell: "_Teller") -> None:
        if error.exit_code in FATAL:
            raise error
        self.store.fail([run.run_id for run in runs], _reason(error))
        for run in runs:
            self.console.print(f"failed   {self._cells[run.cell_id].label}: {_reason(error)}")
            tell.after()

    def _leave_out_skipped(self) -> None:
        for run in self.store.runs("planned"):
            cell = self._cells[run.cell_id]
            for skip in self.recipe.skips:
                if cell.fits(skip.where):
                    self.store.fail([run.run_id], skip.reason, "skipped")

    def _check_host(self) -> None:
        """What this host cannot do is told before anything starts, and is a row for each run."""
        runs = self.store.runs("planned")
        checks: dict[str, Callable[[], None]] = {}
        for run in runs:
            cell = self._cells[run.cell_id]
            way, driver = transport_of(self.recipe, cell), driver_of(self.recipe, cell)
            checks[cell.transport] = make_transport(way.kind, self.resources, way.options).check
            checks[cell.driver] = make_driver(driver.kind, driver.options).check
        for name, check in checks.items():
            try:
                check()
            except TlstaxError as error:
                self._broken[name] = f"{_reason(error)}. {error.do}"
                self.console.print(f"cannot   {name}: {self._broken[name]}", soft_wrap=True)
        for run in runs:
            cell = self._cells[run.cell_id]
            for name, part in (
                (cell.transport, transport_of(self.recipe, cell)),
                (cell.driver, driver_of(self.recipe, cell)),
            ):
                if name in self._broken:
                    state = "skipped" if part.optional else "failed"
                    self.store.fail([run.run_id], self._broken[name], state)
                    break

    def _announce(self, runs: Sequence[PlannedRun]) -> None:
        meta, recipe = self.store.meta(), self.recipe
        self.console.print(recipe.title or recipe.name, soft_wrap=True)
        self.console.print(
            f"matrix   {len(recipe.cells)} cells, {recipe.scale.rounds_count} rounds at scale "
            f"{recipe.scale.name}, seed {meta['seed']}"
        )
        self.console.print(f"results  {self.folder / NAME}")
        remaining = duration_text(self._clock.remaining_s())
        self.console.print(f"time     about {remaining} for the runs")


@dataclass
class _Teller:
    """The progress bar; drawn between runs only, so that it costs the measured machine nothing."""

    bar: Progress
    task: TaskID
    clock: Clock

    def before(self, cell: Cell, run: PlannedRun) -> None:
        text = f"{cell.label}, round {run.round + 1}"
        self._show(text if len(text) <= 44 else f"{text[:20]}…{text[-23:]}")

    def starting(self, key: ServerKey) -> None:
        self._show(f"starting {key.label}")

    def after(self) -> None:
        self.clock.run_done()
        self.bar.advance(self.task)

    def _show(self, text: str) -> None:
        remaining = f"{duration_text(self.clock.remaining_s())} left"
        self.bar.update(self.task, description=text, remaining=remaining, refresh=True)


def _reason(error: TlstaxError) -> str:
    """On one line: the end of a server's log has several."""
    return " | ".join(line.strip() for line in f"{error.what}: {error.why}".splitlines() if line)
