# SPDX-License-Identifier: GPL-2.0-only
"""The results of an experiment: one SQLite file, complete at any time.

Every run is a row from the beginning (state `planned`) and is `done` or `failed`, with its reason,
in one transaction; if tlstax is killed, finished rows stay and `tlstax lab resume` does the rest.
It may be queried: `cell` says what was combined, `run` what came out of it.
"""

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Final, Self

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.schema import Run
from tlstax.workloads.drivers.model import DriveResult
from tlstax.workloads.matrix.cells import Cell, PlannedRun

NAME: Final = "results.sqlite"
APPLICATION_ID: Final = 0x746C6D78  # "tlmx"
VERSION: Final = 3
SAMPLES_MAX: Final = 2000  # latencies of single operations that a run keeps here
_SCHEMA: Final = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE cell (
  cell_id INTEGER PRIMARY KEY, server TEXT, key TEXT, encryption TEXT, tls TEXT, transport TEXT,
  driver TEXT, scenario TEXT, threads INTEGER, rate INTEGER,
  arm TEXT, label TEXT, operation TEXT, connects INTEGER,
  baseline_id INTEGER REFERENCES cell -- what it is compared with
);
CREATE TABLE run (
  run_id INTEGER PRIMARY KEY, cell_id INTEGER NOT NULL REFERENCES cell, round INTEGER NOT NULL,
  turn INTEGER NOT NULL, server_start INTEGER NOT NULL, -- of the server, from 0
  state TEXT NOT NULL DEFAULT 'planned' CHECK (state IN ('planned', 'done', 'failed', 'skipped')),
  reason TEXT NOT NULL DEFAULT '',
  capture TEXT, start_ns INTEGER, end_ns INTEGER, operations_count INTEGER, elapsed_ns INTEGER,
  queries_count INTEGER, connections_count INTEGER, errors_count INTEGER,
  mean_ns INTEGER, p95_ns INTEGER, max_ns INTEGER,
  client_cpu_ns INTEGER, reused_count INTEGER, tls_version TEXT, tls_cipher TEXT,
  carried_bytes INTEGER, proof TEXT
);
CREATE INDEX run_of_cell ON run (cell_id);
CREATE TABLE latency ( -- single operations in the order they ended, thinned out
  run_id INTEGER NOT NULL REFERENCES run, ordinal INTEGER NOT NULL, latency_ns INTEGER NOT NULL,
  PRIMARY KEY (run_id, ordinal)
) WITHOUT ROWID;
CREATE TABLE histogram ( -- of clients that do not report single operations
  run_id INTEGER NOT NULL REFERENCES run, upper_ns INTEGER NOT NULL, count INTEGER NOT NULL,
  PRIMARY KEY (run_id, upper_ns)
) WITHOUT ROWID;
CREATE TABLE route ( -- facts about a transport, for each server
  server TEXT NOT NULL, key TEXT NOT NULL, encryption TEXT NOT NULL, transport TEXT NOT NULL,
  name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (server, key, encryption, transport, name)
) WITHOUT ROWID;
CREATE TABLE server ( -- what was started
  server TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (server, name)
) WITHOUT ROWID;
CREATE TABLE published (
  source TEXT NOT NULL, setup TEXT NOT NULL, quantity TEXT NOT NULL, "where" TEXT NOT NULL,
  value REAL NOT NULL, sd REAL
);
"""


@dataclass(frozen=True)
class CellRow:
    """One cell as it is stored, with what follows from its dimensions."""

    cell: Cell
    operation: str
    connects: bool
    baseline: Cell | None


@dataclass(frozen=True)
class Outcome:
    """A run that is done and proven."""

    row: Run  # as its capture has it
    driven: DriveResult
    tls_version: str
    tls_cipher: str
    carried_bytes: int | None


class Store:
    """The file. A context manager that closes it."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        """Of an open connection; see `create` and `open`."""
        self._connection, self.path = connection, path

    @classmethod
    def create(cls, folder: Path) -> Self:
        """A new file, 0600 from its first moment."""
        path = folder / NAME
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        return cls._with_tables(path)

    @classmethod
    def in_memory(cls) -> Self:
        """One in memory, for an experiment whose result is a capture alone."""
        return cls._with_tables(Path(":memory:"))

    @classmethod
    def _with_tables(cls, path: Path) -> Self:
        store = cls(sqlite3.connect(path, isolation_level=None), path)
        with store.transaction() as connection:
            for statement in _SCHEMA.split(";\n"):
                if statement.strip():
                    connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        return store

    @classmethod
    def open(cls, folder: Path) -> Self:
        """An existing one; TlstaxError (CAPTURE) if tlstax did not write it."""
        path = folder / NAME
        if not path.is_file():
            raise _no_results(folder, f"it holds no {NAME}")
        connection = sqlite3.connect(path, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = FULL")
            (found,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
        except sqlite3.DatabaseError as error:
            connection.close()
            raise _no_results(folder, str(error)) from error
        if (found, version) != (APPLICATION_ID, VERSION):
            connection.close()
            raise _no_results(folder, f"{NAME} was not written by this version of tlstax")
        return cls(connection, path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing; TlstaxError (IO) when the disk is full."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if self._connection.in_transaction:
                self._connection.rollback()
            raise TlstaxError(
                f"cannot write {self.path}",
                str(error),
                "Free some space, then continue with `tlstax lab resume`; finished runs are kept",
                ExitCode.IO,
            ) from error

    # ---- the plan ----

    def write_plan(
        self, meta: Mapping[str, str], rows: Sequence[CellRow], runs: Sequence[PlannedRun]
    ) -> None:
        """Everything that is to be done."""
        ids = {row.cell: number for number, row in enumerate(rows, start=1)}
        with self.transaction() as connection:
            connection.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
            for row in rows:
                cell = row.cell
                dimensions = [getattr(cell, field.name) for field in fields(cell)]
                facts = [cell.arm, cell.label, row.operation, row.connects]
                baseline = ids[row.baseline] if row.baseline else None
                values = [ids[cell], *dimensions, *facts, baseline]
                connection.execute(f"INSERT INTO cell VALUES ({_marks(values)})", values)
            connection.executemany(
                "INSERT INTO run (run_id, cell_id, round, turn, server_start)"
                " VALUES (?, ?, ?, ?, ?)",
                [astuple(run) for run in runs],
            )

    def write_published(self, rows: Sequence[tuple[object, ...]]) -> None:
        """(source, setup, quantity, where as JSON, value, sd)."""
        with self.transaction() as connection:
            connection.executemany("INSERT INTO published VALUES (?, ?, ?, ?, ?, ?)", rows)

    def meta(self) -> dict[str, str]:
        """Facts about the whole."""
        return dict(self._connection.execute("SELECT key, value FROM meta"))

    def cells(self) -> dict[int, Cell]:
        """The cells by their ids."""
        names = [field.name for field in fields(Cell)]
        rows = self._connection.execute(f"SELECT cell_id, {', '.join(names)} FROM cell")
        return {row[0]: Cell(*row[1:]) for row in rows}

    def runs(self, *states: str) -> list[PlannedRun]:
        """Runs in these states, in the order in which they are to be done."""
        rows = self._connection.execute(
            "SELECT run_id, cell_id, round, turn, server_start FROM run"
            f" WHERE state IN ({_marks(states)}) ORDER BY run_id",
            states,
        )
        return [PlannedRun(*row) for row in rows]

    def counts(self) -> dict[str, int]:
        """How many runs there are of each state."""
        return dict(self._connection.execute("SELECT state, count(*) FROM run GROUP BY state"))

    def reasons(self) -> list[tuple[str, str, int]]:
        """(cell, why, number of runs) of all that failed or was skipped."""
        return self._connection.execute(
            "SELECT label, reason, count(*) FROM run JOIN cell USING (cell_id)"
            " WHERE state IN ('failed', 'skipped') GROUP BY cell_id, reason ORDER BY cell_id"
        ).fetchall()

    # ---- what comes out ----

    def finish(self, run_id: int, capture: str, outcome: Outcome) -> None:
        """A run is done, and `capture` has its rows."""
        row, driven = outcome.row, outcome.driven
        values = {
            "state": "done",
            "reason": "",
            "capture": capture,
            "start_ns": row.start_ns,
            "end_ns": row.end_ns,
            "operations_count": row.operation_count,
            "elapsed_ns": driven.elapsed_ns,
            "queries_count": driven.query_count,
            "connections_count": row.connection_count,
            "errors_count": driven.error_count,
            "mean_ns": row.client_mean_ns,
            "p95_ns": row.client_p95_ns,
            "max_ns": row.client_max_ns,
            "client_cpu_ns": row.client_cpu_ns,
            "reused_count": driven.reused_count,
            "tls_version": outcome.tls_version,
            "tls_cipher": outcome.tls_cipher,
            "carried_bytes": outcome.carried_bytes,
            "proof": row.proof,
        }
        assignments = ", ".join(f"{name} = ?" for name in values)
        samples = driven.latencies.samples_ns
        kept = samples[:: -(-len(samples) // SAMPLES_MAX)] if samples else ()
        with self.transaction() as connection:
            connection.execute(
                f"UPDATE run SET {assignments} WHERE run_id = ?", [*values.values(), run_id]
            )
            connection.executemany(
                "INSERT OR REPLACE INTO latency VALUES (?, ?, ?)",
                [(run_id, ordinal, value) for ordinal, value in enumerate(kept)],
            )
            connection.executemany(
                "INSERT OR REPLACE INTO histogram VALUES (?, ?, ?)",
                [(run_id, upper, count) for upper, count in driven.latencies.histogram],
            )

    def fail(self, run_ids: Sequence[int], reason: str, state: str = "failed") -> None:
        """Runs failed, or are left out, for one reason."""
        with self.transaction() as connection:
            connection.executemany(
                "UPDATE run SET state = ?, reason = ? WHERE run_id = ?",
                [(state, reason, run_id) for run_id in run_ids],
            )

    def captures(self, server: str) -> list[str]:
        """The captures with finished runs of a server, in the order of time."""
        rows = self._connection.execute(
            "SELECT capture FROM run JOIN cell USING (cell_id) WHERE state = 'done' AND server = ?"
            " GROUP BY capture ORDER BY min(start_ns)",
            (server,),
        )
        return [row[0] for row in rows]

    def replace_captures(self, old: Sequence[str], new: str) -> None:
        """The rows of some captures are now in another one."""
        with self.transaction() as connection:
            connection.executemany(
                "UPDATE run SET capture = ? WHERE capture = ?", [(new, name) for name in old]
            )

    def figures(self) -> list[tuple[str, str, int, int, int, int]]:
        """(scenario, arm, round, operations, mean_ns, p95_ns) of each finished run."""
        return self._connection.execute(
            "SELECT scenario, arm, round, operations_count, mean_ns, p95_ns"
            " FROM run JOIN cell USING (cell_id) WHERE state = 'done' ORDER BY run_id"
        ).fetchall()

    def plan_again(self) -> int:
        """What failed or was left out is to be tried again; how many runs that is."""
        with self.transaction() as connection:
            return connection.execute(
                "UPDATE run SET state = 'planned', reason = '' WHERE state IN ('failed', 'skipped')"
            ).rowcount

    def add_facts(self, table: str, key: Sequence[str], facts: Mapping[str, str]) -> None:
        """Facts about a server or a route."""
        with self.transaction() as connection:
            for name, value in facts.items():
                row = [*key, name, value]
                connection.execute(f"INSERT OR REPLACE INTO {table} VALUES ({_marks(row)})", row)

    def set_meta(self, key: str, value: str) -> None:
        """One fact about the whole."""
        with self.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))


def where_text(where: Mapping[str, tuple[object, ...]]) -> str:
    """Dimensions and their allowed values as they are stored."""
    return json.dumps({name: list(values) for name, values in where.items()}, sort_keys=True)


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


def _no_results(folder: Path, why: str) -> TlstaxError:
    return TlstaxError(
        f"cannot use {folder}",
        why,
        "Name the directory that `tlstax lab run` printed",
        ExitCode.CAPTURE,
    )
