# SPDX-License-Identifier: GPL-2.0-only
"""An experiment from its recipe to its report.

Of kind `tax` it leaves one capture and its report. Of other kinds it leaves a directory that is
whole at any time: whatever ends tlstax, finished runs are kept, and `resume` does those that are
still planned.
"""

import datetime
import fcntl
import json
import platform
import random
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from tlstax import ExitCode, TlstaxError, __version__
from tlstax.certs.generate import write_private
from tlstax.collectors.capture.safe_console import SafeConsole
from tlstax.workloads.matrix.cells import ServerKey, baseline_of, plan
from tlstax.workloads.matrix.duration import Clock, duration_text
from tlstax.workloads.matrix.experiment import Experiment
from tlstax.workloads.matrix.recipe import Recipe
from tlstax.workloads.matrix.recipe_file import load_recipe
from tlstax.workloads.matrix.store import NAME, CellRow, Store, where_text
from tlstax.workloads.output import stamp, writing_to
from tlstax.workloads.resources import Resources
from tlstax.workloads.results import NullRecorder
from tlstax.workloads.stages import Stages

RECIPE: Final = "recipe.toml"
CAPTURES: Final = "captures"
REPORT_S: Final = 10  # that naming functions, the report and its page take
NS_PER_US: Final = 1000


# ---- one capture and its report ----


def measure(recipe: Recipe, output: Path, stages: Stages) -> Path:
    """Record a recipe of kind `tax` into a new capture below `output`; the page of its report.

    TlstaxError at the first run that fails or does something else than it was asked to.
    """
    console, started_s = SafeConsole(sys.stdout), time.monotonic()
    with writing_to(output):
        output.mkdir(parents=True, exist_ok=True)
    capture = output / f"{recipe.name}-{stamp()}.tlstax"
    with Store.in_memory() as store:
        _drive(recipe, store, stages, console, capture)
        if recipe.scale.starts_count > 1:
            parts = [output / name for name in store.captures(recipe.cells[0].server)]
            stages.join_captures(parts, capture)
            for part in parts:
                part.unlink()
    console.print(f"recorded {capture}")
    report = stages.render_report(capture, output)
    console.print(f"{recipe.name:8} took {duration_text(time.monotonic() - started_s)} in all")
    return report


def drive_only(recipe: Recipe, stages: Stages) -> None:
    """Run a recipe of kind `tax` without a recorder and print what the clients saw."""
    console = SafeConsole(sys.stdout)

    @contextmanager
    def open_none(pid: int, capture: Path, collect: object = ()) -> Iterator[NullRecorder]:
        yield NullRecorder()

    with Store.in_memory() as store:
        _drive(recipe, store, replace(stages, open_recorder=open_none), console, Path("none"))
        for scenario, arm, number, operation_count, mean_ns, p95_ns in store.figures():
            console.print(
                f"{scenario:14}{arm:10} round {number + 1}{operation_count:10} operations"
                f"{mean_ns / NS_PER_US:10.1f} us mean{p95_ns / NS_PER_US:10.1f} us p95",
                soft_wrap=True,
            )


def _drive(recipe: Recipe, store: Store, stages: Stages, console: Console, capture: Path) -> None:
    """Every run into one capture, or one for each start of the server."""
    _write_plan(recipe, store, None, {})
    expected_s = Clock(recipe, store.runs("planned"), store.cells()).remaining_s() + REPORT_S
    names = ", ".join(dict.fromkeys(cell.scenario for cell in recipe.cells))
    console.print(f"loads    {names}; plaintext and TLS; {_rounds_text(recipe)}")
    console.print(f"time     about {duration_text(expected_s)} in all")
    with Resources() as resources:
        Experiment(
            recipe,
            store,
            stages,
            console,
            resources,
            capture.parent,
            partial(_start_capture, capture, recipe.scale.starts_count),
            strict=True,
        ).run()


# ---- a directory of results ----


def prepare(
    path: Path,
    scale: str | None,
    output: Path,
    seed: int | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Path:
    """A new directory below `output` with everything planned; TlstaxError (IO) if there is none.

    Without a scale it is the smallest that the recipe has. `changes` are arguments of
    Recipe.with_changes.
    """
    recipe = load_recipe(path, scale).with_changes(**(changes or {}))
    if seed is None and recipe.is_shuffled:
        seed = random.SystemRandom().randrange(1 << 31)
    folder = output / f"{recipe.name}-{recipe.scale.name}-{stamp()}"
    with writing_to(output):
        folder.mkdir(parents=True)
        (folder / CAPTURES).mkdir(mode=0o700)
        write_private(folder / RECIPE, recipe.text.encode())
    with Store.create(folder) as store:
        _write_plan(recipe, store, seed, changes or {})
    return folder


def _write_plan(recipe: Recipe, store: Store, seed: int | None, changes: Mapping[str, Any]) -> None:
    rows = []
    for cell in recipe.cells:
        scenario = recipe.scenario_of(cell)
        baseline = baseline_of(cell, recipe.cells, recipe.baseline)
        rows.append(CellRow(cell, scenario.operation, scenario.connects, baseline))
    scale = recipe.scale
    order = scale.rounds_count, recipe.rounds_in_turn, seed, scale.starts_count
    runs = plan(recipe.cells, *order)
    meta = {
        "kind": recipe.kind,
        "recipe": recipe.name,
        "title": recipe.title,
        "scale": scale.name,
        "seed": "none" if seed is None else str(seed),
        "starts": str(scale.starts_count),
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

    TlstaxError: FAILED at the end if runs of a matrix failed, or no server of a comparison could
    be measured; IO at once when the disk is full.
    """
    with Store.open(folder) as store, _only_runner(folder):
        meta = store.meta()
        changes = json.loads(meta["changes"])
        if proxysql:
            changes["proxysql"] = proxysql
            store.set_meta("changes", json.dumps(changes))
        recipe = load_recipe(folder / RECIPE, meta["scale"]).with_changes(**changes)
        if retry:
            store.plan_again()
        console = SafeConsole(sys.stdout)
        _announce(recipe, store, folder, console)
        try:
            with Resources() as resources:
                path = partial(_turn_capture, folder)
                Experiment(recipe, store, stages, console, resources, folder, path).run()
        except KeyboardInterrupt:
            console.print(f"interrupted; go on with: tlstax lab resume {folder}")
            raise
        if recipe.kind == "libraries":
            _join_captures(recipe, store, folder, stages)
        reasons, counts = store.reasons(), store.counts()
    return _report(recipe, folder, stages, reasons, counts)


def _announce(recipe: Recipe, store: Store, folder: Path, console: Console) -> None:
    meta = store.meta()
    console.print(recipe.title or recipe.name, soft_wrap=True)
    console.print(
        f"cells    {len(recipe.cells)}, {_rounds_text(recipe)} at scale "
        f"{recipe.scale.name}, seed {meta['seed']}"
    )
    console.print(f"results  {folder / NAME}", soft_wrap=True)


def _rounds_text(recipe: Recipe) -> str:
    starts = recipe.scale.starts_count
    of_starts = f" of each of {starts} server starts" if starts > 1 else ""
    return f"{recipe.scale.rounds_count} rounds{of_starts}"


def _report(
    recipe: Recipe,
    folder: Path,
    stages: Stages,
    reasons: list[tuple[str, str, int]],
    counts: Mapping[str, int],
) -> Path:
    failed = counts.get("failed", 0)
    if recipe.kind == "libraries" and not counts.get("done"):
        raise TlstaxError(
            "no server could be measured",
            f"{reasons[0][0]}: {reasons[0][1]}" if reasons else "no run was planned",
            "Fix this first; `tlstax doctor` shows what this host lacks",
            ExitCode.FAILED,
        )
    page = stages.render_folder(folder)
    if failed and recipe.kind == "matrix":
        raise TlstaxError(
            f"{failed} of {sum(counts.values())} runs failed",
            f"{reasons[0][0]}: {reasons[0][1]}",
            f"`tlstax lab resume --retry {folder}` tries them again; the others are in {page}",
            ExitCode.FAILED,
        )
    return page


def _join_captures(recipe: Recipe, store: Store, folder: Path, stages: Stages) -> None:
    """One capture for each server, of all of its turns."""
    for server in dict.fromkeys(cell.server for cell in recipe.cells):
        parts = store.captures(server)
        if not any(part.startswith(CAPTURES) for part in parts):
            continue
        joined = _new_capture(folder, server)
        stages.join_captures([folder / part for part in parts], joined)
        store.replace_captures(parts, joined.name)
        for part in parts:
            (folder / part).unlink()


def _start_capture(capture: Path, starts_count: int, turn: int, key: ServerKey) -> Path:
    """The capture; of several starts the recording of one, next to what they are joined into."""
    if starts_count == 1:
        return capture
    return capture.with_name(f"{capture.stem}-start-{turn}{capture.suffix}")


def _turn_capture(folder: Path, turn: int, key: ServerKey) -> Path:
    return _new_capture(folder / CAPTURES, f"{turn:03}-{key.label}")


def _new_capture(folder: Path, stem: str) -> Path:
    """A new file: a turn that is resumed or whose server is restarted records into another."""
    attempt = 0
    while True:
        path = folder / f"{stem}{f'-{attempt}' if attempt else ''}.tlstax"
        if not path.exists():
            return path
        attempt += 1


@contextmanager
def _only_runner(folder: Path) -> Iterator[None]:
    """Nobody else runs this experiment meanwhile; TlstaxError (USAGE) if somebody does."""
    with (folder / RECIPE).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise TlstaxError(
                f"cannot resume {folder}",
                "another tlstax process is using it",
                "Wait until it ends, or stop it",
                ExitCode.USAGE,
            ) from error
        yield
