# SPDX-License-Identifier: GPL-2.0-only
"""Mutated captures: what a mutant of this number is, is fixed by the number.

A mutant is a seed (see `seeds`) with one to four changes that know the structure: values of a
column that no recorder writes, rows that are gone, doubled or shuffled, references to nothing,
texts that steer a terminal, values of another type, tables and columns that are missing, a file
that is cut. Most keep the schema, so that the reader lets them pass and the analysis meets them.
"""

import contextlib
import random
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tlstax.collectors.capture import vocabulary
from tlstax.collectors.capture.schema import KEYED, TABLES, Column, columns, table_name

INTEGERS: Final = (
    *(0, 1, -1, 2, 3, 100, 127, 255, 1 << 31, -(1 << 31), (1 << 32) + 1, 1 << 40, 10**9, 10**18),
    *(1 << 53, (1 << 62) + 7, (1 << 63) - 1, -(1 << 63)),
)
FLOATS: Final = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-300, 5e-324, 1e18, -1e18, 9e18, 1e300, float("inf"))
TEXTS: Final = (
    *("", " ", "/", "a/b", "//", "a/b/c/d"),
    *(":", ";", "a;b", "%", "|`*_{}", "<script>alert(1)</script>"),
    *("\x1b[2J\x1b[31m", "a\rb", "\x9b31m", "a\u202eb\u2066c"),
    *("\x07\x08\x7f", "a\nb", "a\tb", "\u2028"),
    *("é" * 300, "𝕏" * 20, "a" * 40_000, "word " * 3000, "nan", "inf", "-inf", "1e999", "-1", "0"),
    *("1" * 5000, "²", "٣", "0x10", "1e308", "12.5", "unknown", "none", "all", "tls", "plaintext"),
    *("{}", "{{ 7*7 }}", "[", "[bold]x[/nothing]"),
    *("{\"a\": [1, {\"b\": null}]}", "[[[[[[[[", "null"),
    *("../../etc/passwd", "\x00", "a\x00b", "server", "client"),
    *("perf", "native", "bpftrace", "full"),
    *("(unclosed", "*", "*" * 30, "a*b*c", "\\"),
    *("'\"", "=cmd", "# a\n## b", "![x](http://x)", "\ufeff"),
)  # fmt: skip
WORDS: Final = (
    *(vocabulary.PHASES, vocabulary.STATES, vocabulary.LEVELS),
    *(vocabulary.ROLES, vocabulary.OUTCOMES),
    *(vocabulary.CATEGORIES, vocabulary.SERIES_UNITS),
    *(vocabulary.SERIES_HOWS, tuple(vocabulary.LOSSES)),
)  # fmt: skip
ROWS_MAX: Final = 3000
"""Rows that a change of many rows adds at most."""

_Change = Callable[["Mutant"], str]


class Mutant:
    """A copy of a seed while it is changed."""

    def __init__(self, path: Path, chance: random.Random) -> None:
        self.path = path
        self.chance = chance
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("PRAGMA synchronous = OFF")
        self.db.execute("PRAGMA journal_mode = OFF")

    def table(self) -> tuple[str, tuple[Column, ...], bool]:
        """A table that has rows, its columns, and whether its first column is a key."""
        while True:
            table = self.chance.choice(TABLES)
            name = table_name(table)
            found = self.db.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (name,))
            if found.fetchone() and self.db.execute(f'SELECT 1 FROM "{name}"').fetchone():
                return name, columns(table), table in KEYED

    def which(self, table: str) -> str:
        """A condition: one row, some rows or all rows."""
        kind = self.chance.randrange(4)
        if kind == 0:
            return "1"
        if kind == 1:
            return f"rowid % {self.chance.randrange(2, 6)} = 0"
        count = self.db.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]
        offset = self.chance.randrange(count)
        return f'rowid IN (SELECT rowid FROM "{table}" LIMIT {kind} OFFSET {offset})'

    def value(self, column: Column) -> object:
        """A value of the column's type that no recorder writes there, or writes elsewhere."""
        if column.nullable and self.chance.random() < 0.3:
            return None
        if column.kind is int:
            near = self.chance.choice(INTEGERS) + self.chance.randrange(-2, 3)
            return max(-(1 << 63), min(near, (1 << 63) - 1))
        if column.kind is float:
            return self.chance.choice(FLOATS)
        return self.chance.choice((*TEXTS, *self.chance.choice(WORDS)))


def set_values(mutant: Mutant) -> str:
    """Other values in a column."""
    table, kinds, _ = mutant.table()
    column = mutant.chance.choice(kinds)
    value, where = mutant.value(column), mutant.which(table)
    mutant.db.execute(f'UPDATE OR IGNORE "{table}" SET "{column.name}" = ? WHERE {where}', (value,))
    return f"{table}.{column.name} = {value!r:.40} where {where}"


def scale_values(mutant: Mutant) -> str:
    """Numbers of a column negated, moved or multiplied."""
    table, kinds, _ = mutant.table()
    column = mutant.chance.choice([kind for kind in kinds if kind.kind is not str] or kinds)
    how = mutant.chance.choice(("-{}", "{} * 1000000", "{} / 1000", "{} + 1", "{} % 3", "~{}"))
    where = mutant.which(table)
    changed = f"CAST({how.format(f'{chr(34)}{column.name}{chr(34)}')} AS INTEGER)"
    mutant.db.execute(f'UPDATE OR IGNORE "{table}" SET "{column.name}" = {changed} WHERE {where}')
    return f"{table}.{column.name}: {how} where {where}"


def shuffle_values(mutant: Mutant) -> str:
    """The values of a column, of other rows."""
    table, kinds, is_keyed = mutant.table()
    column = mutant.chance.choice(kinds[is_keyed:] or kinds)
    rows = mutant.db.execute(f'SELECT rowid, "{column.name}" FROM "{table}" LIMIT 3000').fetchall()
    values = [value for _, value in rows]
    mutant.chance.shuffle(values)
    update = f'UPDATE OR IGNORE "{table}" SET "{column.name}" = ? WHERE rowid = ?'
    mutant.db.executemany(update, zip(values, (row for row, _ in rows), strict=True))
    return f"{table}.{column.name} shuffled"


def wrong_references(mutant: Mutant) -> str:
    """Keys that lead nowhere, or to another row."""
    table, kinds, _ = mutant.table()
    ids = [kind for kind in kinds if kind.name.endswith("_id")]
    column = mutant.chance.choice(ids or kinds)
    value = mutant.chance.choice((0, 1, 2, -1, 999_999_999, (1 << 63) - 1))
    where = mutant.which(table)
    mutant.db.execute(f'UPDATE OR IGNORE "{table}" SET "{column.name}" = ? WHERE {where}', (value,))
    return f"{table}.{column.name} leads to {value} where {where}"


def delete_rows(mutant: Mutant) -> str:
    """Rows that are gone."""
    table, _, _ = mutant.table()
    where = mutant.which(table)
    mutant.db.execute(f'DELETE FROM "{table}" WHERE {where}')
    return f"{table} without rows where {where}"


def repeat_rows(mutant: Mutant) -> str:
    """Rows several times; of tables with a key with other keys."""
    table, kinds, is_keyed = mutant.table()
    rows = mutant.db.execute(f'SELECT * FROM "{table}" LIMIT 500').fetchall()
    times = max(1, min(mutant.chance.choice((1, 2, 40)), ROWS_MAX // len(rows)))
    marks = ", ".join("?" * len(kinds))
    for number in range(times):
        for row in rows:
            key = row[0]
            if is_keyed:
                key = (
                    f"{key}'" * (number + 1) if isinstance(key, str) else key + 10**6 * (number + 1)
                )
            with contextlib.suppress(OverflowError):
                mutant.db.execute(
                    f'INSERT OR IGNORE INTO "{table}" VALUES ({marks})', (key, *row[1:])
                )
    return f"{table} {times + 1} times"


def invent_row(mutant: Mutant) -> str:
    """A row of which every value is strange."""
    table, kinds, _ = mutant.table()
    values = [mutant.value(kind) for kind in kinds]
    marks = ", ".join("?" * len(kinds))
    mutant.db.execute(f'INSERT OR REPLACE INTO "{table}" VALUES ({marks})', values)
    return f"{table} with {values!r:.200}"


def strange_stack(mutant: Mutant) -> str:
    """Frame ids of a stack: many, repeated, or no numbers."""
    frames = [row[0] for row in mutant.db.execute("SELECT frame_id FROM frame LIMIT 40")] or [1]
    kinds = {
        "deep": " ".join(str(mutant.chance.choice(frames)) for _ in range(5000)),
        "words": "1 x -5 ² ٣ 1e3 0x1  \t 99999999999999999999999 1",
        "empty": "",
        "loop": f"{frames[0]} " * 600,
    }
    name = mutant.chance.choice(list(kinds))
    where = mutant.which("stack") if mutant.db.execute("SELECT 1 FROM stack").fetchone() else "1"
    mutant.db.execute(f"UPDATE stack SET frame_ids = ? WHERE {where}", (kinds[name],))
    return f"stacks {name} where {where}"


def strange_fact(mutant: Mutant) -> str:
    """A fact of the metadata."""
    key = mutant.chance.choice(list(_META))
    value = mutant.chance.choice(TEXTS)
    mutant.db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))
    return f"meta {key} = {value!r:.40}"


def wrong_type(mutant: Mutant) -> str:
    """A value of a type that the column does not have; SQLite stores it all the same."""
    table, kinds, _ = mutant.table()
    column = mutant.chance.choice(kinds)
    value = mutant.chance.choice((b"\x00\xff" * 5, b"", "text", 1.5, None))
    where = mutant.which(table)
    without_checks(mutant, table, f'UPDATE "{table}" SET "{column.name}" = ? WHERE {where}', value)
    return f"{table}.{column.name} = {value!r} where {where}"


def without_checks(mutant: Mutant, table: str, change: str, value: object) -> None:
    """Run a change that NOT NULL or a key would forbid, and leave the schema as it was."""
    query = "SELECT sql FROM sqlite_schema WHERE name = ?"
    (sql,) = mutant.db.execute(query, (table,)).fetchone()
    restore = "UPDATE sqlite_schema SET sql = ? WHERE name = ?"
    mutant.db.execute("PRAGMA writable_schema = ON")
    mutant.db.execute(restore, (sql.replace(" NOT NULL", ""), table))
    mutant.db.close()
    mutant.db = sqlite3.connect(mutant.path, isolation_level=None)
    with contextlib.suppress(sqlite3.IntegrityError):
        mutant.db.execute(change, (value,))
    mutant.db.execute("PRAGMA writable_schema = ON")
    mutant.db.execute(restore, (sql, table))


def change_schema(mutant: Mutant) -> str:
    """A table, a column, or the version that is not of a capture."""
    table, kinds, _ = mutant.table()
    statement = mutant.chance.choice(
        (
            f'DROP TABLE "{table}"',
            f'ALTER TABLE "{table}" RENAME TO x',
            f'ALTER TABLE "{table}" DROP COLUMN "{kinds[-1].name}"',
            f'ALTER TABLE "{table}" ADD COLUMN x TEXT',
            f'CREATE VIEW v AS SELECT * FROM "{table}"',
            f'CREATE TRIGGER t AFTER INSERT ON "{table}" BEGIN SELECT 1; END',
            "PRAGMA user_version = 1",
            "PRAGMA user_version = 2",
            "PRAGMA user_version = 99",
            "PRAGMA application_id = 0",
        )
    )
    with contextlib.suppress(sqlite3.OperationalError):
        mutant.db.execute(statement)
    return statement


def older_version(mutant: Mutant) -> str:
    """A capture of version 1, without tables and columns that came later."""
    mutant.db.execute("PRAGMA user_version = 1")
    dropped = []
    for table in TABLES:
        for column in columns(table):
            name = table_name(table)
            if column.name in table._field_defaults and mutant.chance.random() < 0.5:
                with contextlib.suppress(sqlite3.OperationalError):
                    mutant.db.execute(f'ALTER TABLE "{name}" DROP COLUMN "{column.name}"')
                    dropped.append(f"{name}.{column.name}")
    return f"version 1 without {', '.join(dropped)}"


_META: Final = (
    *("created_wall_ns", "monotonic_anchor_ns", "sample_hz"),
    *("cpu_count", "command_level", "engine"),
    *("budget_share", "predicted_share", "effect_floor_cpus"),
    *("start_cpu_ns", "hostname", "cpu_model"),
    *("bpftrace_sample_hz", "pause_ns", "end_monotonic_ns", "target_ending", "functions", "kernel"),
)  # fmt: skip
SEEDS: Final[Mapping[str, int]] = {"demo": 1, "experiment": 1, "attached": 3, "crowded": 5}
"""The seeds with their weights; those with many runs take longer."""
CHANGES: Final[Mapping[_Change, int]] = {
    set_values: 8,
    scale_values: 4,
    shuffle_values: 2,
    wrong_references: 3,
    delete_rows: 3,
    repeat_rows: 2,
    invent_row: 3,
    strange_stack: 1,
    strange_fact: 2,
    wrong_type: 1,
    change_schema: 1,
    older_version: 1,
}
"""The kinds of changes with their weights."""


def make(number: int, seeds: Mapping[str, Path], path: Path) -> tuple[str, str]:
    """Write the mutant of this number; its seed, and what was done to it."""
    chance = random.Random(number)
    seed = chance.choices(list(SEEDS), list(SEEDS.values()))[0]
    path.write_bytes(seeds[seed].read_bytes())
    mutant = Mutant(path, chance)
    kinds = chance.choices(list(CHANGES), list(CHANGES.values()), k=chance.randrange(1, 5))
    done = []
    for kind in kinds:
        # What an earlier change took away a later one cannot change.
        with contextlib.suppress(sqlite3.Error, OverflowError):
            done.append(kind(mutant))
    mutant.db.close()
    if chance.random() < 0.03:
        with path.open("r+b") as stream:
            length = chance.randrange(path.stat().st_size)
            stream.truncate(length)
        done.append(f"cut to {length} bytes")
    return seed, "; ".join(done)
