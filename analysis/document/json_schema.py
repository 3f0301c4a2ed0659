# SPDX-License-Identifier: GPL-2.0-only
"""Prints docs/report.schema.json, the JSON Schema of a report, from its dataclasses.

python -m tlstax.analysis.document.json_schema > docs/report.schema.json
"""

import dataclasses
import inspect
import json
import types
import typing
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

from tlstax.analysis.model import report as document

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_PLAIN: Final[dict[Any, dict[str, Any]]] = {
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    Any: {},
}


def report_schema() -> dict[str, Any]:
    """The schema of `tlstax report --json`.

    Every field that a version has is there, so all are required; more may come in later versions.
    """
    definitions: dict[str, Any] = {}
    top = _object(document.Document, definitions)
    return {
        "$schema": DIALECT,
        "title": "The report of tlstax as JSON",
        "description": (
            f"Version {document.DOCUMENT_VERSION}. Times are nanoseconds, shares 0 to 1, bounds "
            "95 % intervals, or ranges where unit_count is below 8; null says that there is no "
            "value."
        ),
        **definitions.pop(top),
        "$defs": dict(sorted(definitions.items())),
    }


def _object(kind: type[Any], definitions: dict[str, Any]) -> str:
    """Add the object to the definitions, with what it holds; its name."""
    name = kind.__name__
    if name in definitions:
        return name
    definitions[name] = {}  # a tree holds itself
    hints = get_type_hints(kind, include_extras=True)
    definitions[name] = {
        "description": inspect.cleandoc(kind.__doc__ or ""),
        "type": "object",
        "properties": {field: _field(hint, definitions) for field, hint in hints.items()},
        "required": [field for field in hints if field in _required(kind, hints)],
    }
    if name == "Document":
        definitions[name]["properties"]["version"]["const"] = document.DOCUMENT_VERSION
    return name


def _required(kind: type[Any], hints: dict[str, Any]) -> frozenset[str]:
    """The fields that are always there."""
    return getattr(kind, "__required_keys__", frozenset(hints))


def _field(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """A field's schema with its meaning."""
    if get_origin(hint) is Annotated:
        kind, meaning = get_args(hint)[:2]
        return {**_type(kind, definitions), "description": meaning}
    return _type(hint, definitions)


def _type(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if get_origin(hint) is Annotated:
        return _field(hint, definitions)
    arguments = get_args(hint)
    if get_origin(hint) is typing.NotRequired:
        return _type(arguments[0], definitions)
    if get_origin(hint) in (types.UnionType, typing.Union):
        return {"anyOf": [_type(argument, definitions) for argument in arguments]}
    if get_origin(hint) is list:
        return {"type": "array", "items": _type(arguments[0], definitions)}
    if get_origin(hint) is tuple:
        return {"type": "array"}
    if get_origin(hint) is dict:
        return {"type": "object", "additionalProperties": _type(arguments[1], definitions)}
    if hint in _PLAIN:
        return dict(_PLAIN[hint])
    if dataclasses.is_dataclass(hint) or typing.is_typeddict(hint):
        return {"$ref": f"#/$defs/{_object(hint, definitions)}"}
    raise TypeError(f"no schema for {hint!r}")


if __name__ == "__main__":
    print(json.dumps(report_schema(), indent=1, ensure_ascii=False))
