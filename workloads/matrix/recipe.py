# SPDX-License-Identifier: GPL-2.0-only
"""A recipe in types: what is combined, at which scale, and what was published about it.

Its `kind` says what is reported at the end:

- `tax`: one server, one recording, the report of a capture;
- `libraries`: many servers side by side, each with a capture of its own;
- `matrix`: each cell, and each against its baseline.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from tlstax.workloads.drivers import DRIVERS, ScenarioKind
from tlstax.workloads.matrix.cells import Cell
from tlstax.workloads.matrix.scale import Length, Scale
from tlstax.workloads.recipe_table import Scalar, refuse
from tlstax.workloads.servers import other_openssl
from tlstax.workloads.servers.catalogue import ServerKind, find_kind
from tlstax.workloads.servers.debian_root import Say
from tlstax.workloads.servers.lab_server import open_private, open_server
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.request import ServerRequest
from tlstax.workloads.servers.storage import Storage
from tlstax.workloads.tls import TlsChoice

Kind = Literal["tax", "libraries", "matrix"]
KINDS: Final[tuple[Kind, ...]] = ("tax", "libraries", "matrix")
HOST: Final = "host"
"""The server that is this host's own MariaDB, or the program that --mysqld names."""
PROXYSQL: Final = "proxysql"


@dataclass(frozen=True)
class TlsArm:
    """What `tls = "NAME"` asks of clients."""

    choice: TlsChoice = field(default_factory=TlsChoice)
    resume: bool = False
    key_shares: tuple[str, ...] = ()  # that a ClientHello must have; (): not looked at


@dataclass(frozen=True)
class ServerArm:
    """What `servers = ["NAME"]` starts."""

    kind: ServerKind | None = None  # None: this host's own
    options: tuple[str, ...] = ()  # further lines of its option file
    storage: Storage | None = None  # encryption apart, which is a dimension
    program: Path | None = None  # instead of the kind's
    openssl: str = ""  # whose OpenSSL it loads: other_openssl.HOST, or a server; "": its own

    def open(self, request: ServerRequest, say: Say) -> PrivateServer:
        """The server, not started yet; one of the catalogue is installed if it is not."""
        if self.kind is None or self.program is not None:
            return open_private(request, self.program)
        if self.openssl:
            request = replace(request, openssl=other_openssl.files_of(self.openssl, say))
        return open_server(self.kind, request, say)


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
    quantity: str  # one of recipe_file.QUANTITIES; "ratio": operations/s over the baseline's
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
class Recipe:
    """An experiment as asked for, at one scale."""

    kind: Kind
    name: str
    title: str
    path: Path
    scale: Scale
    cells: tuple[Cell, ...]
    skips: tuple[Skip, ...]
    baseline: Mapping[str, Scalar]
    watch: tuple[str, ...]  # roles that are recorded besides the server
    servers: Mapping[str, ServerArm]
    tls: Mapping[str, TlsArm]
    transports: Mapping[str, Part]
    drivers: Mapping[str, Part]
    published: tuple[Published, ...]
    collect: tuple[str, ...] = ()  # sources that are recorded besides the ledger
    lengths: Mapping[Cell, Length] = field(default_factory=dict)  # where not the scale's

    @property
    def text(self) -> str:
        """The file."""
        return self.path.read_text(encoding="utf-8")

    @property
    def rounds_in_turn(self) -> int:
        """Rounds that share a recording; of kind `tax` all of a start do."""
        return self.scale.rounds_count if self.kind == "tax" else self.scale.rounds_in_turn

    @property
    def is_shuffled(self) -> bool:
        """Whether a seed decides the order of runs; if not, it is reversed every other round."""
        return self.kind == "matrix"

    # ---- what names mean ----

    def length_of(self, cell: Cell) -> Length:
        """When a run of the cell is over."""
        return self.lengths.get(cell, self.scale.length)

    def server_of(self, name: str) -> ServerArm:
        """What a server's name means."""
        if name in self.servers:
            return self.servers[name]
        return ServerArm() if name == HOST else ServerArm(find_kind(name))

    def transport_of(self, cell: Cell) -> Part:
        """What a cell's transport means."""
        return self.transports.get(cell.transport, Part(cell.transport))

    def driver_of(self, cell: Cell) -> Part:
        """What a cell's driver means."""
        return self.drivers.get(cell.driver, Part(cell.driver))

    def scenario_of(self, cell: Cell) -> ScenarioKind:
        """What a cell's scenario is; the recipe was checked to have it."""
        found = DRIVERS[self.driver_of(cell).kind].scenario(cell.scenario)
        assert found is not None
        return found

    def recorded_as(self, cell: Cell) -> tuple[str, str]:
        """Driver and scenario of the cell's runs in captures.

        A matrix tells its cells apart by their way and threads; the captures of other kinds hold
        one cell of each scenario and arm, whose driver keeps connections (pooled) or not (storm).
        """
        if self.kind == "matrix":
            return cell.driver, cell.recorded_name
        return ("storm" if self.scenario_of(cell).connects else "pooled"), cell.scenario

    # ---- changes ----

    def with_changes(
        self,
        rounds_count: int | None = None,
        seconds: int | None = None,
        servers: tuple[str, ...] = (),
        proxysql: str | None = None,
        starts_count: int | None = None,
    ) -> "Recipe":
        """The same with other starts, rounds, seconds per run or fewer servers, where given.

        `proxysql` is the program of that transport, where the recipe names none.
        """
        scale = self.scale
        if rounds_count is not None:
            turn = min(scale.rounds_in_turn, rounds_count)
            scale = replace(scale, rounds_count=rounds_count, rounds_in_turn=turn)
        if seconds is not None:
            scale = replace(scale, length=Length(seconds))
        if starts_count is not None:
            scale = replace(scale, starts_count=starts_count)
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

    def with_program(self, program: Path) -> "Recipe":
        """The same with this program as every server."""
        named = {cell.server for cell in self.cells}
        arms = {name: replace(self.server_of(name), program=program) for name in named}
        return replace(self, servers={**self.servers, **arms})

    def _with_proxysql(self, program: str) -> dict[str, Part]:
        """The transports with the program of those that are ProxySQL."""
        found = dict(self.transports)
        used = {cell.transport: self.transport_of(cell) for cell in self.cells}
        proxies = {name: part for name, part in used.items() if part.kind == PROXYSQL}
        if not proxies:
            raise refuse(
                self.path, f"--proxysql is given, and at scale {self.scale.name} no cell uses it"
            )
        for name, part in proxies.items():
            found[name] = replace(part, options={"program": program} | dict(part.options))
        return found
