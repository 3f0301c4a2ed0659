# SPDX-License-Identifier: GPL-2.0-only
"""Handshake records: the wall time of a connection's handshake, and its parts."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tlstax.analysis.model.tables import (
    Distribution,
    HandshakePart,
    HandshakeTable,
    Measure,
    Ratio,
)
from tlstax.analysis.rows import coverage, latency, window_units
from tlstax.analysis.rows.coverage import Coverage
from tlstax.analysis.rows.tables import Group
from tlstax.analysis.rows.window_units import WindowUnits
from tlstax.analysis.statistics.medians import Estimate
from tlstax.analysis.statistics.units import Floats
from tlstax.collectors.capture.schema import Handshake
from tlstax.collectors.capture.vocabulary import DETAIL_PHASES, HANDSHAKE_SUB_PHASES

_LABELS: Final = {
    "sign": "private-key signature",
    "keygen": "ephemeral key generation",
    "derive": "shared secret",
    "verify": "signature checks",
    "certificate": "certificate chain checks",
    "other_cpu": "other computing",
    "runnable": "waiting for a CPU",
    "blocked_network": "waiting for the client",
    "blocked_other": "other waits",
    "untracked": "unclassified",
    "rest": "computing and waiting (not separated)",
}
_RESUMPTIONS: Final = {0: "full", 1: "resumed", None: "unknown"}


def select(rows: Iterable[Handshake], group: Group) -> list[Handshake]:
    """The handshakes that ended in the group's windows."""
    return [row for row in rows if row.window_id in group.window_ids]


def most_told(rows: Sequence[Handshake]) -> list[Handshake]:
    """The successful ones of which most is known: waits, else all operations, else one."""
    good = [row for row in rows if row.outcome == "success"]
    detailed = [row for row in good if row.verify_ns >= 0]
    return [row for row in detailed if row.on_cpu_ns >= 0] or detailed or good


def summarize(
    group: Group, rows: Sequence[Handshake], seen: Coverage, of: WindowUnits
) -> HandshakeTable:
    """The table of one group. Times are those of successful handshakes only.

    Parts are those of the handshakes of which most is known.
    """
    good = [row for row in rows if row.outcome == "success"]
    split = most_told(rows)
    return HandshakeTable(
        name=group.name,
        label=group.label,
        count=len(rows),
        outcomes=_count(row.outcome for row in rows),
        versions=_count(row.tls_version for row in rows),
        ciphers=_count(row.cipher for row in rows),
        groups=_count(row.group_name for row in rows),
        resumptions=_count(_RESUMPTIONS.get(row.resumed, "unknown") for row in rows),
        mean=_wall(good, of) if good else None,
        call_count=_mean([row.call_count for row in good]),
        network_wait_count=_mean([row.network_wait_count for row in good]),
        parts=parts(split, of),
        distribution=dataclasses.replace(_distribution(group, good, of), estimate=seen.text),
        parts_count=len(split),
        estimate=seen.text,
        estimated_count=_estimated(rows, seen),
    )


def _estimated(rows: Sequence[Handshake], seen: Coverage) -> Ratio | None:
    """How many handshakes there were, if not all were seen."""
    if seen.is_whole:
        return None
    key = ("handshake", "count")
    counts: dict[int, dict[tuple[str, str], float]] = {}
    for row in rows:
        mine = counts.setdefault(row.window_id, {key: 0.0})
        mine[key] += 1
    value = sum(mine[key] * seen.weights.get(one, 0.0) for one, mine in counts.items())
    return coverage.intervals(counts, seen).get(key, Estimate(value))._replace(value=value).ratio()


def _wall(rows: Sequence[Handshake], of: WindowUnits) -> Measure:
    """The mean wall time."""
    return _mean_of(_column(rows, "end_ns") - _column(rows, "start_ns"), _places(rows, of), of)


def _mean_of(values: Floats, places: NDArray[np.int64] | None, of: WindowUnits | None) -> Measure:
    """A mean, with the bounds of the means of rounds or blocks."""
    if places is None or of is None:
        return Measure(float(values.mean()))
    return window_units.mean(values, places, of.units).measure()


def _places(rows: Sequence[Handshake], of: WindowUnits | None) -> NDArray[np.int64] | None:
    """The unit of each handshake."""
    if of is None:
        return None
    units = (of.unit_of.get(row.window_id, 0) for row in rows)
    return np.fromiter(units, np.int64, len(rows))


def parts(rows: Sequence[Handshake], of: WindowUnits | None = None) -> list[HandshakePart]:
    """The split of the mean: parts sum to the wall time, row by row.

    The sub-phases are wall times and may include waits for a CPU; the row has these waits only in
    total. Other computing is on_cpu less the sub-phases (at least 0), and the wait for a CPU is the
    rest of on_cpu + runnable. Operations that were not measured are in the rest.
    """
    if not rows:
        return []
    wall = _column(rows, "end_ns") - _column(rows, "start_ns")
    unknown = DETAIL_PHASES if any(row.verify_ns < 0 for row in rows) else ()
    found = {
        name: _column(rows, f"{name}_ns") for name in HANDSHAKE_SUB_PHASES if name not in unknown
    }
    inside = sum(found.values(), np.zeros(len(rows)))
    if any(row.on_cpu_ns < 0 for row in rows):
        found["rest"] = wall - inside
        return _means(found, wall, rows, of)
    on_cpu = _column(rows, "on_cpu_ns")
    found["other_cpu"] = np.maximum(0.0, on_cpu - inside)
    found["runnable"] = on_cpu + _column(rows, "runnable_ns") - inside - found["other_cpu"]
    found["blocked_network"] = _column(rows, "blocked_network_ns")
    found["blocked_other"] = _column(rows, "blocked_other_ns")
    found["untracked"] = wall - sum(found.values(), np.zeros(len(rows)))
    return _means(found, wall, rows, of)


def _means(
    parts: dict[str, Floats], wall: Floats, rows: Sequence[Handshake], of: WindowUnits | None
) -> list[HandshakePart]:
    """The mean of each part that is not always zero."""
    mean_ns, places = float(wall.mean()), _places(rows, of)
    return [
        HandshakePart(
            name,
            _LABELS[name],
            _mean_of(values, places, of),
            float(values.mean()) / mean_ns if mean_ns else 0.0,
        )
        for name, values in parts.items()
        if values.any()
    ]


def _distribution(group: Group, good: Sequence[Handshake], of: WindowUnits) -> Distribution:
    """Wall times: quantiles are exact, buckets are for the picture."""
    walls_ns = sorted(row.end_ns - row.start_ns for row in good)
    by_unit: list[list[int]] = [[] for _ in range(of.units.count)]
    for row in good:
        by_unit[of.unit_of.get(row.window_id, 0)].append(row.end_ns - row.start_ns)
    name, label = f"{group.name}/handshake_wall", f"{group.label}: handshake, wall time"
    if not walls_ns:
        return Distribution(name, label, "handshake_wall", 0, None, [], [])
    wanted = (*latency.wanted_quantiles(len(walls_ns)), 1.0)
    return Distribution(
        name,
        label,
        "handshake_wall",
        len(walls_ns),
        sum(walls_ns) / len(walls_ns),
        [
            latency.with_exact_sampling(latency.exact_quantile(walls_ns, q), by_unit, of.units)
            for q in wanted
        ],
        latency.cumulate(latency.bucketize(walls_ns)),
    )


def _column(rows: Sequence[Handshake], name: str) -> Floats:
    return np.fromiter(map(attrgetter(name), rows), np.float64, len(rows))


def _mean(values: Sequence[int]) -> float | None:
    return sum(values) / len(values) if values else None


def _count(names: Iterable[str]) -> dict[str, int]:
    """Frequencies, highest first."""
    return dict(sorted(Counter(names).items(), key=lambda item: (-item[1], item[0])))
