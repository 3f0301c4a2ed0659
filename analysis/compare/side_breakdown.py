# SPDX-License-Identifier: GPL-2.0-only
"""The time of both sides for an operation by part, with intervals."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tlstax.analysis.classify.composition import MINIMUM_SAMPLES
from tlstax.analysis.model.clients import LanePart
from tlstax.analysis.model.composition import PhaseComposition, Share
from tlstax.analysis.model.tables import Measure
from tlstax.analysis.statistics import medians
from tlstax.analysis.statistics.units import Floats, Units, unit_weights
from tlstax.collectors.capture.vocabulary import HANDSHAKE_PHASES

_COMMANDS: Final = ("record_read", "record_write", "command", "tde")
_OWN: Final = ("background", "idle", "unknown")
_STAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "connect": ("connect",),
    "handshake": HANDSHAKE_PHASES,
    "command": _COMMANDS,
    "own": _OWN,
    "disconnect": ("disconnect",),
}
STAGE_OF: Final = {phase: stage for stage, phases in _STAGES.items() for phase in phases}
_CLIENT_LABELS: Final = {
    "connect": "connecting",
    "handshake": "handshake",
    "command": "commands",
    "own": "own work",
    "disconnect": "disconnecting",
}
_SERVER_LABELS: Final = {
    "connect": "connecting",
    "handshake": "handshake",
    "command": "commands",
    "disconnect": "disconnecting",
}
Key = tuple[str, str, str]
"""(lane, stage, kind)."""


@dataclass
class Sides:
    """Time and operations of both sides, unit by unit: a round, or a block of windows."""

    times: dict[Key, list[float]]
    operations: dict[str, list[float]]  # by lane
    units: Units
    weights: Floats = field(init=False)

    def __post_init__(self) -> None:
        """Weigh the units."""
        self.weights = unit_weights(self.units.count)

    def cost(self, keys: Iterable[Key]) -> Floats:
        """Time per operation of some keys together, for each row of weights."""
        total = np.zeros(len(self.weights))
        for key in keys:
            if key in self.times:
                counts = self.weights @ np.array(self.operations[key[0]])
                counts[counts == 0] = np.nan
                total += self.weights @ np.array(self.times[key]) / counts
        return total

    def measure(self, values: Floats) -> Measure:
        """The median of the units."""
        return medians.estimate(values, self.units).measure()


class SideBreakdown:
    """Makes the parts of both lanes, each starting where the one before it ended."""

    def __init__(
        self,
        sides: Sides,
        made_of: Mapping[str, Mapping[str, list[Share]]],
        plaintext: Sides | None = None,
        *,
        keeps_all: bool = False,
    ) -> None:
        """`plaintext` has the same rounds of the other arm, if there is one.

        `keeps_all`: parts that only the other arm has are included with time 0.
        """
        self._sides = sides
        self._made_of = made_of
        self._plaintext = plaintext
        self._keeps_all = keeps_all
        self._all_keys = sorted({*sides.times, *(plaintext.times if plaintext else ())})
        self._latency_ns = float(sides.cost(key for key in sides.times if key[0] == "client")[0])

    def client(self) -> list[LanePart]:
        """The client's lane: CPU by stage, then its waits."""
        rows = [
            (f"client_{stage}_cpu", f"{label}: CPU", "cpu", [("client", stage, "cpu")], stage)
            for stage, label in _CLIENT_LABELS.items()
        ]
        if not any(key[:2] == ("client", "command") for key in self._all_keys):
            own = list(_CLIENT_LABELS).index("own")
            rows[own] = ("client_own_cpu", "queries and own work: CPU", *rows[own][2:])
        rows += [
            (
                "client_runnable",
                "waiting for a CPU",
                "runnable",
                self._keys("client", "runnable"),
                "",
            ),
            ("client_wait", "other waits", "wait", self._keys("client", "wait"), ""),
            (
                "client_peer_handshake",
                "handshake: waiting for the server",
                "peer",
                [("client", "handshake", "peer")],
                "",
            ),
            (
                "client_peer_other",
                "otherwise waiting for the server",
                "peer",
                [key for key in self._keys("client", "peer") if key[1] != "handshake"],
                "",
            ),
        ]
        return self._parts("client", rows)

    def server(self) -> list[LanePart]:
        """The server's lane, without the disconnect."""
        rows = [
            (f"server_{stage}_cpu", f"{label}: CPU", "cpu", [("server", stage, "cpu")], stage)
            for stage, label in _SERVER_LABELS.items()
            if stage != "disconnect"
        ]
        rows += [
            ("server_runnable", "waiting for a CPU", "runnable", self._served("runnable"), ""),
            ("server_wait", "locks, disk, other waits", "wait", self._served("wait"), ""),
            ("server_peer", "waiting for the client", "peer", self._served("peer"), ""),
        ]
        return self._parts("server", rows)

    def beside(self) -> list[LanePart]:
        """What the server does after the client has disconnected."""
        keys: list[Key] = [("server", "disconnect", kind) for kind in ("cpu", "runnable", "wait")]
        row = ("server_disconnect", "disconnecting: CPU and waits", "cpu", keys, "disconnect")
        return self._parts("server", [row])

    def summary(self) -> dict[str, Measure]:
        """The sums that the sentence prints."""
        cost, measure = self._sides.cost, self._sides.measure
        wait = cost(self._keys("client", "peer"))
        return {
            "latency": measure(cost(key for key in self._sides.times if key[0] == "client")),
            "client_cpu": measure(cost(self._keys("client", "cpu"))),
            "server_cpu": measure(cost(self._served("cpu"))),
            "client_wait": measure(wait),
            "between": measure(wait - cost(self._served("cpu"))),
        }

    def latency_added(self) -> Measure | None:
        """What TLS adds to the client's lane."""
        return self._added([key for key in self._all_keys if key[0] == "client"])

    def _added(self, keys: Sequence[Key], less: Sequence[Key] = ()) -> Measure | None:
        """What TLS adds to these keys, round by round, `less` the others."""
        if self._plaintext is None:
            return None
        with_tls, without = (
            sides.cost(keys) - sides.cost(less) for sides in (self._sides, self._plaintext)
        )
        units = self._plaintext.units, self._sides.units
        return medians.difference(without, with_tls, units, is_paired=True).measure()

    def between(self, rest: Measure) -> LanePart:
        """The time that neither side explains."""
        added = self._added(self._keys("client", "peer"), self._served("cpu"))
        is_overlap = rest.value_ns < 0
        label = (
            "the server computed at least this long while the client did not wait"
            if is_overlap
            else "network and scheduling: the client's wait less the server's CPU time"
        )
        place = (0.0, abs(rest.value_ns))
        return self._part("between", label, "between", "between", rest, place, added=added)

    def _keys(self, lane: str, kind: str) -> list[Key]:
        return [key for key in self._all_keys if key[0] == lane and key[2] == kind]

    def _served(self, kind: str) -> list[Key]:
        return [key for key in self._keys("server", kind) if key[1] != "disconnect"]

    def _parts(
        self, lane: str, rows: Iterable[tuple[str, str, str, list[Key], str]]
    ) -> list[LanePart]:
        position_ns = 0.0
        parts = []
        for name, label, kind, keys, stage in rows:
            cost = self._sides.measure(self._sides.cost(keys))
            added = self._added(keys)
            if cost.value_ns <= 0 and not (self._keeps_all and self._is_elsewhere(keys, added)):
                continue
            end_ns = position_ns + cost.value_ns
            shares = self._made_of[lane].get(stage, [])
            place = (position_ns, end_ns)
            parts.append(self._part(name, label, lane, kind, cost, place, shares, added))
            position_ns = end_ns
        return parts

    def _is_elsewhere(self, keys: Sequence[Key], added: Measure | None) -> bool:
        """Whether the other arm has time there. Medians of differences may be 0 where it has."""
        if self._plaintext is None or added is None:
            return False
        cost = self._plaintext.measure(self._plaintext.cost(keys))
        return cost.value_ns > 0 or added.value_ns != 0

    def _part(
        self,
        name: str,
        label: str,
        lane: str,
        kind: str,
        cost: Measure,
        place: tuple[float, float],
        shares: Sequence[Share] = (),
        added: Measure | None = None,
    ) -> LanePart:
        samples = sum(share.sample_count for share in shares)
        share = cost.value_ns / self._latency_ns if self._latency_ns else 0.0
        return LanePart(
            name,
            label,
            lane,
            kind,
            cost,
            share,
            *place,
            list(shares),
            samples if shares else None,
            not shares or samples >= MINIMUM_SAMPLES,
            added,
        )


def by_stage(phases: Iterable[PhaseComposition]) -> dict[str, list[Share]]:
    """The categories of each stage: its phases together."""
    times: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    samples: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for phase in phases:
        stage = STAGE_OF.get(phase.phase, "own")
        for share in phase.shares:
            times[stage][share.category] += share.time_ns
            samples[stage][share.category] += share.sample_count
    made: dict[str, list[Share]] = {}
    for stage, by_category in times.items():
        whole = sum(by_category.values())
        shares = [
            Share(name, by_category[name] / whole, None, None, by_category[name],
                  samples[stage][name])
            for name in by_category
            if by_category[name]
        ]  # fmt: skip
        made[stage] = sorted(shares, key=lambda share: -share.share)
    return made
