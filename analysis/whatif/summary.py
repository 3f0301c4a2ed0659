# SPDX-License-Identifier: GPL-2.0-only
"""The scenario of a prediction, and the texts of its result: sentence, costs used, assumptions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tlstax.analysis.compare.replicates import Replicates
from tlstax.analysis.compare.selections import RecordingSelection
from tlstax.analysis.model.tables import Measure
from tlstax.analysis.model.whatif import Forecast, MicroCost
from tlstax.analysis.quantities import share_text, time_text
from tlstax.analysis.statistics.medians import has_interval
from tlstax.analysis.whatif import cipher_change, forecast
from tlstax.analysis.whatif.cipher_change import Traffic
from tlstax.collectors.capture.micro_costs import Cost, KeyCosts, MicroCosts

IDLE: Final = 0.15
"""Idle share of the host below which its CPUs are the bottleneck."""
Used = tuple[str, KeyCosts | None, KeyCosts | None]
"""The present kind of key, its costs and those of the wished one."""


@dataclass(frozen=True)
class Scenario:
    """What is to change."""

    key: str | None = None
    resume: float | None = None
    pool: int | None = None
    library: RecordingSelection | None = None
    warm: RecordingSelection | None = None
    """A recording of persistent connections with the same queries, for pooling."""
    present_key: str | None = None
    cipher: str | None = None
    present_cipher: str | None = None

    def summary(self) -> list[str]:
        """The changes, for people."""
        found = []
        if self.library is not None:
            found.append(f"the TLS library of {self.library.label}")
        if self.key is not None:
            found.append(f"a key of kind {self.key}")
        if self.cipher is not None:
            found.append(f"the cipher {self.cipher}")
        if self.resume is not None:
            found.append(f"{share_text(self.resume)} of the handshakes resumed")
        if self.pool is not None:
            found.append(f"{self.pool} queries on each connection")
        return found


@dataclass(frozen=True)
class Facts:
    """Properties of the recorded handshakes."""

    tls_version: str
    mutual: bool
    resumed_share: float


def idle_share(base: Replicates) -> float:
    """Share of the host's CPU time that was idle while the recording ran."""
    rows = [row for row in base.tables.system if row.window_id in base.rows]
    idle = sum(row.cpu_idle_ns for row in rows)
    busy = sum(
        row.cpu_user_ns + row.cpu_system_ns + row.cpu_softirq_ns + row.cpu_steal_ns for row in rows
    )
    return idle / (idle + busy) if idle + busy else 1.0


def sentence(line: Forecast, scenario: Scenario, operation: str) -> str:
    """The prediction for the server, or why it is too wide to use."""
    what = " and ".join(scenario.summary())
    assert line.then is not None
    now, then = line.now.value_ns, line.then
    if line.is_wide:
        return (
            f"With {what}: no prediction within ±20 %. The server's CPU time per {operation} would "
            f"be between {time_text(then.low_ns or 0)} and {time_text(then.high_ns or 0)} (now "
            f"{time_text(now)}), because {line.reason}."
        )
    change = then.value_ns / now - 1
    word = "more" if change > 0 else "less"
    bounds = "interval" if has_interval(then.unit_count) else "range"
    return (
        f"With {what}, {'an' if operation[0] in 'aeiou' else 'a'} {operation} would cost "
        f"{time_text(then.value_ns)} of the server's CPU time instead of {time_text(now)}, "
        f"{share_text(abs(change))} {word} "
        f"({bounds} {time_text(then.low_ns or 0)} to {time_text(then.high_ns or 0)}, "
        f"±{share_text(line.half_width_share or 0)})"
        + ("." if not (then.low_ns or 0) <= now <= (then.high_ns or 0) else (
            f"; the {bounds} includes the present cost, so there may be no change."
        ))
    )  # fmt: skip


def costs_used(costs: MicroCosts | None, used: Used) -> list[MicroCost]:
    """The micro-costs that the prediction uses, for the reader."""
    _, old, new = used
    if costs is None or old is None or new is None:
        return []
    rows: Sequence[tuple[str, Cost | None, Cost | None]] = [
        ("signature", old.sign, new.sign),
        ("verification", old.verify, new.verify),
        ("ephemeral key", costs.keygen, costs.keygen),
        ("shared secret", costs.derive, costs.derive),
        ("full handshake, server", *_sides_of(old, new, "full", "server")),
        ("full handshake, client", *_sides_of(old, new, "full", "client")),
        ("resumed handshake, server", *_sides_of(old, new, "resumed", "server")),
        ("resumed handshake, client", *_sides_of(old, new, "resumed", "client")),
        ("client's context", old.client_setup, new.client_setup),
    ]
    return [MicroCost(name, _plain(before), _plain(after)) for name, before, after in rows]


def _sides_of(old: KeyCosts, new: KeyCosts, which: str, side: str) -> tuple[Cost, Cost]:
    first, second = (getattr(getattr(key, which), side) for key in (old, new))
    return first, second


def _plain(cost: Cost | None) -> Measure | None:
    return Measure(cost.value_ns, cost.low_ns, cost.high_ns) if cost else None


def few_units(other: Replicates) -> str:
    """That a second recording has too few rounds or blocks for an interval; '': it has enough."""
    if other.units.have_interval:
        return ""
    if other.size < 2:
        return f"{other.side.label} has one round: how its rounds vary is not included."
    return (
        f"{other.side.label} has {other.size} {other.units.name}, too few for an interval: their "
        "range is included."
    )


def assumptions(
    base: Replicates,
    scenario: Scenario,
    costs: MicroCosts | None,
    facts: Facts,
    flows: Traffic | None,
) -> list[str]:
    """The assumptions of the prediction, in sentences."""
    found = [
        "Queries, round trips, server code and kernel work do not change, except for caches.",
        "Both figures include the overhead of the recording.",
        "The load does not change: the same number of connections, queries and clients.",
    ]
    if costs is not None and scenario.key is not None:
        chain = "the CA's, the server's and the clients' keys" if facts.mutual else "CA and server"
        found.append(f"The whole certificate chain changes its kind of key: {chain}.")
        found.append(
            "Clients create a TLS context for each connection and use OpenSSL, as libmariadb does."
        )
        least, most = (share_text(share) for share in forecast.WARMTH)
        found.append(
            "All other work of a connection up to the end of its first query takes "
            f"{least} to {most} less time for each ms by which a signature is shorter (more if it "
            f"is longer), at most {share_text(forecast.WARMTH_MOST)}."
        )
    if flows is not None and scenario.cipher and scenario.present_cipher:
        found += cipher_change.assumptions(flows, scenario.present_cipher, scenario.cipher)
    if scenario.resume is not None:
        found.append(
            "Clients that resume keep their TLS context, and the server accepts every ticket."
        )
        found.append(
            f"A resumed connection takes up to {share_text(forecast.RESUMED['rest'])} less time "
            "outside of its handshake, up to the end of its first query, and its handshake up to "
            f"{share_text(forecast.RESUMED['kernel'])} less in the kernel."
        )
    if scenario.library is not None:
        found.append(
            f"A handshake costs the same as in {scenario.library.label}, with the same key and on "
            "an equally fast host; records cost the same as now."
        )
    if scenario.pool is not None:
        found.append(
            f"Further queries of a connection cost the same as in {scenario.warm.label}, or up to "
            f"{share_text(forecast.PARTED - 1)} more."
            if scenario.warm is not None
            else "Further queries of a connection cost a tenth of the first one up to the same."
        )
        found.append(f"Connecting costs up to {share_text(forecast.PARTED - 1)} more.")
    if base.side.group.runs:
        idle = idle_share(base)
        found.append(
            f"The host was {share_text(idle)} idle: "
            + (
                "its CPUs are the bottleneck, and latency is proportional to CPU time."
                if idle < IDLE
                else "client and server work one after the other, and latency changes by the "
                "change of CPU time on both sides."
            )
        )
    if base.size < 2:
        found.append("There is one round: noise between rounds is not included.")
    elif not base.units.have_interval:
        found.append(
            f"{base.size} {base.units.name} are too few for an interval: their range is included."
        )
    return found
