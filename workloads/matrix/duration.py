# SPDX-License-Identifier: GPL-2.0-only
"""How long an experiment takes: estimated before it runs, then from what runs took."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tlstax.workloads.drivers import DRIVERS
from tlstax.workloads.matrix.cells import Cell, PlannedRun
from tlstax.workloads.matrix.recipe import Recipe
from tlstax.workloads.transports.linked import WAN_RTT_MS

# First guesses, driving not included.
START_S, WARM_UP_S, ATTACH_S, RUN_OVERHEAD_S = 8.0, 1.2, 2.0, 0.8
# CPU time of one operation of a run that is counted and not timed, of client and server together.
QUERY_S, PLAIN_CONNECT_S, TLS_CONNECT_S = 0.0005, 0.001, 0.01
SLOW_CONNECT_S: Final[Mapping[str, float]] = {"connector-python": 0.06}  # docs/drivers.md
ROUND_TRIPS = 7  # of a connect and a query, with TLS 1.2


def run_s(recipe: Recipe, cell: Cell) -> float:
    """How long one run of a cell drives load; an estimate if it is bounded by operations."""
    length = recipe.length_of(cell)
    if length.operation_count is None:
        return float(length.seconds)
    driver, transport = recipe.driver_of(cell).kind, recipe.transport_of(cell)
    scenario = DRIVERS[driver].scenario(cell.scenario)
    cpu_s = QUERY_S
    if scenario is not None and scenario.connects:
        tls_s = SLOW_CONNECT_S.get(driver, TLS_CONNECT_S)
        cpu_s = PLAIN_CONNECT_S if cell.arm == "plaintext" else tls_s
    rtt_ms = float(transport.options.get("rtt_ms", WAN_RTT_MS if transport.kind == "wan" else 0.0))
    waiting_s = ROUND_TRIPS * rtt_ms / 1000
    each_s = max((cpu_s + waiting_s) / cell.threads, cpu_s / (os.cpu_count() or 1))
    return length.operation_count * max(each_s, 1.0 / cell.rate if cell.rate else 0.0)


class Clock:
    """The time that remains of an experiment."""

    def __init__(
        self, recipe: Recipe, runs: Sequence[PlannedRun], cells: Mapping[int, Cell]
    ) -> None:
        """Of the runs that are still to be done; `cells` by their ids."""
        self._run_s = {run.cell_id: run_s(recipe, cells[run.cell_id]) for run in runs}
        self._estimated = {
            cell_id
            for cell_id in self._run_s
            if recipe.length_of(cells[cell_id]).operation_count is not None
        }
        self._left = [run.cell_id for run in runs]
        self._turns_left = len({run.turn for run in runs})
        wanted = [cells[cell_id] for cell_id in self._run_s]
        servers = {cell.server_key for cell in wanted}
        self._starts_left = len({(cells[run.cell_id].server_key, run.server_start) for run in runs})
        self._start_s = START_S + len(_warm_ups(wanted)) / max(1, len(servers)) * WARM_UP_S
        self._attach_s, self._overhead_s = ATTACH_S, RUN_OVERHEAD_S

    def ran(self, cell_id: int, seconds: float) -> None:
        """A run of this cell took `seconds`, overhead included."""
        if cell_id in self._estimated:
            self._run_s[cell_id] = max(0.0, seconds - self._overhead_s)
        else:
            self._overhead_s += (seconds - self._run_s[cell_id] - self._overhead_s) / 4

    def attached(self, seconds: float) -> None:
        """Attaching the recorder at the beginning of a turn took `seconds`."""
        self._attach_s += (seconds - self._attach_s) / 2
        self._turns_left = max(0, self._turns_left - 1)

    def started(self, seconds: float) -> None:
        """A server took `seconds` to start and warm up."""
        self._start_s += (seconds - self._start_s) / 2
        self._starts_left = max(0, self._starts_left - 1)

    def run_ended(self) -> None:
        """A run has ended, in whatever way."""
        if self._left:
            self._left.pop(0)

    def remaining_s(self) -> float:
        """The present estimate."""
        return (
            sum(self._run_s[cell_id] + self._overhead_s for cell_id in self._left)
            + self._turns_left * self._attach_s
            + self._starts_left * self._start_s
        )


def _warm_ups(cells: Iterable[Cell]) -> set[tuple[object, ...]]:
    """What is tried once before a server's first run."""
    return {
        (cell.server_key, cell.tls, cell.transport, cell.driver, cell.scenario) for cell in cells
    }


def duration_text(seconds: float) -> str:
    """For people."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 10:
        return f"{minutes} min {rest} s" if minutes else f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
