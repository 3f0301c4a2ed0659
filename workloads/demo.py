# SPDX-License-Identifier: GPL-2.0-only
"""The demo from certificates to report, with a progress bar on the way."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from tlstax.workloads.drivers.sysbench import Sysbench
from tlstax.workloads.experiment import WARM_UP_S, Experiment, NullRecorder
from tlstax.workloads.experiment import Progress as Done
from tlstax.workloads.output import stamp, writing_to
from tlstax.workloads.recipe import Recipe
from tlstax.workloads.results import ARMS, OpenRecorder, Recorder, RenderReport, RunResult
from tlstax.workloads.servers.lab_server import open_private
from tlstax.workloads.servers.request import ServerRequest

NS_PER_US = 1000
BESIDE_S = 15  # server, data, attaching, report
BESIDE_RUN_S = 1  # attaching to its driver, waiting for quiet, naming the driver's functions


def measure(
    recipe: Recipe,
    output: Path,
    open_recorder: OpenRecorder,
    render_report: RenderReport,
    program: Path | None = None,
) -> Path:
    """Record the recipe into a new capture below `output` and render it; the report's path.

    `program` is another server than this host's MariaDB.
    """
    console = Console()
    started_s = time.monotonic()
    capture = new_capture_path(output)
    announce(recipe, console)
    with ready_experiment(recipe, console, program) as experiment:
        with open_recorder(experiment.server.pid, capture) as recorder:
            drive(experiment, recorder, console)
        console.print(f"recorded {capture}")
    report = render_report(capture, output)
    console.print(f"demo     took {duration(time.monotonic() - started_s)} in all")
    return report


def drive_only(recipe: Recipe, program: Path | None = None) -> list[RunResult]:
    """Run the recipe without a recorder and print what the clients saw."""
    console = Console()
    announce(recipe, console)
    with ready_experiment(recipe, console, program) as experiment:
        results = drive(experiment, NullRecorder(), console)
    for result in results:
        console.print(
            f"{result.scenario:14}{result.arm:10} round {result.round + 1}"
            f"{result.operation_count:10} operations"
            f"{result.client_mean_ns / NS_PER_US:10.1f} us mean"
            f"{result.client_p95_ns / NS_PER_US:10.1f} us p95",
            soft_wrap=True,
        )
    return results


def announce(recipe: Recipe, console: Console) -> None:
    """Say what is to come and how long it will take."""
    run_count = recipe.rounds_count * len(recipe.loads) * len(ARMS)
    total_s = recipe.driving_s + len(recipe.loads) * len(ARMS) * WARM_UP_S
    total_s += BESIDE_S + run_count * BESIDE_RUN_S
    names = ", ".join(load.scenario.name for load in recipe.loads)
    console.print(f"loads    {names}; plaintext and TLS; {recipe.rounds_count} rounds")
    console.print(f"time     about {duration(total_s)} in all")


def new_capture_path(output: Path) -> Path:
    """A file below `output` (made if missing) that does not exist yet, named by the time."""
    with writing_to(output):
        output.mkdir(parents=True, exist_ok=True)
    return output / f"demo-{stamp()}.tlstax"


@contextmanager
def ready_experiment(
    recipe: Recipe, console: Console, program: Path | None = None
) -> Iterator[Experiment]:
    """A server with its data, warm and proven in both arms; nothing of it stays afterwards."""
    request = ServerRequest(key=recipe.key, tls=recipe.tls)
    with open_private(request, program) as server, server.open_status() as status:
        name = server.program.name
        console.print(f"server   {name} {server.pid}, 127.0.0.1:{server.port}, {recipe.key}")
        driver = Sysbench.of_server(server, table_rows=recipe.table_rows)
        driver.prepare()
        experiment = Experiment(server, driver, status, recipe.loads, recipe.rounds_count)
        console.print("warm-up  one short run of each load and arm")
        experiment.warm_up()
        yield experiment


def drive(experiment: Experiment, recorder: Recorder, console: Console) -> list[RunResult]:
    """Every run, with a bar whose remaining time comes from what runs really took."""
    columns = (
        TextColumn("{task.description:34}"),
        BarColumn(bar_width=30),
        TextColumn("{task.completed:.0f}/{task.total:.0f} runs"),
        TextColumn("{task.fields[remaining]}"),
    )
    started_s = time.monotonic()
    estimate_s = experiment.estimate_s()
    console.print(f"runs     about {duration(estimate_s)}")
    with Progress(*columns, console=console, auto_refresh=False) as bar:
        task = bar.add_task("", total=1, remaining="")
        results = list(experiment.run(recorder, lambda done: _show(bar, task, done)))
    took_s = time.monotonic() - started_s
    console.print(f"runs     took {duration(took_s)}, expected {duration(estimate_s)}")
    return results


def _show(bar: Progress, task: TaskID, done: Done) -> None:
    """Redraw; only between runs, so that drawing costs the measured machine nothing."""
    bar.update(
        task,
        description=done.run.label if done.run else "done",
        completed=done.done_count,
        total=done.total_count,
        remaining=f"{duration(done.remaining_s)} left" if done.run else "",
        refresh=True,
    )


def duration(seconds: float) -> str:
    """Minutes and seconds for people."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
