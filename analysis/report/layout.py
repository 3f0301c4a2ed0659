# SPDX-License-Identifier: GPL-2.0-only
"""Which parts of a document stand together on the page. Selects and orders; computes no number."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from tlstax.analysis import quantities

Json = Mapping[str, Any]

QUANTILES: Final = (0.5, 0.99)
"""Of each phase, side by side in a comparison."""
WIDEST_COUNT: Final = 12
"""Stacks of each flame graph in its text alternative."""


def in_order(names: Iterable[str]) -> list[str]:
    """Each name once, in the order of its first appearance."""
    return list(dict.fromkeys(names))


def opening(names: Sequence[str], document: Json) -> int:
    """Position of the workload that a panel opens with: the TLS arm with most handshakes."""
    tables = sorted(document["handshakes"], key=lambda table: -table["count"])
    wanted = [table["name"] for table in tables]
    wanted += [name for name in names if "tls" in name.split("/")]
    return next((names.index(name) for name in wanted if name in names), 0)


def opening_heatmap(heatmaps: Sequence[Json], document: Json) -> int:
    """Position of the picture that its panel opens with: that workload's last, the handshake."""
    names = [bar_name(item["name"]) for item in heatmaps]
    first = opening(names, document)
    return max(at for at, name in enumerate(names) if name == names[first])


def lane_parts(lanes: Iterable[Json]) -> list[tuple[str, str]]:
    """Name and label of each part that a handshake's lanes have, once."""
    found: dict[str, list[str]] = {}
    for part in (part for lane in lanes for part in lane["parts"]):
        found[part["name"]] = in_order([*found.get(part["name"], []), part["label"]])
    return [(name, " or ".join(labels)) for name, labels in found.items()]


def sampling_at(distribution: Json, q: float) -> Json | None:
    """The interval of a quantile over rounds or blocks, if there are enough."""
    return next((one["sampling"] for one in distribution["quantiles"] if one["q"] == q), None)


def quantile_text(distribution: Json, q: float) -> str:
    """The quantile `q` of a distribution, if its count allowed for one; ≥: it is a lower bound."""
    found = next((item for item in distribution["quantiles"] if item["q"] == q), None)
    least = "≥ " if found and found["at_least"] else ""
    return least + quantities.time(found["value_ns"] if found else None)


def minimum_sample_count(document: Json) -> int:
    """Samples that a printed share needs; 0 where nothing was sampled."""
    return max((item["minimum_sample_count"] for item in document["compositions"]), default=0)


def rests_on_few(cell: Json, minimum: int) -> bool:
    """Whether a step of the waterfall was split off by fewer samples than a share needs."""
    return cell["sample_count"] is not None and cell["sample_count"] < minimum


def has_time_per_byte(table: Json) -> bool:
    """Whether a table of functions has a point for its chart."""
    return any(
        (part["timing"]["per_byte_ns"] or 0) > 0
        for line in table["lines"]
        for part in line["sizes"]
    )


def still(panels: Iterable[Json]) -> list[str]:
    """What was read and stayed at 0: "InnoDB redo log (waits for its buffer)"."""
    return [f"{panel['title']} ({', '.join(panel['still'])})" for panel in panels if panel["still"]]


def bar_name(name: str) -> str:
    """The name of the ledger bar that a flame graph or a latency belongs to."""
    return name.rpartition("/")[0]


def bar_labels(document: Json, names: Iterable[str]) -> list[str]:
    """The labels of ledger bars by their names."""
    labels = {bar["name"]: bar["label"] for bar in document["ledgers"]}
    return [labels.get(name, name) for name in names]


def ledger_groups(document: Json) -> list[dict[str, Any]]:
    """The ledger bars of each chart, by index: both arms of a driver and scenario together."""
    groups: dict[tuple[str, str, str], list[int]] = {}
    for index, bar in enumerate(document["ledgers"]):
        if bar["segments"]:
            alone = "" if bar["driver"] else bar["name"]
            groups.setdefault((bar["driver"], bar["scenario"], alone), []).append(index)
    return [_ledger_group(document, indices) for indices in groups.values()]


def _ledger_group(document: Json, indices: Sequence[int]) -> dict[str, Any]:
    bars = [document["ledgers"][index] for index in indices]
    first = bars[0]
    title = first["label"]
    if first["driver"]:
        title = f"{quantities.name(first['driver'])}: {quantities.name(first['scenario'])}"
    return {
        "title": title,
        "bars": indices,
        "segments": [segment for bar in bars for segment in bar["segments"]],
        "operation": first["operation"] if all(bar["operation_count"] for bar in bars) else "",
        "latencies": [
            (bar["arm"], latency)
            for bar in bars
            for latency in document["latencies"]
            if bar_name(latency["name"]) == bar["name"]
        ],
    }


def widest_stacks(document: Json) -> list[dict[str, Any]]:
    """The widest leaves of each flame graph, for its text alternative."""
    rows = []
    for flame in document["flames"]:
        leaves = sorted(_leaves(flame["root"]), key=lambda leaf: -leaf[1]["value"])
        rows += [
            {
                "label": flame["label"],
                "path": path,
                "category": leaf["category"],
                "value_ns": leaf["value"],
            }
            for path, leaf in leaves[:WIDEST_COUNT]
        ]
    return rows


def _leaves(root: Json) -> Iterator[tuple[str, Json]]:
    """Every leaf with "phase › … › function"; without recursion, as stacks can be deep."""
    waiting: list[tuple[Json, str, int]] = [(child, child["name"], 1) for child in root["children"]]
    while waiting:
        node, phase, depth = waiting.pop()
        if node["children"]:
            waiting.extend((child, phase, depth + 1) for child in node["children"])
        elif depth == 1:
            yield phase, node
        else:
            yield f"{phase} {'› ' if depth == 2 else '› … › '}{node['name']}", node
