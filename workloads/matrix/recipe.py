# SPDX-License-Identifier: GPL-2.0-only
"""Recipes of kind "matrix": what is combined, at which scale, and what was published about it.

Every name in the file is checked before anything starts; what is wrong is told with the file, the
key and what would be allowed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

from tlstax import TlstaxError
from tlstax.certs.generate import KeyKind
from tlstax.workloads.drivers import DRIVERS
from tlstax.workloads.matrix.cells import DIMENSIONS, OFF, Cell
from tlstax.workloads.recipe_table import RecipeTable, Scalar, refuse
from tlstax.workloads.servers.catalogue import ServerKind, find_kind, load_catalogue
from tlstax.workloads.servers.storage import Storage
from tlstax.workloads.tls import VERSIONS, TlsChoice
from tlstax.workloads.transports import TRANSPORTS

SCALES = ("smoke", "standard", "paper")
ROLES = ("client", "tunnel", "proxy")
PLURALS: Mapping[str, str] = {
    "server": "servers",
    "key": "keys",
    "encryption": "encryption",
    "tls": "tls",
    "transport": "transports",
    "driver": "drivers",
    "scenario": "scenarios",
    "threads": "threads",
    "rate": "rates",
}
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
COLLECTED = ("procfs", "iostat")
POOL_MB_MAX = 1 << 20
QUANTITIES = ("operations_per_s", "queries_per_s", "p95_ns", "mean_ns", "ratio")
ROUNDS_MAX, SECONDS_MAX, OPERATIONS_MAX, THREADS_MAX, RATE_MAX = 1000, 3600, 10**7, 1024, 10**6

Lists = dict[str, tuple[Scalar, ...]]


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
class Scale:
    """How much of it."""

    name: str
    rounds_count: int
    seconds: int
    operation_count: int | None
    rounds_in_turn: int  # recorded in one go; a server that is alone in them starts only then


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

    @property
    def text(self) -> str:
        """The file."""
        return self.path.read_text(encoding="utf-8")

    def with_changes(
        self,
        rounds_count: int | None = None,
        seconds: int | None = None,
        servers: tuple[str, ...] = (),
    ) -> "MatrixRecipe":
        """The same with other rounds, seconds per run or fewer servers, where they are given."""
        scale = self.scale
        if rounds_count is not None:
            turn = min(scale.rounds_in_turn, rounds_count)
            scale = replace(scale, rounds_count=rounds_count, rounds_in_turn=turn)
        if seconds is not None:
            scale = replace(scale, seconds=seconds, operation_count=None)
        named = {cell.server for cell in self.cells}
        for name in servers:
            if name not in named:
                raise refuse(
                    self.path,
                    f"--servers names '{name}', and at scale {scale.name} it has "
                    f"{', '.join(sorted(named))}",
                )
        cells = tuple(cell for cell in self.cells if not servers or cell.server in servers)
        return replace(self, scale=scale, cells=cells)


def parse(path: Path, top: RecipeTable, scale_name: str) -> MatrixRecipe:
    """The rest of a recipe whose `kind` was taken; TlstaxError (USAGE) for whatever is wrong."""
    if scale_name not in SCALES:
        raise top.refuse(f"scale = {scale_name!r}, and known scales are {', '.join(SCALES)}")
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
    lists = _lists(top.table("matrix"))
    scale, changed = _scale(top, scale_name)
    blocks = [_block(table, scale_name) for table in top.tables("cells", required=False)]
    cells = _cells([*blocks] if blocks else [{}], {**DEFAULTS, **lists, **changed}, top)
    skips = tuple(
        Skip(_where(table.table("where")), _closed(table, table.take("reason", str, None)))
        for table in top.tables("skip", required=False)
    )
    published = tuple(_published(table) for table in top.tables("published", required=False))
    top.refuse_rest()
    recipe = MatrixRecipe(
        path.stem, title, path, scale, cells, skips, baseline, watch,
        servers, tls, transports, drivers, published, collect,
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


def _lists(table: RecipeTable) -> Lists:
    """What a table says about the dimensions; the rest of it must be empty."""
    found = _take_lists(table)
    table.refuse_rest()
    return found


def _take_lists(table: RecipeTable) -> Lists:
    found: Lists = {}
    for dimension, plural in PLURALS.items():
        if dimension == "threads":
            values: tuple[Scalar, ...] = table.numbers(plural, 1, THREADS_MAX)
        elif dimension == "rate":
            values = table.numbers(plural, 0, RATE_MAX)
        else:
            values = table.texts(plural)
        if values:
            found[dimension] = values
    return found


def _block(table: RecipeTable, scale_name: str) -> Lists | None:
    """One [[cells]]; None where it is for other scales."""
    scales = table.texts("scales") or SCALES
    for name in scales:
        if name not in SCALES:
            raise table.refuse(f"scales = {name!r}, and known scales are {', '.join(SCALES)}")
    found = _lists(table)
    return found if scale_name in scales else None


def _scale(top: RecipeTable, name: str) -> tuple[Scale, Lists]:
    """The scale that is asked for, and the lists that it changes; the others are checked too."""
    tables = dict(top.named("scale"))
    for other in tables:
        if other not in SCALES:
            raise top.refuse(f"it has [scale.{other}], and known scales are {', '.join(SCALES)}")
    parsed = {}
    for own_name in SCALES:
        table = tables.get(own_name)
        if table is None:
            raise top.refuse(f"it lacks [scale.{own_name}]")
        rounds_count = table.number("rounds", 4, ROUNDS_MAX)
        scale = Scale(
            own_name,
            rounds_count,
            table.number("seconds", 5, SECONDS_MAX),
            table.number("operations", 0, OPERATIONS_MAX, least=0) or None,
            table.number("rounds_in_turn", 1, ROUNDS_MAX),
        )
        parsed[own_name] = (scale, _lists(table))
    return parsed[name]


def _cells(
    blocks: list[Lists | None], defaults: Mapping[str, tuple[Scalar, ...]], top: RecipeTable
) -> tuple[Cell, ...]:
    cells: dict[Cell, None] = {}
    for block in blocks:
        if block is None:
            continue
        lists = {**defaults, **block}
        for dimension in DIMENSIONS:
            if dimension not in lists:
                raise top.refuse(f"in [matrix] it lacks '{PLURALS[dimension]}'")
        for values in product(*(lists[dimension] for dimension in DIMENSIONS)):
            cells[Cell(*values)] = None  # type: ignore[arg-type]
    if not cells:
        raise top.refuse("no [[cells]] is for this scale")
    return tuple(cells)


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
