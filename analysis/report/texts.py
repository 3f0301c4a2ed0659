# SPDX-License-Identifier: GPL-2.0-only
"""What rows and sentences say in every format. Writes the document's numbers; computes none."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tlstax.analysis import quantities

Json = Mapping[str, Any]

SEEN: Final = ("more", "less")
"""Verdicts of a difference whose interval does not span zero."""
COLUMNS_MAX: Final = 7
"""Categories that get a column of their own."""


def clean(text: str) -> str:
    """Text from a capture without control characters: a name must not steer the terminal."""
    return "".join(
        letter if letter.isprintable() or letter == quantities.NO_BREAK else "�" for letter in text
    )


def name(identifier: str) -> str:
    """An identifier for people, see `quantities.name`."""
    return clean(quantities.name(identifier))


def interval(measure: Json) -> str:
    """The interval of a measure, or nothing."""
    return quantities.time_interval(measure["value_ns"], measure["low_ns"], measure["high_ns"])


def change(measure: Json) -> str:
    """A difference, with its interval if it has one."""
    return f"{quantities.time_change(measure['value_ns'])} {interval(measure)}".rstrip()


def side_text(side: Json) -> str:
    """One side of a comparison in one line."""
    parts = [side["label"], side["server"], side["tls"], side["negotiated"], side["host"]]
    parts.append(f"level {side['level']}")
    if side["operation_count"]:
        parts.append(f"{quantities.count(round(side['operation_count']))} operations")
    parts.append(f"{quantities.count(side['sample_count'])} samples")
    return clean(" · ".join(part for part in parts if part))


def change_name(line: Json) -> str:
    """A function with its category, a wait with its phase."""
    kind = name(line["kind"])
    if line["sample_counts"]:
        return f"{clean(line['name'])} ({kind})"
    label = name(line["name"])
    return f"{label}, {kind}" if kind else label


def figure(value: float | None, quantity: str) -> str:
    """A figure in the unit of its quantity."""
    return quantities.time(value) if quantity.endswith("_ns") else quantities.three_digits(value)


def intermediaries(cell: Json) -> str:
    """CPU time of tunnels and proxies per operation: "stunnel 12.3 µs"."""
    return ", ".join(
        f"{clean(process['name'])} {quantities.time(process['cpu_ns'])}"
        for process in cell["processes"]
    )


def largest_categories(servers: Sequence[Json], cost: str, most: int = COLUMNS_MAX) -> list[str]:
    """The categories that matter most over all servers, largest first."""
    largest: dict[str, float] = {}
    for server in servers:
        for entry in (server[cost] or {"categories": []})["categories"]:
            value = abs(entry["cost"]["value_ns"])
            largest[entry["category"]] = max(largest.get(entry["category"], 0.0), value)
    return sorted(largest, key=lambda key: -largest[key])[: min(most, COLUMNS_MAX)]


def hot_sentence(title: str, functions: Sequence[Json]) -> str:
    """The hot functions of one library with their shares."""
    shown = ", ".join(f"{entry['name']} {quantities.share(entry['share'])}" for entry in functions)
    return f"{title}: {shown or 'none above 2 %'}."
