# SPDX-License-Identifier: GPL-2.0-only
"""What a time consists of, as horizontal bars: the ledger, a handshake, the CPU time of a phase."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tlstax.analysis import quantities
from tlstax.analysis.report.html import bars
from tlstax.analysis.report.html.bars import Bar, Part

Json = Mapping[str, Any]

LEAST: Final = 0.004
"""Of the longest phase of a ledger: shorter ones are in the table only."""
PALE: Final = 0.4
_ARMS: Final = {"plaintext": ", plaintext", "tls": ", TLS"}


def ledger(document: Json, indices: Sequence[int]) -> bars.Picture:
    """A bar for each phase and arm, its parts by state."""
    items = [document["ledgers"][index] for index in indices]
    key = "per_operation_ns" if all(item["operation_count"] for item in items) else "time_ns"
    phases = list(dict.fromkeys(phase["name"] for phase in document["method"]["phases"]))
    states = [state["name"] for state in document["method"]["states"]]
    total = {
        phase: sum(
            part[key] for item in items for part in item["segments"] if part["phase"] == phase
        )
        for phase in phases
    }
    paired = len(items) > 1
    least = LEAST * max(total.values(), default=0.0)
    return bars.picture(
        [
            _stacked(
                _upper(quantities.name(phase)) + (_ARMS.get(item["arm"], "") if paired else ""),
                [part for part in item["segments"] if part["phase"] == phase],
                states,
                key,
            )
            for phase in phases
            if total[phase] and total[phase] >= least
            for item in items
        ]
    )


def _stacked(label: str, segments: Sequence[Json], states: Sequence[str], key: str) -> Bar:
    parts, start = [], 0.0
    for segment in sorted(segments, key=lambda segment: states.index(segment["state"])):
        end = start + segment[key]
        time = quantities.time(segment[key])
        fill = f"var(--state-{segment['state']}, var(--bar))"
        title = f"{label}, {quantities.name(segment['state'])}: {time}"
        parts.append(Part(start, end, fill, title, (time,)))
        start = end
    return Bar(label, parts)


def handshake_parts(item: Json) -> bars.Picture:
    """The parts of the mean handshake with their intervals."""
    return bars.picture(
        [
            _single(
                part["label"],
                mean["value_ns"],
                quantities.time(mean["value_ns"]),
                "group-handshake",
                (mean["low_ns"], mean["high_ns"]),
            )
            for part in item["parts"]
            for mean in (part["mean"],)
        ],
        has_axis=False,
    )


def handshake_lanes(item: Json) -> bars.Picture:
    """Each handshake as a bar of its own length; the means of both sides have one length."""
    means = [_length(lane) for lane in item["lanes"] if _is_mean(lane)]
    return bars.picture(
        [_lane(lane, max(means) if _is_mean(lane) else _length(lane)) for lane in item["lanes"]],
        has_axis=False,
    )


def _is_mean(lane: Json) -> bool:
    return bool(lane["name"].endswith("_mean"))


def _lane(lane: Json, whole_ns: float) -> Bar:
    parts = [
        Part(
            part["start_ns"] / whole_ns,
            part["end_ns"] / whole_ns,
            f"var(--part-{part['name']}, var(--bar))",
            f"{part['label']}: {quantities.time(part['time_ns'])}",
            (quantities.time(part["time_ns"]),),
        )
        for part in lane["parts"]
    ]
    return Bar(f"{_upper(lane['label'])}: {quantities.time(lane['wall_ns'])}", parts)


def _length(lane: Json) -> float:
    return max(lane["wall_ns"], *(part["end_ns"] for part in lane["parts"]), 0) or 1.0


def composition(phase: Json) -> bars.Picture:
    """The categories of a phase's CPU time; too few samples make no shares but counts."""
    enough = phase["enough"]
    return bars.picture(
        [
            _single(
                quantities.name(share["category"]),
                share["share"],
                quantities.share(share["share"]) if enough
                else quantities.count(share["sample_count"]),
                f"category-{share['category']}",
                (share["low"], share["high"]) if enough else (None, None),
                1.0 if enough else PALE,
            )
            for share in phase["shares"]
        ],
        has_axis=False,
    )  # fmt: skip


def _single(
    label: str,
    value: float,
    text: str,
    colour: str,
    interval: tuple[float | None, float | None],
    opacity: float = 1.0,
) -> Bar:
    part = Part(0.0, value, f"var(--{colour}, var(--bar))", f"{label}: {text}", opacity=opacity)
    return Bar(_upper(label), [part], text, *interval)


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
