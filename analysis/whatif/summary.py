# SPDX-License-Identifier: GPL-2.0-only
"""What is wished of a prediction, and the prediction in words: sentence, costs that went in,
assumptions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tlstax.analysis.compare.replicates import Replicates
from tlstax.analysis.compare.selections import RecordingSelection
from tlstax.analysis.model.tables import Measure
from tlstax.analysis.model.whatif import Forecast, MicroCost
from tlstax.analysis.quantities import share_text, time_text
from tlstax.analysis.statistics import MIN_ROUNDS
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
    """Persistent connections that ask the same, for pooling."""
    present_key: str | None = None
    cipher: str | None = None
    present_cipher: str | None = None

    def summary(self) -> list[str]:
        """For people."""
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
    """What a recording says about its handshakes."""

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
    """The server's figure, or why there is none."""
    what = " and ".join(scenario.summary())
    assert line.then is not None
    now, then = line.now.value_ns, line.then
    if line.is_wide:
        return (
            f"With {what}: no prediction within ±20 %: between {time_text(then.low_ns or 0)} and "
            f"{time_text(then.high_ns or 0)} of the server's CPU time per {operation}, now "
            f"{time_text(now)}, because {line.reason}."
        )
    change = then.value_ns / now - 1
    word = "more" if change > 0 else "less"
    return (
        f"With {what}, {'an' if operation[0] in 'aeiou' else 'a'} {operation} would cost "
        f"{time_text(then.value_ns)} of the server's CPU time instead of {time_text(now)}, "
        f"{share_text(abs(change))} {word} "
        f"(interval {time_text(then.low_ns or 0)} to {time_text(then.high_ns or 0)}, "
        f"±{share_text(line.half_width_share or 0)})"
        + ("." if not (then.low_ns or 0) <= now <= (then.high_ns or 0) else (
            "; what it costs now is in the interval, so it may as well change nothing."
        ))
    )  # fmt: skip


def costs_used(costs: MicroCosts | None, used: Used) -> list[MicroCost]:
    """What was measured, for the reader."""
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


def assumptions(
    base: Replicates,
    scenario: Scenario,
    costs: MicroCosts | None,
    facts: Facts,
    flows: Traffic | None,
) -> list[str]:
    """What stays, in words."""
    found = [
        "Queries, round trips, server code and kernel work stay as they are, but for caches.",
        "Both figures hold what measuring costs the server.",
        "The load stays what it was: as many connections and queries, from as many clients.",
    ]
    if costs is not None and scenario.key is not None:
        chain = "the CA's, the server's and the clients' keys" if facts.mutual else "CA and server"
        found.append(f"The whole chain changes its kind of key: {chain}.")
        found.append(
            "Clients make a new TLS context for each connect and use OpenSSL, as libmariadb does."
        )
        least, most = (share_text(share) for share in forecast.WARMTH)
        found.append(
            f"All else takes {least} to {most} less for each ms by which a signature is shorter, "
            f"or more where it is longer, {share_text(forecast.WARMTH_MOST)} at most."
        )
    if flows is not None and scenario.cipher and scenario.present_cipher:
        found += cipher_change.assumptions(flows, scenario.present_cipher, scenario.cipher)
    if scenario.resume is not None:
        found.append(
            "Clients that resume keep their TLS context, and the server accepts every ticket."
        )
        found.append(
            "A resumed connection may take up to "
            f"{share_text(forecast.RESUMED['rest'])} less outside of its handshake, and its "
            f"handshake up to {share_text(forecast.RESUMED['kernel'])} less in the kernel."
        )
    if scenario.library is not None:
        found.append(
            f"A handshake costs what it cost in {scenario.library.label}, with the same key and "
            "on a host as fast; records cost what they do now."
        )
    if scenario.pool is not None:
        found.append(
            f"Further queries of a connection cost what they do in {scenario.warm.label}, or up to "
            f"{share_text(forecast.PARTED - 1)} more."
            if scenario.warm is not None
            else "Further queries of a connection cost from a tenth of a first one to all of it."
        )
        found.append(f"Connecting may cost up to {share_text(forecast.PARTED - 1)} more.")
    if base.side.group.runs:
        idle = idle_share(base)
        found.append(
            f"The host was {share_text(idle)} idle: "
            + (
                "its CPUs are the bottleneck, and latency follows CPU time in proportion."
                if idle < IDLE
                else "client and server work one after the other, and latency changes by what "
                "both sides compute more or less."
            )
        )
    if base.size < MIN_ROUNDS:
        found.append("Too few rounds for an interval of the recording: the noise is not in it.")
    return found
