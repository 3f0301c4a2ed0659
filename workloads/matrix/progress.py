# SPDX-License-Identifier: GPL-2.0-only
"""The progress bar of an experiment, and what is left of it.

It is drawn between runs only, so that drawing costs the measured machine nothing.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from tlstax.workloads.matrix.cells import Cell, PlannedRun, ServerKey
from tlstax.workloads.matrix.duration import Clock, duration_text
from tlstax.workloads.matrix.recipe import Recipe

WIDTH = 44


class RunBar:
    """The bar."""

    def __init__(self, bar: Progress, task: TaskID, recipe: Recipe, clock: Clock) -> None:
        self._bar, self._task, self._recipe, self._clock = bar, task, recipe, clock

    def begin(self, cell: Cell, run: PlannedRun) -> None:
        """A run is about to begin."""
        short = f"{cell.scenario} {cell.arm}"
        text = f"{short if self._recipe.kind == 'tax' else cell.label}, round {run.round + 1}"
        self._show(text if len(text) <= WIDTH else f"{text[:20]}…{text[-23:]}")

    def starting(self, key: ServerKey) -> None:
        """A server is about to start."""
        self._show(f"starting {key.server if self._recipe.kind == 'tax' else key.label}")

    def end(self) -> None:
        """A run is over, however it ended."""
        self._clock.run_ended()
        self._bar.advance(self._task)

    def end_all(self) -> None:
        """Nothing is left."""
        self._bar.update(self._task, description="done", remaining="", refresh=True)

    def _show(self, text: str) -> None:
        remaining = f"{duration_text(self._clock.remaining_s())} left"
        self._bar.update(self._task, description=text, remaining=remaining, refresh=True)


@contextmanager
def run_bar(
    console: Console, recipe: Recipe, clock: Clock, runs: Sequence[PlannedRun]
) -> Iterator[RunBar]:
    """A bar for these runs."""
    columns = (
        TextColumn(f"{{task.description:{WIDTH}}}"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed:.0f}/{task.total:.0f} runs"),
        TextColumn("{task.fields[remaining]}"),
    )
    with Progress(*columns, console=console, auto_refresh=False) as bar:
        task = bar.add_task("", total=max(1, len(runs)), remaining="")
        yield RunBar(bar, task, recipe, clock)
