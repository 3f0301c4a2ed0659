# SPDX-License-Identifier: GPL-2.0-only
"""The functions of a TLS library or a server that implement each operation that tlstax times.

One TOML file in `probes/libraries` describes one TLS library, client library or server: how it is
recognised, and its *boundaries*, the functions at which a thread changes what it is doing. A
boundary names one or more equivalent functions, best first; `placement.placement` takes the
cheapest one that the binary has. Each boundary also states what the report lacks without it, which
is printed when no function is found.

A boundary may lie in functions that have no name, because the library calls them through a table of
pointers. Its `method_table` says how they are found: the exported `getter` that returns the table,
and the exported `setters` that each copy one slot of it into the connection (see
`placement.method_table`). They are then probed *instead of* `functions`, which are used only
if the table cannot be read; `missing` of the table states what the report then lacks.

Function names are symbol names as the linker knows them (C++ names mangled). A `*` stands for any
run of letters, digits and underscores, because the tail of a mangled name changes between versions.

A definition file that lacks a required key is refused with one error (exit code USAGE).
"""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tlstax.probes.model import (
    ACTIONS,
    PHASES,
    ROLES,
    WAIT_STATES,
    Accessor,
    Boundary,
    Definition,
    Detection,
    Function,
    Level,
    MethodTable,
    Role,
)
from tlstax.probes.primitives import parse_primitive
from tlstax.probes.toml_table import Table, refuse
from tlstax.workloads import toml_text

_BUNDLED: Final = Path(__file__).with_name("libraries")


def load_definitions(extra: Path | None = None) -> list[Definition]:
    """The bundled definitions, and those of the directory `extra`, sorted by file name.

    Raises TlstaxError USAGE when a file is not valid or two files have the same id.
    """
    return parse_definitions(definition_files(extra))


def definition_files(extra: Path | None = None) -> list[tuple[str, bytes]]:
    """Name and content of the files that load_definitions() parses, sorted by name.

    Raises TlstaxError USAGE when one of `extra` cannot be read.
    """
    sources = [(path.name, path.read_bytes()) for path in _BUNDLED.glob("*.toml")]
    if extra is not None:
        try:
            found = sorted(extra.glob("*.toml"))
        except OSError as error:
            raise refuse(str(extra), error.strerror or str(error)) from None
        if not found:
            raise refuse(str(extra), "the directory has no .toml file")
        sources += [(str(path), _content(path)) for path in found]
    return sorted(sources)


def parse_definitions(sources: Sequence[tuple[str, bytes]]) -> list[Definition]:
    """Check the files that definition_files() gives; raises as load_definitions() does."""
    definitions = [parse_definition(content, name) for name, content in sources]
    seen: set[str] = set()
    for definition in definitions:
        if definition.id in seen:
            raise refuse(definition.id, "two definition files have this id")
        seen.add(definition.id)
    return definitions


def parse_definition(content: bytes, source: str) -> Definition:
    """Check one file's content. `source` is only for the error message."""
    try:
        table = toml_text.parse(content)
    except toml_text.UnusableError as error:
        raise refuse(source, str(error)) from None
    top = Table(table, source)
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
    for entry_id, count in Counter(ids).items():
        if count > 1:
            raise refuse(source, f"the id {entry_id!r} occurs twice")
    return definition


def _content(path: Path) -> bytes:
    try:
        return toml_text.read_content(path)
    except toml_text.UnusableError as error:
        raise refuse(str(path), str(error)) from None


def _detection(table: "Table") -> Detection:
    version = table.table("version")
    try:
        pattern = re.compile(version.text("pattern"))
    except re.error as error:
        raise refuse(table.where, f"the version pattern is not a regular expression ({error})") \
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


def _boundary(table: "Table") -> Boundary:
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
        leaf=table.flag("leaf"),
        output=int(table.number("output")) if "output" in table else -1,
        equivalent=table.text("equivalent") if "equivalent" in table else "",
        only_with=table.text("only_with") if "only_with" in table else "",
    )
    table.finish()
    return boundary


def _role(table: "Table") -> Role:
    role = Role(
        role=table.choice("role", ROLES),
        names=table.texts("names") if "names" in table else (),
        functions=table.texts("functions") if "functions" in table else (),
        main=table.flag("main"),
    )
    table.finish()
    if not (role.names or role.functions or role.main):
        raise refuse(table.where, "it has neither names nor functions")
    return role


def _function(entry: object, where: str) -> Function:
    if isinstance(entry, str) and re.fullmatch(r"[\w$.@*]+", entry, re.ASCII):
        return Function(entry)
    if isinstance(entry, dict):
        table = Table(entry, f"{where}, functions")
        function = Function(table.text("name"), table.number("hits"))
        table.finish()
        return function
    raise refuse(where, f"{entry!r} is not a function name or a {{name, hits}} table")


def _method_table(table: "Table") -> MethodTable:
    found = MethodTable(
        table.text_or_texts("getter"), table.texts("setters"), table.text("missing")
    )
    table.finish()
    names = (*found.getters, *found.setters)
    if len(set(names)) != len(names):
        raise refuse(table.where, "it names a function twice")
    for name in names:
        if not re.fullmatch(r"[\w$.@]+", name, re.ASCII):
            raise refuse(table.where, f"{name!r} is not a function name")
    return found


def _accessor(table: "Table") -> Accessor:
    accessor = Accessor(
        id=table.text("id"),
        function=table.text("function"),
        loads=int(table.number("loads")),
        missing=table.text("missing"),
    )
    table.finish()
    return accessor
