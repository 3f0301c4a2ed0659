# SPDX-License-Identifier: GPL-2.0-only
"""The primitives of a TLS library: the functions that do its AES, SHA, RSA and ECDH.

A definition file (see `tlstax.probes.definitions`) names them in `[[primitive]]` tables. They are
probed only on request (`--functions`), because a hit takes longer than many of them.

    [[primitive]]
    id = "aes_record_encrypt"
    category = "cipher"               # cipher, digest, asymmetric, kdf or rng
    unit = "record"                   # what one call works on: record, block or call
    functions = ["_ZN5yaSSL3AES7encryptE*"]    # names of one function; the first that exists
    bytes = { argument = 3, type = "int" }     # how many bytes a call works on; optional
    on_request = true                 # optional: probed only when named by its id

`bytes` is a number if it is constant (16 for an AES block), `{ argument = N, type = T }` if the
caller passes it (N counts from 0, including the object of a C++ method), or `{ returned = T }` if
the function returns it. T is the C type, "int" or "size_t"; an unsigned int of 4 bytes is also an
"int", because no call works on more than 2 GB. Only these numbers are read, never the data.
"""

from collections.abc import Iterable, Sequence

from tlstax import ExitCode, TlstaxError
from tlstax.probes.model import (
    ARGUMENTS_COUNT,
    CATEGORIES,
    LARGEST_CONSTANT,
    TYPES,
    UNITS,
    Definition,
    Function,
    Primitive,
    Size,
)
from tlstax.probes.toml_table import Table


def parse_primitive(table: Table, functions: Sequence[Function]) -> Primitive:
    """Check one [[primitive]] table. Raises TlstaxError USAGE, naming file and table."""
    primitive = Primitive(
        id=table.text("id"),
        category=table.choice("category", tuple(CATEGORIES)),
        unit=table.choice("unit", UNITS),
        functions=tuple(functions),
        size=_size(table) if "bytes" in table else Size(),
        on_request=table.flag("on_request"),
    )
    if primitive.id in CATEGORIES:
        raise table.refuse(f"the id {primitive.id!r} is the name of a category")
    table.finish()
    return primitive


def _size(table: Table) -> Size:
    if not isinstance(table.content["bytes"], dict):
        return Size("constant", _whole(table, "bytes", 1, LARGEST_CONSTANT))
    inner = table.table("bytes")
    if "argument" in inner:
        index = _whole(inner, "argument", 0, ARGUMENTS_COUNT - 1)
        size = Size("argument", index, inner.choice("type", TYPES) == "size_t")
    else:
        size = Size("returned", 0, inner.choice("returned", TYPES) == "size_t")
    inner.finish()
    return size


def _whole(table: Table, key: str, least: int, most: int) -> int:
    value = table.content.pop(key)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise table.refuse(f"{key!r} must be a whole number from {least} to {most}")
    return value


def choose(
    definitions: Iterable[Definition], names: Sequence[str]
) -> dict[str, tuple[Primitive, ...]]:
    """The primitives of each definition (by its id) that the names select.

    A name is a category, a category and a unit ("cipher:record"), or the id of a primitive. Raises
    TlstaxError USAGE for any other.
    """
    by_library = {entry.id: entry.primitives for entry in definitions if entry.primitives}
    ids = {primitive.id for entries in by_library.values() for primitive in entries}
    units = {f"{category}:{unit}" for category in CATEGORIES for unit in UNITS}
    for name in names:
        if name not in CATEGORIES and name not in units and name not in ids:
            raise TlstaxError(
                f"--functions {name!r} cannot be probed",
                "it is neither a category nor the id of a primitive",
                f"Give some of {', '.join(CATEGORIES)}, optionally with a unit "
                f"(cipher:{UNITS[0]}), or ids{_similar(name, ids)}; `tlstax probes plan PID "
                "--functions LIST` shows them",
                ExitCode.USAGE,
            )
    return {
        library: tuple(
            primitive
            for primitive in entries
            if primitive.id in names or (not primitive.on_request and _is_of(primitive, names))
        )
        for library, entries in by_library.items()
    }


def _similar(name: str, ids: Iterable[str]) -> str:
    from difflib import get_close_matches  # here: only an error needs it

    close = get_close_matches(name, sorted(ids))
    return f" such as {', '.join(close)}" if close else ""


def _is_of(primitive: Primitive, names: Sequence[str]) -> bool:
    category = primitive.category
    return category in names or f"{category}:{primitive.unit}" in names


def parse_names(text: str) -> tuple[str, ...]:
    """The names in a list such as `cipher,digest`; raises ValueError if a name is empty."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if not all(names):
        raise ValueError("names must be separated by single commas")
    return names
