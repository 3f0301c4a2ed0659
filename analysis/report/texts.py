# SPDX-License-Identifier: GPL-2.0-only
"""What rows and sentences say in every format. Writes the document's numbers; computes none."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from tlstax.analysis import quantities
from tlstax.analysis.statistics.medians import has_interval
from tlstax.analysis.statistics.verdicts import NO_DIFFERENCE

Json = Mapping[str, Any]

SEEN: Final = ("more", "less")
"""Verdicts of a difference whose interval does not span zero."""
INTERVAL: Final = "95 % interval"
MIXED: Final = "interval or range"
SEVERAL: Final = "(several)"
LEAST_CALLER: Final = 0.01
LEAST_TASK: Final = 0.02
"""Callers and tasks below these shares of a phase are in the JSON only."""
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


def part(phase: str) -> str:
    """A part of a command."""
    return {"record_read": "reading", "command": "executing", "record_write": "answering"}[phase]


def callers(phase: Json, category: str) -> list[tuple[str, Json]]:
    """Who asked for a category's work in a phase: label and line, largest first."""
    return [
        (f"{_function(line['function'])} ({name(line['caller'])})", line)
        for line in phase["callers"]
        if line["category"] == category and line["caller"] and line["share"] >= LEAST_CALLER
    ]


def _function(label: str) -> str:
    return "other functions" if label == SEVERAL else clean(label)


def tasks(handshake: Json) -> list[Json]:
    """What the other computing of a handshake was for, as far as it is worth a row."""
    return [
        line
        for line in handshake["other_tasks"]
        if line["share"] >= LEAST_TASK and line["function"] and line["function"] != SEVERAL
    ]


def interval(measure: Json) -> str:
    """The bounds of a measure, or nothing."""
    bounds = (measure[key] for key in ("value_ns", "low_ns", "high_ns", "unit_count"))
    return quantities.time_interval(*bounds)


def segment_interval(segment: Json) -> str:
    """The same of a segment of the ledger."""
    bounds = (segment[key] for key in ("time_ns", "low_ns", "high_ns", "unit_count"))
    return quantities.time_interval(*bounds)


def number_interval(number: Json) -> str:
    """The same of a number without unit: "[6,173, 6,204]"."""
    bounds = (number[key] for key in ("low", "high", "unit_count"))
    return quantities.number_interval(*bounds)


def ratio_interval(ratio: Json) -> str:
    """The same of a ratio: "[7.31 ×, 7.46 ×]"."""
    bounds = (ratio[key] for key in ("low", "high", "unit_count"))
    return quantities.ratio_interval(*bounds)


def bounds_title(lines: Iterable[Json]) -> str:
    """The heading over the bounds of these: an interval, or the range of few units."""
    counts = {
        line["unit_count"] for line in lines if line.get("low_ns", line.get("low")) is not None
    }
    few = {count for count in counts if not has_interval(count)}
    if not few:
        return INTERVAL if counts else "interval"
    if few < counts:
        return MIXED
    return f"range of {min(few)}" + (f" to {max(few)}" if len(few) > 1 else "")


def bounds_column(
    measures: Iterable[Json], write: Callable[[Json], str] = interval
) -> tuple[str, Callable[[Json], str]]:
    """The heading, and what writes a cell: it names the count only where the heading does not."""
    title = bounds_title(measures)
    if title == MIXED:
        return title, write
    return title, lambda measure: write({**measure, "unit_count": None})


def verdict(line: Json) -> str:
    """What is said of a difference that is neither more nor less."""
    smallest = line["difference"]["smallest_ns"]
    if line["verdict"] == NO_DIFFERENCE and smallest is not None:
        return f"{line['verdict']} (from {quantities.time(smallest)} on it would be)"
    return str(line["verdict"])


def unexplained(named: Mapping[str, Json], operation: str) -> str:
    """What no step explains, by arm: "unexplained: plaintext 12 µs, TLS 40 µs"."""
    each = ", ".join(
        f"{name} {quantities.time(measure['value_ns'])} {interval(measure)}".rstrip()
        for name, measure in named.items()
    )
    return f"unexplained per {operation}: {each}" if each else ""


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


def parts_basis(item: Json) -> str:
    """How many handshakes the parts of a table rest on; "" if on all successful ones."""
    succeeded = item["outcomes"].get("success", 0)
    if not item["parts"] or item["parts_count"] >= succeeded:
        return ""
    counted = f"{quantities.count(item['parts_count'])} of {quantities.count(succeeded)}"
    if any(part["name"] == "rest" for part in item["parts"]):
        return f"parts: of the {counted} whose operations were all recorded"
    return f"parts: of the {counted} that were followed from beginning to end"
