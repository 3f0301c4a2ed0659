# SPDX-License-Identifier: GPL-2.0-only
"""The cells of a matrix, and the order in which their runs are done."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from tlstax.workloads.results import Arm

T = TypeVar("T")

OFF = "off"  # of `tls` and of `encryption`
SERVERS_MAX = 12  # that run at the same time; with more of them, each starts again at its turn
DIMENSIONS = (
    *("server", "key", "encryption", "tls", "transport", "driver", "scenario", "threads", "rate"),
)
"""What a recipe gives a list for, under its plural; the first three belong to the server."""


@dataclass(frozen=True)
class ServerKey:
    """One running server."""

    server: str
    key: str
    encryption: str

    @property
    def label(self) -> str:
        """For people and file names."""
        at_rest = "" if self.encryption == OFF else f"-{self.encryption}"
        return f"{self.server}-{self.key.replace(':', '')}{at_rest}"


@dataclass(frozen=True)
class Cell:
    """One combination; all of its runs are alike."""

    server: str
    key: str
    encryption: str
    tls: str
    transport: str
    driver: str
    scenario: str
    threads: int
    rate: int = 0  # operations per second; 0: as fast as it can

    @property
    def server_key(self) -> ServerKey:
        """The server that it runs on."""
        return ServerKey(self.server, self.key, self.encryption)

    @property
    def arm(self) -> Arm:
        """What its connections must be."""
        return "plaintext" if self.tls == OFF else "tls"

    @property
    def load_label(self) -> str:
        """The load: everything but the server and TLS."""
        paced = f" at {self.rate}/s" if self.rate else ""
        return f"{self.transport} {self.driver} {self.threads}x{paced} {self.scenario}"

    @property
    def label(self) -> str:
        """Every dimension, for people."""
        return f"{self.server_key.label} {self.load_label}, TLS {self.tls}"

    @property
    def recorded_name(self) -> str:
        """Its scenario in the captures of a matrix; the same with `tls` off and on."""
        variant = f"{self.tls} " if self.tls not in (OFF, "on") else ""
        paced = f"{self.rate}/s " if self.rate else ""
        return f"{self.transport} {self.threads}x {paced}{variant}{self.scenario}"

    def at(self, dimension: str) -> str | int:
        """Its value in one dimension."""
        value: str | int = getattr(self, dimension)
        return value

    def fits(self, where: Mapping[str, tuple[str | int | float, ...]]) -> bool:
        """Whether it has one of the allowed values in each of these dimensions."""
        return all(self.at(name) in allowed for name, allowed in where.items())

    def moved(self, to: Mapping[str, str | int | float]) -> "Cell":
        """The cell with these values, and otherwise like this one."""
        return replace(self, **to)  # type: ignore[arg-type]


@dataclass(frozen=True)
class PlannedRun:
    """One run of one cell."""

    run_id: int  # from 1, over the whole matrix
    cell_id: int  # from 1
    round: int
    turn: int  # runs with the same number share a recording
    server_start: int = 0  # runs with the same number share a process of their server


def plan(
    cells: Sequence[Cell],
    rounds_count: int,
    rounds_in_turn: int,
    seed: int | None,
    starts_count: int = 1,
) -> list[PlannedRun]:
    """Every run in its order, which depends on the seed and nothing else.

    There are `rounds_count` rounds for each of `starts_count` starts of the servers. If more
    servers take part than run at the same time, a server starts again for each of its turns.

    A turn is one server's part of `rounds_in_turn` rounds. All cells of a round come before any of
    the next. Servers are shuffled for each turn and a server's cells for each round, so that no
    drift of the machine falls on one cell alone; without a seed, both are reversed every other
    time instead.
    """
    generator = None if seed is None else random.Random(seed)
    servers = list(dict.fromkeys(cell.server_key for cell in cells))
    order: list[tuple[int, int, int, int]] = []
    turn = 0
    firsts = range(0, rounds_count, rounds_in_turn)
    groups = [(start, first) for start in range(starts_count) for first in firsts]
    for index, (planned_start, first) in enumerate(groups):
        start = planned_start if len(servers) <= SERVERS_MAX else index
        before = planned_start * rounds_count
        for key in _arranged(servers, index, generator):
            mine = [number for number, cell in enumerate(cells, start=1) if cell.server_key == key]
            for number in range(first, min(first + rounds_in_turn, rounds_count)):
                round_number = before + number
                round_cells = _arranged(mine, round_number, generator)
                order += [(cell_id, round_number, turn, start) for cell_id in round_cells]
            turn += 1
    return [PlannedRun(run_id, *run) for run_id, run in enumerate(order, start=1)]


def _arranged(items: list[T], number: int, generator: random.Random | None) -> list[T]:
    """Shuffled in place; without a generator, reversed where the number is odd."""
    if generator is None:
        return items[::-1] if number % 2 else items
    generator.shuffle(items)
    return items


def baseline_of(
    cell: Cell, cells: Iterable[Cell], baseline: Mapping[str, str | int | float]
) -> Cell | None:
    """The cell that this one is compared with; None if it is a baseline itself, or has none.

    A cell whose baseline is not part of the recipe is compared with nothing.
    """
    moved = cell.moved(baseline)
    return moved if moved != cell and moved in set(cells) else None
