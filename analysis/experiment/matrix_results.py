# SPDX-License-Identifier: GPL-2.0-only
"""What stands in the results.sqlite of a matrix."""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tlstax import ExitCode, TlstaxError

NAME: Final = "results.sqlite"
APPLICATION_ID: Final = 0x746C6D78
VERSIONS: Final = (2, 3)
"""Version 2 has no `run.server_start`: its rounds are of one start."""
DIMENSIONS: Final = (
    *("server", "key", "encryption", "tls", "transport", "driver", "scenario", "threads", "rate"),
)
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Published:
    """A figure of somebody else."""

    source: str
    setup: str
    quantity: str
    where: Mapping[str, list[Any]]
    value: float


@dataclass(frozen=True)
class Results:
    """All of it; rows are as the tables have them."""

    folder: Path
    meta: Mapping[str, str]
    cells: Mapping[int, Row]
    runs: Mapping[int, list[Row]]  # by cell, done ones, in the order of rounds
    undone: list[Row]  # label, server, state, reason, run_count
    published: list[Published]
    servers: Mapping[str, dict[str, str]]
    routes: Mapping[str, dict[str, str]]
    processes_between: Mapping[tuple[str, str, str, str], dict[int, str]]  # pid -> name
    samples: Mapping[int, list[int]]  # by run
    histograms: Mapping[int, list[tuple[int, int]]]

    @property
    def kind(self) -> str:
        """Of the recipe; results of earlier versions are all of a matrix."""
        return self.meta.get("kind", "matrix")

    def process_names(self, cell: Row) -> dict[int, str]:
        """The processes on the way of a cell, by their pids."""
        return self.processes_between.get(
            (cell["server"], cell["key"], cell["encryption"], cell["transport"]), {}
        )

    def place(self, cell_id: int) -> dict[str, str | int]:
        """Where a cell lies."""
        return {name: self.cells[cell_id][name] for name in DIMENSIONS}


def read(folder: Path) -> Results:
    """The results below a directory; TlstaxError (CAPTURE) if there are none."""
    path = folder / NAME
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            (found,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if found != APPLICATION_ID or version not in VERSIONS:
                raise sqlite3.DatabaseError("it was not written by this version of tlstax")
            return _read(folder, connection)
    except sqlite3.Error as error:
        raise TlstaxError(
            f"cannot read {path}",
            "an older version of tlstax wrote this directory"
            if (folder / "facts.json").exists()
            else str(error),
            "Name the directory that `tlstax lab run` printed",
            ExitCode.CAPTURE,
        ) from error


def _read(folder: Path, connection: sqlite3.Connection) -> Results:
    runs: dict[int, list[Row]] = defaultdict(list)
    for row in connection.execute("SELECT * FROM run WHERE state = 'done' ORDER BY round, run_id"):
        runs[row["cell_id"]].append({"server_start": 0, **dict(row)})
    samples: dict[int, list[int]] = defaultdict(list)
    for row in connection.execute(
        "SELECT run_id, latency_ns FROM latency ORDER BY run_id, ordinal"
    ):
        samples[row[0]].append(row[1])
    histograms: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for row in connection.execute("SELECT * FROM histogram ORDER BY run_id, upper_ns"):
        histograms[row[0]].append((row[1], row[2]))
    servers: dict[str, dict[str, str]] = defaultdict(dict)
    for row in connection.execute("SELECT * FROM server"):
        servers[row[0]][row[1]] = row[2]
    routes: dict[str, dict[str, str]] = defaultdict(dict)
    processes_between: dict[tuple[str, str, str, str], dict[int, str]] = defaultdict(dict)
    for row in connection.execute("SELECT * FROM route"):
        place = (row["server"], row["key"], row["encryption"], row["transport"])
        if row["name"].startswith("process "):
            processes_between[place][int(row["name"].removeprefix("process "))] = row["value"]
        else:
            routes[" ".join(part for part in place if part != "off")][row["name"]] = row["value"]
    return Results(
        folder,
        dict(list(row) for row in connection.execute("SELECT key, value FROM meta")),
        {row["cell_id"]: dict(row) for row in connection.execute("SELECT * FROM cell")},
        runs,
        [
            dict(row)
            for row in connection.execute(
                "SELECT label, server, state, reason, count(*) AS run_count FROM run"
                " JOIN cell USING (cell_id) WHERE state <> 'done'"
                " GROUP BY cell_id, state, reason ORDER BY cell_id"
            )
        ],
        [
            Published(row[0], row[1], row[2], json.loads(row[3]), row[4])
            for row in connection.execute("SELECT * FROM published")
        ],
        servers,
        routes,
        processes_between,
        samples,
        histograms,
    )
