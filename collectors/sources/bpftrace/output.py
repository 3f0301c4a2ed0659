# SPDX-License-Identifier: GPL-2.0-only
"""The JSON that bpftrace prints: as lines for a terminal and as maps for a capture."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tlstax.collectors.capture.printable import visible

if TYPE_CHECKING:
    from tlstax.collectors.sources.bpftrace.process import Run
    from tlstax.collectors.sources.bpftrace.program_text import Rendered

Messages = list[dict[str, Any]]


def maps(messages: Messages) -> dict[str, tuple[str, dict[str, Any]]]:
    """Every map: its kind (map, stats, hist) and its values by key; "" is the key of a scalar."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for message in messages:
        data = message.get("data")
        if message["type"] not in ("map", "stats", "hist") or not isinstance(data, dict):
            continue
        for name, value in data.items():
            keyed = isinstance(value, dict) and not {"count", "total"} <= value.keys()
            found[name] = (message["type"], value if keyed else {"": value})
    return found


def lost_events(messages: Messages) -> int:
    """The number of events that bpftrace reports as lost."""
    lost = [m["data"] for m in messages if m["type"] == "lost_events"]
    return sum(int(one.get("events", 0)) for one in lost if isinstance(one, dict))


def unmatched(messages: Messages) -> dict[str, int]:
    """Entries without an exit and exits without an entry, as the program counted them."""
    _, values = maps(messages).get("@unmatched", ("map", {}))
    return {key: int(value) for key, value in values.items()}


def as_lines(rendered: "Rendered", messages: Messages, run: "Run") -> Iterator[str]:
    """Lines for a terminal: the output of the program, its maps, and losses."""
    seconds = (run.end_ns - run.start_ns) / 1e9
    yield f"{rendered.name}: {seconds:.1f} s with {run.tool.text}"
    for text in rendered.missing:
        yield f"missing: {visible(text)}"
    for message in messages:
        if message["type"] == "printf":
            yield visible(str(message["data"]).rstrip("\n"))
    for name, (kind, values) in maps(messages).items():
        if kind == "hist" or name == "@unmatched":
            continue
        ordered = sorted(values.items(), key=lambda pair: -_size(pair[1]))
        for key, value in ordered[:20]:
            label = " ".join(visible(key).split("\\n"))
            yield f"{name}[{' '.join(label.split())}]: {_shown(kind, value)}"
        if len(ordered) > 20:
            yield f"{name}: {len(ordered) - 20} more"
    open_ones = unmatched(messages)
    yield (
        f"lost events: {lost_events(messages)}; unmatched: {sum(open_ones.values())}"
        + "".join(f", {count} {key}" for key, count in open_ones.items())
    )


def _size(value: Any) -> float:
    if isinstance(value, dict):
        return float(value.get("total", 0))
    return float(value) if isinstance(value, (int, float)) else 0.0


def _shown(kind: str, value: Any) -> str:
    if kind == "stats" and isinstance(value, dict):
        return f"{value['count']} times, mean {value['average']}, total {value['total']}"
    return str(value)
