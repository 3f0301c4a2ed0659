# SPDX-License-Identifier: GPL-2.0-only
"""Recipe files: finding one, reading it, refusing what is wrong with its name.

Every name in a file is checked before anything starts; the error names the file, the key and what
is allowed.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.certs.generate import KeyKind
from tlstax.workloads import toml_text
from tlstax.workloads.drivers import DRIVERS
from tlstax.workloads.drivers.model import TABLE_ROWS
from tlstax.workloads.matrix.cells import DIMENSIONS, OFF, Cell
from tlstax.workloads.matrix.recipe import (
    HOST,
    KINDS,
    Part,
    Published,
    Recipe,
    Skip,
    TlsArm,
)
from tlstax.workloads.matrix.scale import (
    PLURALS,
    Block,
    Length,
    take_blocks,
    take_lists,
    take_scale,
)
from tlstax.workloads.matrix.server_arms import take_servers
from tlstax.workloads.recipe_table import RecipeTable, Scalar, refuse
from tlstax.workloads.servers.catalogue import load_catalogue
from tlstax.workloads.tls import VERSIONS, TlsChoice
from tlstax.workloads.transports import TRANSPORTS

FOLDER: Final = Path(__file__).parent.parent / "recipes"
DEMO: Final = FOLDER / "demo.toml"
ROLES: Final = ("client", "tunnel", "proxy")
ENCRYPTION: Final = (OFF, "on")  # of data at rest
COLLECTED: Final = ("procfs", "iostat")
QUANTITIES: Final = ("operations_per_s", "queries_per_s", "p95_ns", "mean_ns", "ratio")
DEFAULTS: Final[Mapping[str, tuple[Scalar, ...]]] = {
    "key": ("rsa:2048",),
    "encryption": (OFF,),
    "tls": (OFF, "on"),
    "transport": ("tcp",),
    "driver": ("sysbench",),
    "threads": (1,),
    "rate": (0,),
}


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
        f"known recipes are {', '.join(bundled_recipes())}",
        "Choose one of them, or give a TOML file",
        ExitCode.USAGE,
    )


def load_recipe(path: Path, scale: str | None = None) -> Recipe:
    """Read a recipe; without a scale, at the smallest that it has.

    TlstaxError (USAGE) names the file and the entry that it cannot use.
    """
    try:
        document = toml_text.parse(toml_text.read_content(path))
    except toml_text.UnusableError as error:
        raise refuse(path, str(error)) from error
    return parse(path, RecipeTable(path, "", document), scale)


def parse(path: Path, top: RecipeTable, scale_name: str | None = None) -> Recipe:
    """The recipe of a file's top table; TlstaxError (USAGE) for whatever is wrong."""
    asked = top.take("kind", str, "matrix")
    kind = next((known for known in KINDS if known == asked), None)
    if kind is None:
        raise top.refuse(f"kind = {asked!r}, and known kinds are {', '.join(KINDS)}")
    title = top.take("title", str, "")
    tls = {OFF: TlsArm(), "on": TlsArm()} | {
        name: _tls_arm(table) for name, table in top.named("tls")
    }
    drivers = _parts(top, "driver", "drivers")
    transports = _parts(top, "transport", "transports")
    servers = take_servers(top)
    baseline = _baseline(top)
    watch = top.texts("watch")
    for role in watch:
        if role not in ROLES:
            raise top.refuse(f"watch = {role!r}, and known roles are {', '.join(ROLES)}")
    collect = top.texts("collect")
    for source in collect:
        if source not in COLLECTED:
            raise top.refuse(f"collect = {source!r}, and known are {', '.join(COLLECTED)}")
    lists = take_lists(top.table("matrix"))
    scale, changed = take_scale(top, scale_name)
    blocks = take_blocks(top, scale.name)
    lengths = _cells(blocks, {**DEFAULTS, **lists, **changed}, top)
    cells = tuple(lengths) if kind == "matrix" else _arms_together(lengths)
    skips = tuple(
        Skip(_where(table.table("where")), _closed(table, table.take("reason", str, None)))
        for table in top.tables("skip", required=False)
    )
    published = tuple(_published(table) for table in top.tables("published", required=False))
    top.refuse_rest()
    recipe = Recipe(
        kind, path.stem, title, path, scale, cells, skips, baseline, watch,
        servers, tls, transports, drivers, published, collect,
        {cell: length for cell, length in lengths.items() if length is not None},
    )  # fmt: skip
    _check_names(recipe, top)
    return recipe


def _closed(table: RecipeTable, value: str) -> str:
    table.refuse_rest()
    return value


def _tls_arm(table: RecipeTable) -> TlsArm:
    version = table.take("version", str, "") or None
    if version is not None and version not in VERSIONS:
        raise table.refuse(f"version = {version!r}, and known versions are {', '.join(VERSIONS)}")
    arm = TlsArm(
        TlsChoice(
            version=version,
            cipher=table.take("cipher", str, "") or None,
            group=table.take("group", str, "") or None,
        ),
        resume=table.take("resume", bool, False),
        key_shares=table.texts("key_shares"),
    )
    table.refuse_rest()
    return arm


def _parts(top: RecipeTable, name: str, plural: str) -> dict[str, Part]:
    """The transports or drivers that the file describes, each by a name of its own."""
    known = TRANSPORTS if name == "transport" else DRIVERS
    found = {}
    for own_name, table in top.named(name):
        kind = table.take("kind", str, own_name)
        if kind not in known:
            raise table.refuse(f"kind = {kind!r}, and known {plural} are {', '.join(known)}")
        options = known[kind].options
        optional = table.take("optional", bool, False)
        values = table.rest()
        for key, value in values.items():
            if key not in options:
                raise table.refuse(
                    f"it has an unknown '{key}'; {kind} knows {', '.join(options) or 'none'}"
                )
            if type(value) is not options[key] and (options[key], type(value)) != (float, int):
                raise table.refuse(f"{key} = {value!r}, which is no {options[key].__name__}")
            choices = getattr(known[kind], "choices", {}).get(key, ())
            if choices and value not in choices:
                raise table.refuse(f"{key} = {value!r}, and allowed are {', '.join(choices)}")
        found[own_name] = Part(kind, values, optional)
    return found


def _baseline(top: RecipeTable) -> dict[str, Scalar]:
    found = dict(top.table("baseline", required=False).rest()) or {"tls": OFF}
    for name in found:
        if name not in DIMENSIONS:
            raise top.refuse(
                f"in [baseline] it has an unknown '{name}'; known are {', '.join(DIMENSIONS)}"
            )
    return found


def _cells(
    blocks: Sequence[Block], defaults: Mapping[str, tuple[Scalar, ...]], top: RecipeTable
) -> dict[Cell, Length | None]:
    """Every combination, and how long its runs last where its block says so."""
    cells: dict[Cell, Length | None] = {}
    for block in blocks:
        lists = {**defaults, **block.lists}
        for dimension in DIMENSIONS:
            if dimension not in lists:
                raise top.refuse(f"in [matrix] it lacks '{PLURALS[dimension]}'")
        for values in product(*(lists[dimension] for dimension in DIMENSIONS)):
            cell = Cell(*values)  # type: ignore[arg-type]
            cells[cell] = block.length or cells.get(cell)
    if not cells:
        raise top.refuse("no [[cells]] is for this scale")
    return cells


def _arms_together(cells: Iterable[Cell]) -> tuple[Cell, ...]:
    """The arms of each load one after the other: the order of runs that are not shuffled."""
    loads: dict[Cell, list[Cell]] = {}
    for cell in cells:
        loads.setdefault(cell.moved({"tls": OFF}), []).append(cell)
    return tuple(cell for arms in loads.values() for cell in arms)


def _where(table: RecipeTable) -> dict[str, tuple[Scalar, ...]]:
    found: dict[str, tuple[Scalar, ...]] = {}
    for name, value in table.rest(lists=True).items():
        if name not in DIMENSIONS:
            raise table.refuse(f"it has an unknown '{name}'; known are {', '.join(DIMENSIONS)}")
        found[name] = tuple(value) if isinstance(value, list) else (value,)
    return found


def _published(table: RecipeTable) -> Published:
    quantity = table.take("quantity", str, "operations_per_s")
    if quantity not in QUANTITIES:
        raise table.refuse(f"quantity = {quantity!r}, and known are {', '.join(QUANTITIES)}")
    published = Published(
        table.take("source", str, None),
        quantity,
        _where(table.table("where")),
        table.real("value"),
        table.real("sd", None),
        table.take("setup", str, ""),
    )
    table.refuse_rest()
    return published


def _check_names(recipe: Recipe, top: RecipeTable) -> None:
    """Every name that a cell uses must mean something; unnamed kinds stand for themselves."""
    known: Mapping[str, Mapping[str, object]] = {
        "server": {**load_catalogue(), HOST: None, **recipe.servers},
        "tls": recipe.tls,
        "transport": {**TRANSPORTS, **recipe.transports},
        "driver": {**DRIVERS, **recipe.drivers},
    }
    for cell in recipe.cells:
        if cell.encryption not in ENCRYPTION:
            raise top.refuse(
                f"encryption names '{cell.encryption}', and known are {', '.join(ENCRYPTION)}"
            )
        for dimension, names in known.items():
            if cell.at(dimension) not in names:
                raise top.refuse(
                    f"{PLURALS[dimension]} names '{cell.at(dimension)}', and known are "
                    f"{', '.join(names)}"
                )
        _check_key(cell.key, top)
        kind = DRIVERS[recipe.driver_of(cell).kind]
        if kind.scenario(cell.scenario) is None:
            raise top.refuse(
                f"scenarios names '{cell.scenario}', and {cell.driver} knows "
                f"{', '.join(scenario.name for scenario in kind.scenarios)}"
            )
        if cell.rate and not kind.rates:
            raise top.refuse(f"rates holds {cell.rate}, and {cell.driver} can keep none")
    _check_tables(recipe, top)
    if recipe.kind != "matrix":
        _check_arms(recipe, top)


def _check_tables(recipe: Recipe, top: RecipeTable) -> None:
    """Drivers of one server find the same tables: the last one made them for all."""
    asked: dict[str, tuple[str, Scalar]] = {}
    for cell in recipe.cells:
        rows = recipe.driver_of(cell).options.get("table_rows", TABLE_ROWS)
        other, others_rows = asked.setdefault(cell.server, (cell.driver, rows))
        if rows != others_rows:
            raise top.refuse(
                f"{other} has {others_rows} table_rows and {cell.driver} has {rows}, and both use "
                f"the table of {cell.server}"
            )


def _check_key(text: str, top: RecipeTable) -> None:
    try:
        KeyKind.parse(text)
    except TlstaxError as error:
        raise top.refuse(f"keys names '{text}', and {error.why}") from None


def _check_arms(recipe: Recipe, top: RecipeTable) -> None:
    """Captures of these kinds tell cells apart by server, scenario and arm, and by nothing else."""
    servers = {cell.server_key for cell in recipe.cells}
    if recipe.kind == "tax" and len(servers) > 1:
        raise top.refuse("it has several servers, keys or encryptions, and the kind 'tax' has one")
    if len({server.server for server in servers}) < len(servers):
        raise top.refuse(f"a server has several keys, and the kind '{recipe.kind}' has one of each")
    seen: dict[tuple[object, ...], Cell] = {}
    for cell in recipe.cells:
        other = seen.setdefault((cell.server, cell.arm, *recipe.recorded_as(cell)), cell)
        if other is not cell:
            raise top.refuse(
                f"'{other.label}' and '{cell.label}' would be the same arm in a report of kind "
                f"'{recipe.kind}'; use kind = 'matrix'"
            )
