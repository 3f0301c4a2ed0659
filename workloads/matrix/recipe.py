# SPDX-License-Identifier: GPL-2.0-only
"""Recipes of kind "matrix": what is combined, at which scale, and what was published about it.

Every name in the file is checked before anything starts; what is wrong is told with the file, the
key and what would be allowed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

from tlstax import TlstaxError
from tlstax.certs.generate import KeyKind
from tlstax.workloads.drivers import DRIVERS, TABLE_ROWS
from tlstax.workloads.matrix.cells import DIMENSIONS, OFF, Cell
from tlstax.workloads.matrix.scale import (
    PLURALS,
    Block,
    Length,
    Scale,
    take_blocks,
    take_lists,
    take_scale,
)
from tlstax.workloads.recipe_table import RecipeTable, Scalar, refuse
from tlstax.workloads.servers.catalogue import ServerKind, find_kind, load_catalogue
from tlstax.workloads.servers.storage import Storage
from tlstax.workloads.tls import VERSIONS, TlsChoice
from tlstax.workloads.transports import TRANSPORTS

ROLES = ("client", "tunnel", "proxy")
DEFAULTS: Mapping[str, tuple[Scalar, ...]] = {
    "key": ("rsa:2048",),
    "encryption": (OFF,),
    "tls": (OFF, "on"),
    "transport": ("tcp",),
    "driver": ("sysbench",),
    "threads": (1,),
    "rate": (0,),
}
ENCRYPTION = (OFF, "on")  # of data at rest
PROXYSQL = "proxysql"
COLLECTED = ("procfs", "iostat")
POOL_MB_MAX = 1 << 20
QUANTITIES = ("operations_per_s", "queries_per_s", "p95_ns", "mean_ns", "ratio")


@dataclass(frozen=True)
class TlsArm:
    """What `tls = "NAME"` asks of clients."""

    choice: TlsChoice = field(default_factory=TlsChoice)
    resume: bool = False


@dataclass(frozen=True)
class ServerArm:
    """What `servers = ["NAME"]` starts."""

    kind: ServerKind
    options: tuple[str, ...] = ()  # further lines of its option file
    storage: Storage | None = None  # encryption apart, which is a dimension


@dataclass(frozen=True)
class Part:
    """A transport or a driver by its name in the recipe."""

    kind: str
    options: Mapping[str, Scalar] = field(default_factory=dict)
    optional: bool = False  # where the host cannot do it, its cells are left out, not failed


@dataclass(frozen=True)
class Published:
    """A figure that somebody else published, and the cells that it is about."""

    source: str
    quantity: str  # one of QUANTITIES; "ratio": operations/s over those of the baseline
    where: Mapping[str, tuple[Scalar, ...]]
    value: float
    sd: float | None = None
    setup: str = ""  # what they had, where a cell here only resembles it


@dataclass(frozen=True)
class Skip:
    """Cells that are not run, and why."""

    where: Mapping[str, tuple[Scalar, ...]]
    reason: str


@dataclass(frozen=True)
class MatrixRecipe:
    """An experiment as asked for, at one scale."""

    name: str
    title: str
    path: Path
    scale: Scale
    cells: tuple[Cell, ...]
    skips: tuple[Skip, ...]
    baseline: Mapping[str, Scalar]
    watch: tuple[str, ...]  # of ROLES: what is recorded beside the server
    servers: Mapping[str, ServerArm]
    tls: Mapping[str, TlsArm]
    transports: Mapping[str, Part]
    drivers: Mapping[str, Part]
    published: tuple[Published, ...]
    collect: tuple[str, ...] = ()  # of COLLECTED: sources recorded beside the ledger
    lengths: Mapping[Cell, Length] = field(default_factory=dict)  # where not the scale's

    def length_of(self, cell: Cell) -> Length:
        """When a run of the cell is over."""
        return self.lengths.get(cell, self.scale.length)

    @property
    def text(self) -> str:
        """The file."""
        return self.path.read_text(encoding="utf-8")

    def with_changes(
        self,
        rounds_count: int | None = None,
        seconds: int | None = None,
        servers: tuple[str, ...] = (),
        proxysql: str | None = None,
    ) -> "MatrixRecipe":
        """The same with other rounds, seconds per run or fewer servers, where they are given.

        `proxysql` is the program of that transport, where the recipe names none.
        """
        scale = self.scale
        if rounds_count is not None:
            turn = min(scale.rounds_in_turn, rounds_count)
            scale = replace(scale, rounds_count=rounds_count, rounds_in_turn=turn)
        if seconds is not None:
            scale = replace(scale, length=Length(seconds))
        named = {cell.server for cell in self.cells}
        for name in servers:
            if name not in named:
                raise refuse(
                    self.path,
                    f"--servers names '{name}', and at scale {scale.name} it has "
                    f"{', '.join(sorted(named))}",
                )
        cells = tuple(cell for cell in self.cells if not servers or cell.server in servers)
        lengths = self.lengths if seconds is None else {}
        transports = self._with_proxysql(proxysql) if proxysql else self.transports
        return replace(self, scale=scale, cells=cells, lengths=lengths, transports=transports)

    def _with_proxysql(self, program: str) -> dict[str, Part]:
        """The transports with the program of those that are ProxySQL."""
        found = dict(self.transports)
        ways = {cell.transport: transport_of(self, cell) for cell in self.cells}
        proxies = {name: part for name, part in ways.items() if part.kind == PROXYSQL}
        if not proxies:
            raise refuse(
                self.path, f"--proxysql is given, and at scale {self.scale.name} no cell uses it"
            )
        for name, part in proxies.items():
            found[name] = replace(part, options={"program": program} | dict(part.options))
        return found


def parse(path: Path, top: RecipeTable, scale_name: str | None = None) -> MatrixRecipe:
    """The rest of a recipe whose `kind` was taken; TlstaxError (USAGE) for whatever is wrong.

    Without a scale it is the least that the recipe has.
    """
    title = top.take("title", str, "")
    tls = {OFF: TlsArm(), "on": TlsArm()} | {
        name: _tls_arm(table) for name, table in top.named("tls")
    }
    drivers = _parts(top, "driver", "drivers")
    transports = _parts(top, "transport", "transports")
    servers = _servers(top)
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
    skips = tuple(
        Skip(_where(table.table("where")), _closed(table, table.take("reason", str, None)))
        for table in top.tables("skip", required=False)
    )
    published = tuple(_published(table) for table in top.tables("published", required=False))
    top.refuse_rest()
    recipe = MatrixRecipe(
        path.stem, title, path, scale, tuple(lengths), skips, baseline, watch,
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


def _servers(top: RecipeTable) -> dict[str, ServerArm]:
    found = {}
    for name, table in top.named("server"):
        kind = table.take("kind", str, name)
        if kind not in load_catalogue():
            raise table.refuse(
                f"kind = {kind!r}, and known servers are {', '.join(load_catalogue())}"
            )
        found[name] = ServerArm(find_kind(kind), table.texts("options"), _storage(table))
        table.refuse_rest()
    return found


def _storage(table: RecipeTable) -> Storage | None:
    """How a server keeps its data; None where the table says nothing about it."""
    given: dict[str, bool] = {
        name: table.take(name, bool, False)
        for name in ("binlog", "adaptive_hash_index", "durable")
        if name in table
    }
    pool_mb = table.number("buffer_pool_mb", 0, POOL_MB_MAX, least=0) or None
    if pool_mb is None and not given:
        return None
    return Storage(
        binlog=given.get("binlog", False),
        adaptive_hash_index=given.get("adaptive_hash_index"),
        durable=given.get("durable", False),
        buffer_pool_mb=pool_mb,
    )


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


def _check_names(recipe: MatrixRecipe, top: RecipeTable) -> None:
    """Every name that a cell uses must mean something; unnamed kinds stand for themselves."""
    known: Mapping[str, Mapping[str, object]] = {
        "server": {**load_catalogue(), **recipe.servers},
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
        kind = DRIVERS[driver_of(recipe, cell).kind]
        if kind.scenario(cell.scenario) is None:
            raise top.refuse(
                f"scenarios names '{cell.scenario}', and {cell.driver} knows "
                f"{', '.join(scenario.name for scenario in kind.scenarios)}"
            )
        if cell.rate and not kind.rates:
            raise top.refuse(f"rates holds {cell.rate}, and {cell.driver} can keep none")
    _check_tables(recipe, top)


def _check_tables(recipe: MatrixRecipe, top: RecipeTable) -> None:
    """Drivers of one server find the same tables: the last one made them for all."""
    asked: dict[str, tuple[str, Scalar]] = {}
    for cell in recipe.cells:
        rows = driver_of(recipe, cell).options.get("table_rows", TABLE_ROWS)
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


def server_of(recipe: MatrixRecipe, name: str) -> ServerArm:
    """What a server's name means."""
    return recipe.servers[name] if name in recipe.servers else ServerArm(find_kind(name))


def transport_of(recipe: MatrixRecipe, cell: Cell) -> Part:
    """What a cell's transport means."""
    return recipe.transports.get(cell.transport, Part(cell.transport))


def driver_of(recipe: MatrixRecipe, cell: Cell) -> Part:
    """What a cell's driver means."""
    return recipe.drivers.get(cell.driver, Part(cell.driver))
