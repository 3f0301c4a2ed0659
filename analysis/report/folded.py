# SPDX-License-Identifier: GPL-2.0-only
"""Write flame graphs as folded stacks: one line per stack, frames from the root, then its time.

The format that FlameGraph, inferno and speedscope read. The first frame names the workload and
the kind of graph, the second the phase; the number is the stack's own time in nanoseconds.
"""

from collections.abc import Iterator, Mapping
from typing import Any


def render(document: Mapping[str, Any]) -> str:
    """All flame graphs of the document, one after the other."""
    return "".join(
        f"{line}\n" for flame in document["flames"] for line in _lines(flame["name"], flame["root"])
    )


def _lines(name: str, root: Mapping[str, Any]) -> Iterator[str]:
    """Lines of one tree, depth first, without recursion, as stacks can be deep."""
    waiting = [(root, _frame(name))]
    while waiting:
        node, path = waiting.pop()
        own_ns = round(node["value"] - sum(child["value"] for child in node["children"]))
        if own_ns > 0:
            yield f"{path} {own_ns}"
        waiting.extend(
            (child, f"{path};{_frame(child['name'])}") for child in reversed(node["children"])
        )


def _frame(name: str) -> str:
    """A frame's name without what separates frames and lines in the format."""
    return " ".join(name.replace(";", ":").split()) or "unknown"
