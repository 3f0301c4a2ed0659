# SPDX-License-Identifier: GPL-2.0-only
"""What a TLS library or a server calls each operation that tlstax times.

One TOML file in `probes/libraries` describes one TLS library, client library or server: how it is
recognised, and its *boundaries*, the functions at which a thread changes what it is doing. A
boundary names one or more equivalent functions, best first; `tlstax.collectors.placement` takes the
cheapest one that the binary has. What the report loses without the boundary is written beside it,
because it is printed when no function is found.

A boundary may lie in functions that have no name, because the library calls them through a table of
pointers. Its `method_table` says how they are found: the exported `getter` that returns the table,
and the exported `setters` that each copy one slot of it into the connection (see
`tlstax.collectors.method_table`). They are then probed *instead of* `functions`, which serve only
where the table cannot be read; what is lost by that is the `missing` of the table.

Function names are symbol names as the linker knows them (C++ names mangled). A `*` stands for any
run of letters, digits and underscores, because the tail of a mangled name changes between versions.

A definition file that does not say what it must is refused with one error (exit code USAGE).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

from tlstax import ExitCode, TlstaxError
from tlstax.probes.primitives import Primitive, parse_primitive

# The order is that of the kernel side. tests/unit/test_definitions.py keeps it equal to the
# vocabulary of the capture, which this stage may not import.
PHASES = (
    "unknown", "background", "idle", "connect", "handshake", "sign", "keygen", "derive", "verify",
    "certificate", "record_read", "record_write", "command", "tde", "disconnect",
)  # fmt: skip
ROLES = (
    "background", "connection", "pool_worker", "pool_timer", "binlog_dump", "replica_io",
    "replica_sql", "semisync_ack", "binlog", "acceptor", "page_io", "page_flush", "log_flush",
    "purge", "engine_task", "engine_monitor", "encryption", "event_scheduler", "signal_handler",
    "timer", "manager", "x_plugin", "wsrep",
)  # fmt: skip


class Level(IntEnum):
    """How much is probed, cheapest first. A boundary is planned from its own level upwards."""

    SAMPLE = 0
    HANDSHAKE = 1
    COMMAND = 2
    RECORD = 3


@dataclass(frozen=True)
class Action:
    """What the kernel side does at a boundary, and what it needs there."""

    events: tuple[str, ...]
    phase: str | None  # where it leads; None: the boundary itself names it; "": changes no phase
    argument: int = -1  # index of the argument that must still be readable on entry


ACTIONS: Mapping[str, Action] = {
    "phase": Action(("enter", "exit"), None),
    "phase_open": Action(("enter",), None),
    "await_command": Action(("enter",), "record_read"),
    "base_connect": Action(("enter",), "connect"),
    "base_idle": Action(("exit",), "idle"),
    "base_disconnect": Action(("enter",), "disconnect"),
    "base_park": Action(("exit",), "idle"),
    "handshake_bound": Action(("enter", "exit"), "handshake"),
    "handshake_call": Action(("enter", "exit"), "handshake", argument=0),
    "handshake_group": Action(("enter",), "handshake", argument=1),
    "handshake_free": Action(("enter",), "handshake", argument=0),
    "wait": Action(("enter", "exit"), ""),
    "call": Action(("enter", "exit"), None),
    "phase_close": Action(("exit",), None),
    "base_pool": Action(("enter",), "record_read"),
    # The kernel itself tells the first, and the end of the second, where it can (6.3 on): see
    # docs/how-it-measures.md. The second's third argument is the number of bytes to send.
    "await_receive": Action(("enter",), "record_read"),
    "phase_send": Action(("enter", "exit"), None, argument=2),
    "command_reads": Action(("enter",), ""),
}
WAIT_STATES = ("blocked_network", "blocked_disk", "blocked_lock", "blocked_other")


@dataclass(frozen=True)
class Function:
    """One of the equivalent functions of a boundary."""

    pattern: str
    hits: float = 1.0  # how often it is called for each time the boundary is crossed

    def matches(self, name: str) -> bool:
        """Whether a symbol name is the one meant."""
        return compile_names([self.pattern]).fullmatch(name) is not None


@dataclass(frozen=True)
class MethodTable:
    """How to find functions that are only called through a table of pointers."""

    getter: str  # the function that returns the table
    setters: tuple[str, ...]  # each copies the slot of one of the functions into the connection
    missing: str  # consequence when the table cannot be read, one sentence


@dataclass(frozen=True)
class Boundary:
    """A place where a thread changes what it is doing."""

    id: str
    action: str
    functions: tuple[Function, ...]
    phase: str
    missing: str  # consequence for the report when no function is found, one sentence
    level: Level
    only_in: str = ""  # the phase that must be open, else the boundary is ignored
    method_table: MethodTable | None = None  # where it has one, better than the functions
    blocking: bool = False  # it waits for the network itself: whatever it returns is final
    success: str = "one"  # what a handshake call returns when it is done: "one" or "zero"
    state: str = ""  # action "wait": what a futex wait in it waits for
    role: str = ""  # what a thread is, once it was here
    side: str = ""  # action "handshake_call": "server" or "client", "" when it serves both
    optional: bool = False  # without its functions the server does no such thing
    equivalent: str = ""  # of the boundaries with the same mark only the cheapest is probed

    @property
    def per(self) -> str:
        """What it is crossed once for: "command", "handshake", "connection"; "" if not known."""
        if self.only_in == "handshake" or self.action.startswith("handshake"):
            return "handshake"
        if self.action.startswith("base"):
            return "connection"
        records = self.action == "phase" and self.phase.startswith("record")
        return "command" if records or self.action in ("await_command", "phase_open") else ""

    @property
    def events(self) -> tuple[str, ...]:
        """Which of "enter" and "exit" are probed."""
        return ACTIONS[self.action].events

    @property
    def argument(self) -> int:
        """Index of the argument that is read on entry, -1 for none."""
        return ACTIONS[self.action].argument


@dataclass(frozen=True)
class Role:
    """How threads that never serve a connection are told apart."""

    role: str  # of the capture's vocabulary
    names: tuple[str, ...]  # patterns (`*`) of the thread's own name
    functions: tuple[str, ...]  # patterns of functions that are open for as long as it lives
    main: bool  # it is the process's first thread


@dataclass(frozen=True)
class Accessor:
    """An exported function that only reads a field; its instructions tell the field's offset."""

    id: str
    function: str
    loads: int  # pointers followed, counting the field itself
    missing: str


@dataclass(frozen=True)
class Detection:
    """How a library is recognised in a process."""

    objects: tuple[str, ...]  # file name patterns (`*`) of the shared objects it lives in
    symbols: tuple[str, ...]  # all of them must be defined in its objects
    version_text: tuple[str, ...]  # literals inside it, to find it quickly; the first that serves
    version_pattern: re.Pattern[str]  # what the whole string must look like; group 1 if any


@dataclass(frozen=True)
class Definition:
    """One library or server."""

    id: str
    kind: str  # "tls", "server", or "client" (a library that connects to servers)
    name: str
    detect: Detection
    boundaries: tuple[Boundary, ...]
    accessors: tuple[Accessor, ...] = field(default=())
    roles: tuple[Role, ...] = field(default=())
    primitives: tuple[Primitive, ...] = field(default=())


def compile_names(patterns: Iterable[str]) -> re.Pattern[str]:
    """One expression for several name patterns; use it with fullmatch."""
    return re.compile("|".join(re.escape(p).replace(r"\*", r"\w*") for p in patterns), re.ASCII)


def load_definitions(extra: Path | None = None) -> list[Definition]:
    """The bundled definitions, and those of the directory `extra`, sorted by file name.

    Raises TlstaxError USAGE when a file is not valid or two files have the same id.
    """
    from importlib.resources import files  # here: 3 MB that a process that stays attached saves

    sources = [
        (entry.name, entry.read_bytes())
        for entry in files("tlstax.probes").joinpath("libraries").iterdir()
        if entry.name.endswith(".toml")
    ]
    if extra is not None:
        found = sorted(extra.glob("*.toml"))
        if not found:
            raise _refuse(str(extra), "the directory has no .toml file")
        sources += [(str(path), path.read_bytes()) for path in found]
    definitions = [parse_definition(content, name) for name, content in sorted(sources)]
    seen: set[str] = set()
    for definition in definitions:
        if definition.id in seen:
            raise _refuse(definition.id, "two definition files have this id")
        seen.add(definition.id)
    return definitions


def parse_definition(content: bytes, source: str) -> Definition:
    """Check one file's content. `source` is only for the error message."""
    import tomllib

    try:
        table = tomllib.loads(content.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _refuse(source, f"it is not TOML ({error})") from None
    top = _Table(table, source)
    definition = Definition(
        id=top.text("id"),
        kind=top.choice("kind", ("tls", "server", "client")),
        name=top.text("name"),
        detect=_detection(top.table("detect")),
        boundaries=tuple(_boundary(entry) for entry in top.tables("boundary")),
        accessors=tuple(_accessor(entry) for entry in top.tables("accessor")),
        roles=tuple(_role(entry) for entry in top.tables("role")),
        primitives=tuple(
            parse_primitive(
                entry, [_function(name, entry.where) for name in entry.items("functions")]
            )
            for entry in top.tables("primitive")
        ),
    )
    top.finish()
    ids = [entry.id for entry in definition.boundaries]
    ids += [entry.id for entry in definition.accessors]
    ids += [entry.id for entry in definition.primitives]
    for entry_id in ids:
        if ids.count(entry_id) > 1:
            raise _refuse(source, f"the id {entry_id!r} occurs twice")
    return definition


def _detection(table: "_Table") -> Detection:
    version = table.table("version")
    try:
        pattern = re.compile(version.text("pattern"))
    except re.error as error:
        raise _refuse(table.where, f"the version pattern is not a regular expression ({error})") \
            from None  # fmt: skip
    detection = Detection(
        objects=table.texts("objects"),
        symbols=table.texts("symbols"),
        version_text=version.text_or_texts("text"),
        version_pattern=pattern,
    )
    version.finish()
    table.finish()
    return detection


def _boundary(table: "_Table") -> Boundary:
    action = table.choice("action", tuple(ACTIONS))
    phase = ACTIONS[action].phase
    if phase is None:
        phase = table.choice("phase", PHASES)
    boundary = Boundary(
        id=table.text("id"),
        action=action,
        functions=tuple(_function(entry, table.where) for entry in table.items("functions")),
        phase=phase,
        missing=table.text("missing"),
        level=Level[table.choice("level", tuple(level.name.lower() for level in Level)).upper()],
        only_in=table.choice("only_in", PHASES, default=""),
        method_table=_method_table(table.table("method_table"))
        if "method_table" in table
        else None,
        blocking=table.flag("blocking"),
        success=table.choice("success", ("one", "zero"), default="one"),
        state=table.choice("state", WAIT_STATES) if action == "wait" else "",
        role=table.choice("role", ROLES, default=""),
        side=table.choice("side", ("server", "client"), default=""),
        optional=table.flag("optional"),
        equivalent=table.text("equivalent") if "equivalent" in table else "",
    )
    table.finish()
    return boundary


def _role(table: "_Table") -> Role:
    role = Role(
        role=table.choice("role", ROLES),
        names=table.texts("names") if "names" in table else (),
        functions=table.texts("functions") if "functions" in table else (),
        main=table.flag("main"),
    )
    table.finish()
    if not (role.names or role.functions or role.main):
        raise _refuse(table.where, "it says neither names nor functions")
    return role


def _function(entry: object, where: str) -> Function:
    if isinstance(entry, str) and re.fullmatch(r"[\w$.@*]+", entry, re.ASCII):
        return Function(entry)
    if isinstance(entry, dict):
        table = _Table(entry, f"{where}, functions")
        function = Function(table.text("name"), table.number("hits"))
        table.finish()
        return function
    raise _refuse(where, f"{entry!r} is not a function name or a {{name, hits}} table")


def _method_table(table: "_Table") -> MethodTable:
    found = MethodTable(table.text("getter"), table.texts("setters"), table.text("missing"))
    table.finish()
    names = (found.getter, *found.setters)
    if len(set(names)) != len(names):
        raise _refuse(table.where, "it names a function twice")
    for name in names:
        if not re.fullmatch(r"[\w$.@]+", name, re.ASCII):
            raise _refuse(table.where, f"{name!r} is not a function name")
    return found


def _accessor(table: "_Table") -> Accessor:
    accessor = Accessor(
        id=table.text("id"),
        function=table.text("function"),
        loads=int(table.number("loads")),
        missing=table.text("missing"),
    )
    table.finish()
    return accessor


class _Table:
    """A TOML table that is asked for each of its keys; whatever is left over is an error."""

    def __init__(self, content: Mapping[str, Any], where: str) -> None:
        self.content = dict(content)
        self.where = where

    def __contains__(self, key: str) -> bool:
        return key in self.content

    def _take(self, key: str) -> Any:
        if key not in self.content:
            raise _refuse(self.where, f"{key!r} is missing")
        return self.content.pop(key)

    def text(self, key: str) -> str:
        value = self._take(key)
        if not isinstance(value, str) or not value.strip():
            raise _refuse(self.where, f"{key!r} must be a text")
        return " ".join(value.split())

    def text_or_texts(self, key: str) -> tuple[str, ...]:
        return self.texts(key) if isinstance(self.content.get(key), list) else (self.text(key),)

    def flag(self, key: str) -> bool:
        value = self.content.pop(key, False)
        if not isinstance(value, bool):
            raise _refuse(self.where, f"{key!r} must be true or false")
        return value

    def number(self, key: str) -> float:
        value = self._take(key)
        if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
            raise _refuse(self.where, f"{key!r} must be a number above 0")
        return float(value)

    def choice(self, key: str, allowed: tuple[str, ...], default: str | None = None) -> str:
        if default is not None and key not in self.content:
            return default
        value = self._take(key)
        if value not in allowed:
            raise _refuse(self.where, f"{key!r} is {value!r}, not one of {', '.join(allowed)}")
        return str(value)

    def items(self, key: str) -> list[object]:
        value = self._take(key)
        if not isinstance(value, list) or not value:
            raise _refuse(self.where, f"{key!r} must be a list with something in it")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        values = self.items(key)
        if not all(isinstance(value, str) and value for value in values):
            raise _refuse(self.where, f"{key!r} must be a list of texts")
        return tuple(str(value) for value in values)

    def table(self, key: str) -> "_Table":
        value = self._take(key)
        if not isinstance(value, dict):
            raise _refuse(self.where, f"{key!r} must be a table")
        return _Table(value, f"{self.where}, {key}")

    def tables(self, key: str) -> list["_Table"]:
        value = self.content.pop(key, [])
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            raise _refuse(self.where, f"{key!r} must be an array of tables")
        names = [
            str(entry.get("id", entry.get("role", number))) for number, entry in enumerate(value)
        ]
        return [
            _Table(entry, f"{self.where}, {key} {name}")
            for entry, name in zip(value, names, strict=True)
        ]

    def refuse(self, why: str) -> TlstaxError:
        """The error that this table cannot be used."""
        return _refuse(self.where, why)

    def finish(self) -> None:
        if self.content:
            raise self.refuse(f"{', '.join(sorted(self.content))} is not known here")


def _refuse(where: str, why: str) -> TlstaxError:
    return TlstaxError(
        f"Definition {where} cannot be used", why, "Correct the file", ExitCode.USAGE
    )
