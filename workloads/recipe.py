# SPDX-License-Identifier: GPL-2.0-only
"""Recipes: experiments as TOML files, read into types, refused with the name of what is wrong.

A recipe's `kind` says who runs it: "tax" is one server in both arms (`demo.py`), "libraries" many
servers side by side (`libraries.py`), "matrix" any combination (`matrix/`). Those of this folder
are known by their names; any other is given as a file.
"""

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

from tlstax import ExitCode, TlstaxError
from tlstax.certs.generate import KeyKind
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load
from tlstax.workloads.matrix.recipe import MatrixRecipe
from tlstax.workloads.matrix.recipe import parse as parse_matrix
from tlstax.workloads.recipe_table import RecipeTable, refuse
from tlstax.workloads.results import ARMS
from tlstax.workloads.tls import TlsChoice

FOLDER = Path(__file__).parent / "recipes"
DEMO = FOLDER / "demo.toml"
KINDS = ("tax", "libraries", "matrix")
ROUNDS_MAX, SECONDS_MAX, THREADS_MAX, TABLE_ROWS_MAX = 1000, 3600, 256, 1_000_000


@dataclass(frozen=True)
class Recipe:
    """An experiment as asked for."""

    name: str
    title: str
    kind: str  # one of KINDS
    rounds_count: int
    key: KeyKind
    tls: TlsChoice
    table_rows: int
    loads: tuple[Load, ...]
    servers: tuple[str, ...] = ()  # of the catalogue; empty: this host's own MariaDB

    @property
    def driving_s(self) -> int:
        """The time that all runs of one server drive load, without what they cost beside it."""
        return self.rounds_count * len(ARMS) * sum(load.seconds for load in self.loads)

    def with_changes(
        self,
        rounds_count: int | None = None,
        seconds: int | None = None,
        servers: tuple[str, ...] = (),
    ) -> "Recipe":
        """The same with other rounds, seconds per run or servers, where they are given."""
        loads = self.loads
        if seconds is not None:
            loads = tuple(replace(load, seconds=seconds) for load in loads)
        rounds_count = self.rounds_count if rounds_count is None else rounds_count
        servers = servers or self.servers
        return replace(self, rounds_count=rounds_count, loads=loads, servers=servers)


def bundled_recipes() -> dict[str, Path]:
    """The recipes that come with tlstax, by name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.toml"))}


def find_recipe(name: str) -> Path:
    """The file of a recipe that is given by its name or as a file; TlstaxError (USAGE) if none."""
    if name in bundled_recipes():
        return bundled_recipes()[name]
    if Path(name).suffix == ".toml" or Path(name).is_file():
        return Path(name)
    raise TlstaxError(
        f"there is no recipe called '{name}'",
        f"the known ones are {', '.join(bundled_recipes())}",
        "Choose one of them, or give a TOML file",
        ExitCode.USAGE,
    )


def load_recipe(path: Path = DEMO) -> Recipe:
    """Read a recipe of one load after the other; TlstaxError (USAGE) names what it cannot use."""
    recipe = load_any(path)
    if isinstance(recipe, MatrixRecipe):
        raise refuse(path, "its kind is 'matrix', which `tlstax lab run` runs")
    return recipe


def load_any(path: Path, scale: str | None = None) -> Recipe | MatrixRecipe:
    """Read a recipe, without a scale at the least that it has.

    TlstaxError (USAGE) names the file and the entry that it cannot use.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise refuse(path, str(error.strerror or error)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise refuse(path, f"it is not TOML: {error}") from error
    top = RecipeTable(path, "", document)
    kind = top.take("kind", str, "tax")
    if kind not in KINDS:
        raise top.refuse(f"kind = {kind!r}, and known kinds are {', '.join(KINDS)}")
    return parse_matrix(path, top, scale) if kind == "matrix" else _parse(path, top, kind)


def _parse(path: Path, top: RecipeTable, kind: str) -> Recipe:
    experiment = top.table("experiment")
    seconds = experiment.number("seconds", 5, SECONDS_MAX)
    loads = tuple(_load(table, seconds) for table in top.tables("load"))
    choice = top.table("tls", required=False)
    recipe = Recipe(
        name=path.stem,
        title=top.take("title", str, ""),
        kind=kind,
        rounds_count=experiment.number("rounds", 6, ROUNDS_MAX),
        key=KeyKind.parse(experiment.take("key", str, "rsa:2048")),
        tls=TlsChoice(
            version=choice.take("version", str, "") or None,
            cipher=choice.take("cipher", str, "") or None,
            group=choice.take("group", str, "") or None,
        ),
        table_rows=experiment.number("table_rows", 10_000, TABLE_ROWS_MAX),
        loads=loads,
        servers=experiment.texts("servers"),
    )
    for table in (top, experiment, choice):
        table.refuse_rest()
    if (kind == "libraries") != bool(recipe.servers):
        raise top.refuse("servers belong to the kind 'libraries', and to no other")
    return recipe


def _load(table: RecipeTable, seconds: int) -> Load:
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
