# SPDX-License-Identifier: GPL-2.0-only
"""The JSON inside a page that its scripts read: packed, and escaped for a script element."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

Json = Mapping[str, Any]

_ESCAPES: Final = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


def of_report(document: Mapping[str, Any]) -> str:
    """What the page's charts need of a document, for a script element that nothing in it can end.

    All five escaped characters can occur inside JSON strings only, where their escapes mean the
    same. Flame graphs are packed (see `_pack`, undone by
    assets/page.js).
    """
    parts = {
        name: document[name]
        for name in (
            "primitives",
            "method",
            "sources",
            "heatmaps",
        )
    }
    names: dict[str, int] = {}
    flames = [{**flame, "root": _pack(flame["root"], names)} for flame in document["flames"]]
    parts |= {"handshakes": document["handshakes"], "flames": flames, "names": list(names)}
    text = json.dumps(parts, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return _escape(text)


def _escape(text: str) -> str:
    """JSON for a script element: escaped as above."""
    return text.translate(_ESCAPES)


def _pack(root: Mapping[str, Any], names: dict[str, int]) -> list[Any]:
    """A flame graph's tree as [name, category, value, children], names as positions in `names`.

    What of a node was repaired follows, and 1 if it is inlined, where there is something to say.

    A third of the size: most functions occur in many stacks.
    """
    packed = _leaf(root, names)
    waiting = [(root, packed)]
    while waiting:
        node, copy = waiting.pop()
        for child in node["children"]:
            copy[3].append(_leaf(child, names))
            waiting.append((child, copy[3][-1]))
    return packed


def _leaf(node: Mapping[str, Any], names: dict[str, int]) -> list[Any]:
    name, category = (names.setdefault(node[key], len(names)) for key in ("name", "category"))
    more = [node.get("repaired"), 1] if "inlined" in node else [node.get("repaired")]
    return [name, category, node["value"], [], *(more if more != [None] else [])]


def of_differences(flames: Sequence[Json]) -> str:
    """The differential flame graphs, packed likewise."""
    parts = [{"per": flame["per"], "root": _pack_change(flame["root"])} for flame in flames]
    text = json.dumps(parts, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return _escape(text)


def _pack_change(root: Json) -> list[Any]:
    """A tree as [name, before, after, is noise, children]; without recursion."""
    top = _changed(root)
    waiting = [(root, top)]
    while waiting:
        node, packed = waiting.pop()
        for child in node["children"]:
            packed[4].append(_changed(child))
            waiting.append((child, packed[4][-1]))
    return top


def _changed(node: Json) -> list[Any]:
    return [node["name"], node["before_ns"], node["after_ns"], int(node["is_noise"]), []]
