# SPDX-License-Identifier: GPL-2.0-only
"""A plan as JSON that holds for every process of the same files.

Objects are numbers in a list of them by path, and addresses in it are kept as (object, offset
in its file): another process has the same files elsewhere.
"""

import dataclasses
import json
import math
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

from tlstax.collectors.placement.model import Plan, RoleMark
from tlstax.collectors.process.mappings import MappedObject

_PLAIN: Final = (str, int, float, bool, type(None))
_DAMAGES: Final = (
    AttributeError,
    LookupError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
)


class NoFitError(Exception):
    """The plan is of other files, of another version of tlstax, or damaged."""


def to_text(plan: Plan, objects: Sequence[MappedObject]) -> str:
    """The plan of a process with these objects. Raises NoFitError if it has addresses elsewhere."""
    return text_of(plan, in_order(objects))


def from_text(text: str, pid: int, objects: Sequence[MappedObject]) -> Plan:
    """The plan for a process that has the same files. Raises NoFitError."""
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NoFitError(str(error)) from None
    made = made_of(Plan, plain, in_order(objects))
    assert isinstance(made, Plan)
    return dataclasses.replace(made, pid=pid)


def text_of(value: object, objects: Sequence[MappedObject] = ()) -> str:
    """Data classes as JSON, equal ones as equal text."""
    return json.dumps(_plain(value, objects), separators=(",", ":"))


def plain_of(value: object, objects: Sequence[MappedObject]) -> Any:
    """A value of a plan as plain data, in which objects are numbers of `objects`."""
    return _plain(value, objects)


def made_of(kind: Any, value: Any, objects: Sequence[MappedObject]) -> Any:
    """A value of a type from what plain_of() made of it. Raises NoFitError."""
    try:
        return _made(kind, value, objects)
    except _DAMAGES as error:
        raise NoFitError(str(error)) from None


def in_order(objects: Sequence[MappedObject]) -> list[MappedObject]:
    """The objects in an order that does not depend on where they are mapped."""
    return sorted(objects, key=lambda each: (each.path, each.device, each.inode))


def _plain(value: Any, objects: Sequence[MappedObject]) -> Any:
    if type(value) in _PLAIN:  # most are
        return value
    if isinstance(value, MappedObject):
        return objects.index(value)
    if isinstance(value, RoleMark):
        spans = [_relative(span, objects) for span in value.spans]
        return {"role": value.role, "names": value.names, "spans": spans, "main": value.main}
    if dataclasses.is_dataclass(value):
        return {
            each.name: _plain(getattr(value, each.name), objects)
            for each in dataclasses.fields(value)
        }
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: _plain(item, objects) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item, objects) for item in value]
    if isinstance(value, re.Pattern):
        return value.pattern
    return sorted(value) if isinstance(value, frozenset) else value


def _relative(span: tuple[int, int], objects: Sequence[MappedObject]) -> list[int]:
    start, end = span
    for number, mapped in enumerate(objects):
        for segment in mapped.segments:
            if segment.start <= start < segment.end:
                return [number, start - segment.start + segment.file_offset, end - start]
    raise NoFitError("a function lies outside of the process's files")


def _made(kind: Any, value: Any, objects: Sequence[MappedObject]) -> Any:
    """A value of a type from what _plain() made of it."""
    if kind in (str, int, bool) and type(value) is kind:  # most are
        return value
    if kind is MappedObject:
        return objects[_number(value)]
    if kind is RoleMark:
        spans = tuple(_absolute(span, objects) for span in value["spans"])
        return RoleMark(value["role"], tuple(value["names"]), spans, value["main"])
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = _hints(kind)
        if value.keys() != hints.keys():
            raise NoFitError("other fields")
        return kind(**{name: _made(hints[name], value[name], objects) for name in hints})
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (tuple, frozenset) and not isinstance(value, list):
        raise NoFitError(f"{value!r} is no list")
    if origin is tuple and arguments[-1] is Ellipsis:
        return tuple(_made(arguments[0], item, objects) for item in value)
    if origin is tuple:
        return tuple(_made(one, item, objects) for one, item in zip(arguments, value, strict=True))
    if origin is frozenset:
        return frozenset(_made(arguments[0], item, objects) for item in value)
    if origin is dict:
        return {key: _made(arguments[1], item, objects) for key, item in value.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if isinstance(kind, type) and issubclass(kind, tuple):  # a NamedTuple
        kinds = _hints(kind).values()
        return kind(*(_made(one, item, objects) for one, item in zip(kinds, value, strict=True)))
    if isinstance(kind, UnionType) or not isinstance(
        value, (int, float) if kind is float else kind
    ):
        raise NoFitError(f"{value!r} is no {kind}")
    if kind is float and not math.isfinite(value):
        raise NoFitError(f"{value} is no number")
    return value


def _absolute(span: Sequence[int], objects: Sequence[MappedObject]) -> tuple[int, int]:
    number, offset, length = span
    start = objects[_number(number)].address_of(offset)
    if start is None:
        raise NoFitError("a function is not mapped")
    return start, start + length


def _number(value: int) -> int:
    if value < 0:
        raise NoFitError("no such object")
    return value


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
