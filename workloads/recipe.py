# SPDX-License-Identifier: GPL-2.0-only
"""Recipes: experiments as TOML files, read into types, refused with the name of what is wrong."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tlstax import ExitCode, TlstaxError
from tlstax.certs.generate import KeyKind
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load
from tlstax.workloads.results import ARMS
from tlstax.workloads.tls import TlsChoice

DEMO = Path(__file__).parent / "recipes" / "demo.toml"
ROUNDS_MAX, SECONDS_MAX, THREADS_MAX, TABLE_ROWS_MAX = 1000, 3600, 256, 1_000_000

T = TypeVar("T", int, str)


@dataclass(frozen=True)
class Recipe:
    """An experiment as asked for."""

    rounds_count: int
    key: KeyKind
    tls: TlsChoice
    table_rows: int
    loads: tuple[Load, ...]

    @property
    def driving_s(self) -> int:
        """The time that all runs drive load, without what they cost beside it."""
        return self.rounds_count * len(ARMS) * sum(load.seconds for load in self.loads)

    def with_changes(self, rounds_count: int | None, seconds: int | None) -> "Recipe":
        """The same with another number of rounds or seconds per run, where one is given."""
        loads = self.loads
        if seconds is not None:
            loads = tuple(
                Load(load.scenario, load.threads_count, seconds, load.operation_count)
                for load in loads
            )
        rounds_count = self.rounds_count if rounds_count is None else rounds_count
        return Recipe(rounds_count, self.key, self.tls, self.table_rows, loads)


def load_recipe(path: Path = DEMO) -> Recipe:
    """Read a recipe; TlstaxError (USAGE) names the file and the entry that it cannot use."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _refuse(path, str(error.strerror or error)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _refuse(path, f"it is not TOML: {error}") from error
    top = _Table(path, "", document)
    experiment = top.table("experiment")
    seconds = experiment.number("seconds", 5, SECONDS_MAX)
    loads = tuple(_load(table, seconds) for table in top.tables("load"))
    choice = top.table("tls", required=False)
    recipe = Recipe(
        rounds_count=experiment.number("rounds", 6, ROUNDS_MAX),
        key=KeyKind.parse(experiment.take("key", str, "rsa:2048")),
        tls=TlsChoice(
            version=choice.take("version", str, "") or None,
            cipher=choice.take("cipher", str, "") or None,
            group=choice.take("group", str, "") or None,
        ),
        table_rows=experiment.number("table_rows", 10_000, TABLE_ROWS_MAX),
        loads=loads,
    )
    for table in (top, experiment, choice):
        table.refuse_rest()
    return recipe


def _load(table: "_Table", seconds: int) -> Load:
    name = table.take("scenario", str, None)
    if name not in SCENARIOS:
        known = ", ".join(SCENARIOS)
        raise table.refuse(f"scenario = {name!r}, and known scenarios are {known}")
    load = Load(
        scenario=SCENARIOS[name],
        threads_count=table.number("threads", 2, THREADS_MAX),
        seconds=table.number("seconds", seconds, SECONDS_MAX),
        operation_count=table.number("operations", 0, 1_000_000_000, least=0) or None,
    )
    table.refuse_rest()
    return load


class _Table:
    """A TOML table whose entries are taken one by one; whatever is left over is an error."""

    def __init__(self, path: Path, name: str, entries: object) -> None:
        self._path, self._name = path, name
        if not isinstance(entries, Mapping):
            raise self.refuse("it is not a table")
        self._entries = dict(entries)

    def take(self, key: str, kind: type[T], default: T | None) -> T:
        """The entry `key`, which must be of this kind; without a default it must be there."""
        value = self._entries.pop(key, default)
        if value is None:
            raise self.refuse(f"it lacks '{key}'")
        if type(value) is not kind:  # not isinstance: true is no number
            raise self.refuse(f"{key} = {value!r}, which is no {kind.__name__}")
        return value

    def number(self, key: str, default: int, most: int, *, least: int = 1) -> int:
        """A whole number within bounds."""
        value = self.take(key, int, default)
        if not least <= value <= most:
            raise self.refuse(f"{key} = {value}, which is not within {least}..{most}")
        return value

    def table(self, key: str, *, required: bool = True) -> "_Table":
        """A table within this one; an empty one if it may be missing and is."""
        if required and key not in self._entries:
            raise self.refuse(f"it lacks [{key}]")
        return _Table(self._path, key, self._entries.pop(key, {}))

    def tables(self, key: str) -> list["_Table"]:
        """An array of tables, at least one."""
        found = self._entries.pop(key, [])
        if not isinstance(found, list) or not found:
            raise self.refuse(f"it lacks a [[{key}]]")
        return [_Table(self._path, key, entries) for entries in found]

    def refuse_rest(self) -> None:
        """Say which entry nobody asked for: a misspelt one would be silently ignored."""
        for key in self._entries:
            raise self.refuse(f"it has an unknown '{key}'")

    def refuse(self, why: str) -> TlstaxError:
        """The error for this table."""
        return _refuse(self._path, f"in [{self._name}] {why}" if self._name else why)


def _refuse(path: Path, why: str) -> TlstaxError:
    return TlstaxError(
        f"cannot use the recipe {path}",
        why,
        f"Compare it with {DEMO.name}, which `tlstax lab demo` uses",
        ExitCode.USAGE,
    )
